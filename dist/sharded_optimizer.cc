#include "dist/sharded_optimizer.h"

#include <algorithm>
#include <cstring>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/optim/schedule.h"

namespace anyorder::dist {
namespace {

constexpr double kLessThanAnyNorm = -1;
// Of the average, updated at once: scratch of that size stays in a GPU's cache or nearly so.
constexpr int64_t kAveragedElements = int64_t{4} << 20;

// Neighbours that are updated alike are one segment, so that the update is few large kernel calls.
std::vector<DecaySegment> JoinAlike(const std::vector<DecaySegment>& segments,
                                    int64_t num_elements) {
  std::vector<DecaySegment> joined;
  int64_t end = 0;
  for (const DecaySegment& segment : segments) {
    ANYORDER_CHECK(segment.begin == end && segment.end >= segment.begin)
        << "decay segment [" << segment.begin << ", " << segment.end << ") after " << end;
    end = segment.end;
    if (!joined.empty() && joined.back().decays == segment.decays &&
        joined.back().rate == segment.rate) {
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
    Communicator& communicator, kernels::Backend& backend, DeviceTransport& transport,
    int64_t num_elements, const std::vector<DecaySegment>& segments,
    const OptimizerConfig& config) {
  RETURN_IF_ERROR(config.Validate().ToStatus());
  auto optimizer = std::unique_ptr<ShardedOptimizer>(
      new ShardedOptimizer(communicator, backend, transport, num_elements, segments, config));
  RETURN_IF_ERROR(optimizer->AllocateState());
  optimizer->set_updates(0);
  return optimizer;
}

ShardedOptimizer::ShardedOptimizer(Communicator& communicator, kernels::Backend& backend,
                                   DeviceTransport& transport, int64_t num_elements,
                                   const std::vector<DecaySegment>& segments,
                                   const OptimizerConfig& config)
    : communicator_(communicator),
      backend_(backend),
      transport_(transport),
      config_(config),
      partition_(num_elements, communicator.world_size()),
      segments_(JoinAlike(segments, num_elements)) {}

// The device may still write to the host's memory.
ShardedOptimizer::~ShardedOptimizer() {
  if (outcome_is_there_ != nullptr) outcome_is_there_->Await();
}

absl::StatusOr<TensorView> ShardedOptimizer::Allocate(MemoryPlace place, DType dtype,
                                                      int64_t size) {
  if (size == 0) return TensorView(nullptr, dtype, Shape{size});
  ASSIGN_OR_RETURN(memory_.emplace_back(), backend_.AllocateAt(place, size * SizeOf(dtype)));
  return TensorView(memory_.back()->data(), dtype, Shape{size});
}

absl::Status ShardedOptimizer::AllocateState() {
  const int64_t size = owned().size();
  std::vector<TensorView*> states = {&master_, &first_moment_, &second_moment_};
  if (config_.keeps_average()) states.push_back(&average_);
  for (TensorView* const state : states) {
    ASSIGN_OR_RETURN(*state, Allocate(config_.state, DType::kFloat32, size));
  }
  for (TensorView& scratch : average_scratch_) {
    const int64_t piece = config_.keeps_average() ? std::min(size, kAveragedElements) : 0;
    ASSIGN_OR_RETURN(scratch, Allocate(MemoryPlace::kDevice, DType::kFloat32, piece));
  }
  ASSIGN_OR_RETURN(block_sums_,
                   Allocate(MemoryPlace::kDevice, DType::kFloat64, partition_.padded_blocks()));
  constexpr int64_t kControlBytes = sizeof(kernels::NormControl);
  ASSIGN_OR_RETURN(memory_.emplace_back(), backend_.Allocate(kControlBytes));
  control_ = static_cast<kernels::NormControl*>(memory_.back()->data());
  ASSIGN_OR_RETURN(outcome_, backend_.AllocateStaging(kControlBytes));
  ASSIGN_OR_RETURN(outcome_is_there_, backend_.MakeEvent());
  return absl::OkStatus();
}

void ShardedOptimizer::set_updates(int64_t updates) {
  kernels::NormControl control;
  control.updates = updates;
  backend_.CopyToDevice(&control, control_, sizeof(control), StreamView{});
  averaged_updates_ = updates;
}

void ShardedOptimizer::StartAverage() {
  if (config_.keeps_average() && owned().size() > 0) backend_.Cast(master_, average_, StreamView{});
}

void ShardedOptimizer::Step(ConstTensorView gradient, const StepInfo& info,
                            WeightWindows& weights) {
  ANYORDER_CHECK(gradient.num_elements() == owned().size());
  JudgeNorm(gradient, info);
  if (info.before_update) info.before_update();
  // `info` is the same on all ranks. What is skipped for its norm goes through all of it, and
  // changes nothing: only the device knows.
  if (info.skip_update) return;
  const TensorView rounded = weights.owned();
  Update(gradient, info, rounded);
  weights.Set(rounded.is_null() ? ConstTensorView(master_) : ConstTensorView());
}

void ShardedOptimizer::JudgeNorm(ConstTensorView gradient, const StepInfo& info) {
  std::vector<int64_t> offsets = partition_.offsets();
  for (int64_t& offset : offsets)
    offset = (offset + Partition::kBlockElements - 1) / Partition::kBlockElements;
  if (owned().size() > 0) {
    const int64_t begin = offsets[communicator_.rank()];
    const int64_t blocks = offsets[communicator_.rank() + 1] - begin;
    backend_.SumOfSquares(gradient, block_sums_.Slice(begin, {blocks}), StreamView{});
  }
  for (int64_t& offset : offsets) offset *= SizeOf(block_sums_.dtype());
  transport_.AllGatherInPlace(
      absl::MakeSpan(static_cast<char*>(block_sums_.raw()), block_sums_.num_bytes()), offsets,
      StreamView{});
  kernels::ComputeGradientClipArgs args;
  args.sums = block_sums_.Slice(0, {partition_.num_blocks()});
  args.control = control_;
  args.grad_scale = info.grad_scale;
  args.max_grad_norm = config_.max_grad_norm;
  args.skip_above_norm = info.skip_update ? kLessThanAnyNorm : info.skip_above_norm;
  args.beta1 = config_.adam_beta1;
  args.beta2 = config_.adam_beta2;
  args.bias_correction = config_.bias_correction;
  args.corrects_epsilon = config_.adam_form == AdamForm::kTorch;
  backend_.ComputeGradientClip(args, StreamView{});
  backend_.CopyToHost(control_, outcome_->data(), sizeof(kernels::NormControl), StreamView{});
  // Before the update: whoever waits for the outcome leaves the device at work.
  outcome_is_there_->Record(StreamView{});
}

UpdateOutcome ShardedOptimizer::AwaitOutcome() {
  outcome_is_there_->Await();
  kernels::NormControl control;
  std::memcpy(&control, outcome_->data(), sizeof(control));
  UpdateOutcome result;
  result.grad_norm = control.norm;
  result.skipped = control.skips != 0;
  // A step that is skipped leaves the factor of the one before.
  if (!result.skipped) result.clip_factor = control.clip_factor;
  if (config_.keeps_average() && control.updates > averaged_updates_) {
    averaged_updates_ = control.updates;
    UpdateAverage(AverageDecay(config_, control.updates));
  }
  return result;
}

// Adam's first moment is such an average, of what it takes for a gradient: here the weights. Its
// other two results go to scratch.
void ShardedOptimizer::UpdateAverage(double decay) {
  kernels::AdamWArgs args;
  args.beta1 = decay;
  args.beta2 = 0;
  for (int64_t begin = 0; begin < owned().size(); begin += kAveragedElements) {
    const int64_t size = std::min(kAveragedElements, owned().size() - begin);
    args.grad = master_.Slice(begin, {size});
    args.m = average_.Slice(begin, {size});
    args.master = average_scratch_[0].Slice(0, {size});
    args.v = average_scratch_[1].Slice(0, {size});
    backend_.AdamW(args, StreamView{});
  }
}

void ShardedOptimizer::Update(ConstTensorView gradient, const StepInfo& info, TensorView weights) {
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
    if (!weights.is_null()) args.weights = weights.Slice(local, {size});
    args.learning_rate = segment.rate * info.learning_rate;
    args.beta1 = config_.adam_beta1;
    args.beta2 = config_.adam_beta2;
    args.epsilon = config_.adam_epsilon;
    args.weight_decay = segment.decays ? config_.weight_decay : 0.0;
    args.control = control_;
    backend_.AdamW(args, StreamView{});
  }
}

}  // namespace anyorder::dist
