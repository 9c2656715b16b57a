#include "dist/sharded_optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::dist {
namespace {

// Neighbours that decay alike are one segment, so that the update is few large kernel calls.
std::vector<DecaySegment> JoinAlike(const std::vector<DecaySegment>& segments,
                                    int64_t num_elements) {
  std::vector<DecaySegment> joined;
  int64_t end = 0;
  for (const DecaySegment& segment : segments) {
    ANYORDER_CHECK(segment.begin == end && segment.end >= segment.begin)
        << "decay segment [" << segment.begin << ", " << segment.end << ") after " << end;
    end = segment.end;
    if (!joined.empty() && joined.back().decays == segment.decays) {
      joined.back().end = segment.end;
    } else {
      joined.push_back(segment);
    }
  }
  ANYORDER_CHECK(end == num_elements) << "decay segments end at " << end << " of " << num_elements;
  return joined;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShardedOptimizer>> ShardedOptimizer::Create(
    Communicator& communicator,
    kernels::Backend& backend,
    int64_t num_elements,
    const std::vector<DecaySegment>& segments,
    const OptimizerConfig& config,
    DeviceTransport* transport) {
  ANYORDER_RETURN_IF_ERROR(config.Validate());
  auto optimizer = std::unique_ptr<ShardedOptimizer>(
      new ShardedOptimizer(communicator, backend, num_elements, segments, config));
  ANYORDER_RETURN_IF_ERROR(optimizer->transport_.Resolve(transport, communicator, backend));
  ANYORDER_RETURN_IF_ERROR(optimizer->AllocateState());
  return optimizer;
}

ShardedOptimizer::ShardedOptimizer(Communicator& communicator,
                                   kernels::Backend& backend,
                                   int64_t num_elements,
                                   const std::vector<DecaySegment>& segments,
                                   const OptimizerConfig& config)
    : communicator_(communicator),
      backend_(backend),
      config_(config),
      partition_(num_elements, communicator.world_size()),
      segments_(JoinAlike(segments, num_elements)),
      block_sums_(partition_.num_blocks()) {}

absl::Status ShardedOptimizer::AllocateState() {
  const int64_t size = owned().size();
  for (TensorView* state : {&master_, &first_moment_, &second_moment_})
    *state = TensorView(nullptr, DType::kFloat32, Shape{0});
  if (size == 0) return absl::OkStatus();
  const auto allocate = [this](DType dtype, int64_t count) -> absl::StatusOr<TensorView> {
    ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<kernels::Buffer> buffer,
                              backend_.Allocate(count * SizeOf(dtype)));
    memory_.push_back(std::move(buffer));
    return TensorView(memory_.back()->data(), dtype, Shape{count});
  };
  for (TensorView* state : {&master_, &first_moment_, &second_moment_}) {
    ANYORDER_ASSIGN_OR_RETURN(*state, allocate(DType::kFloat32, size));
  }
  const int64_t blocks = (size + Partition::kBlockElements - 1) / Partition::kBlockElements;
  ANYORDER_ASSIGN_OR_RETURN(owned_sums_, allocate(DType::kFloat64, blocks));
  return absl::OkStatus();
}

void ShardedOptimizer::GatherWeights(TensorView weights) {
  const Range range = owned();
  if (range.size() > 0)
    backend_.Cast(master_, weights.Slice(range.begin, {range.size()}), StreamView{});
  AllGather(weights);
}

void ShardedOptimizer::AllGather(TensorView weights) {
  ANYORDER_CHECK(weights.num_elements() == partition_.num_elements());
  std::vector<int64_t> offsets = partition_.offsets();
  for (int64_t& offset : offsets)
    offset *= SizeOf(weights.dtype());
  transport_->AllGatherInPlace(
      absl::MakeSpan(static_cast<char*>(weights.raw()), weights.num_bytes()),
      offsets,
      StreamView{});
}

StepResult ShardedOptimizer::Step(ConstTensorView gradient,
                                  const StepInfo& info,
                                  TensorView weights) {
  ANYORDER_CHECK(gradient.num_elements() == owned().size());
  StepResult result;
  result.grad_norm = std::abs(info.grad_scale) * UnscaledNorm(gradient);
  // The norm and `info` are the same on all ranks, and so is this decision.
  const bool accepted = !info.accepts || info.accepts(result.grad_norm);
  if (!accepted || !std::isfinite(result.grad_norm) || !std::isfinite(info.grad_scale)) {
    result.skipped = true;
    return result;
  }
  if (config_.clip_norm > 0) {
    result.clip_factor = config_.clip_norm / std::max(result.grad_norm, config_.clip_norm);
  }
  Update(gradient, result.clip_factor * info.grad_scale, info, weights);
  ++updates_;
  AllGather(weights);
  return result;
}

double ShardedOptimizer::UnscaledNorm(ConstTensorView gradient) {
  constexpr int64_t kBlock = Partition::kBlockElements;
  std::vector<int64_t> offsets = partition_.offsets();
  for (int64_t& offset : offsets)
    offset = (offset + kBlock - 1) / kBlock;
  const int rank = communicator_.rank();
  if (owned().size() > 0) {
    backend_.SumOfSquares(gradient, owned_sums_, StreamView{});
    backend_.CopyToHost(owned_sums_.raw(),
                        block_sums_.data() + offsets[rank],
                        owned_sums_.num_bytes(),
                        StreamView{});
    backend_.Synchronize(StreamView{});
  }
  for (int64_t& offset : offsets)
    offset *= static_cast<int64_t>(sizeof(double));
  communicator_.AllGatherInPlace(MutableBytesOf(absl::MakeSpan(block_sums_)), offsets);
  double sum = 0;
  for (const double block_sum : block_sums_)
    sum += block_sum;
  return std::sqrt(sum);
}

void ShardedOptimizer::Update(ConstTensorView gradient,
                              double grad_scale,
                              const StepInfo& info,
                              TensorView weights) {
  const Range range = owned();
  for (const DecaySegment& segment : segments_) {
    const int64_t begin = std::max(segment.begin, range.begin);
    const int64_t size = std::min(segment.end, range.end) - begin;
    if (size <= 0) continue;
    const int64_t local = begin - range.begin;
    kernels::AdamWArgs args;
    args.grad = gradient.Slice(local, {size});
    args.master = master_.Slice(local, {size});
    args.m = first_moment_.Slice(local, {size});
    args.v = second_moment_.Slice(local, {size});
    args.weights = weights.Slice(begin, {size});
    args.grad_scale = grad_scale;
    args.learning_rate = info.learning_rate;
    args.beta1 = config_.adam_beta1;
    args.beta2 = config_.adam_beta2;
    args.epsilon = config_.adam_epsilon;
    args.weight_decay = segment.decays ? config_.weight_decay : 0.0;
    args.bias_correction = config_.bias_correction;
    args.step = updates_;
    backend_.AdamW(args, StreamView{});
  }
}

}  // namespace anyorder::dist
