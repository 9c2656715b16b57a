#include "tests/bench/learner.h"

#include <algorithm>
#include <thread>

#include "core/base/status.h"
#include "core/network/tensors/parameters.h"
#include "core/optim/schedule.h"

namespace anyorder::bench {
namespace {

// Elements [begin, end) of the flat space that are updated alike.
struct DecayRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool decays = false;
};

std::vector<DecayRange> DecayRanges(const ParameterLayout& layout) {
  std::vector<DecayRange> ranges;
  for (const ParameterInfo& info : layout.parameters()) {
    if (ranges.empty() || ranges.back().decays != info.decays)
      ranges.push_back({info.offset, info.offset, info.decays});
    ranges.back().end = info.end();
  }
  return ranges;
}

// The initial parameters do not depend on how they are cut, and drawing hundreds of millions takes
// one thread long.
std::vector<float> DrawParameters(const ParameterLayout& layout, const ModelConfig& model,
                                  uint64_t seed) {
  const int64_t size = layout.num_elements();
  std::vector<float> values(static_cast<size_t>(size));
  const int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  const int64_t share = (size + threads - 1) / threads;
  std::vector<std::thread> drawing;
  for (int64_t begin = 0; begin < size; begin += share) {
    const int64_t end = std::min(begin + share, size);
    drawing.emplace_back([&, begin, end] {
      InitializeParameters(layout, model, seed, begin, end, values.data() + begin);
    });
  }
  for (std::thread& thread : drawing) thread.join();
  return values;
}

}  // namespace

absl::StatusOr<MemoryRunner> MemoryRunner::Create(const ModelConfig& model, int64_t vocab_size,
                                                  const BatchShape& shape,
                                                  kernels::Backend& backend) {
  ASSIGN_OR_RETURN(std::unique_ptr<Transformer> transformer,
                   Transformer::Create(model, vocab_size, shape, backend));
  ASSIGN_OR_RETURN(MemoryRing memory, MemoryRing::Create(model, shape, shape.batch_size, backend));
  return MemoryRunner(std::move(transformer), std::move(memory));
}

StepResult MemoryRunner::Run(const Batch& batch, ConstTensorView weights, TensorView gradients,
                             uint64_t seed) {
  StepArgs args = {.batch = &batch,
                   .weights = weights,
                   .memory = memory_.View(0, batch.shape.batch_size),
                   .seed = seed,
                   .training = !gradients.is_null(),
                   .gradients = gradients};
  const StepResult result = transformer_->Run(args, {});
  memory_.Advance();
  return result;
}

absl::StatusOr<std::unique_ptr<Learner>> Learner::Create(const ModelConfig& model,
                                                         int64_t vocab_size,
                                                         const BatchShape& shape, uint64_t seed,
                                                         kernels::Backend& backend) {
  ASSIGN_OR_RETURN(MemoryRunner runner, MemoryRunner::Create(model, vocab_size, shape, backend));
  std::unique_ptr<Learner> learner(new Learner(std::move(runner), backend));
  RETURN_IF_ERROR(learner->AllocateState(ToDType(model.dtype)));
  const TensorView& master = learner->master_;
  const std::vector<float> initial = DrawParameters(learner->transformer().layout(), model, seed);
  backend.CopyToDevice(initial.data(), master.raw(), master.num_bytes(), {});
  if (!learner->weights_.is_null()) backend.Cast(master, learner->weights_, {});
  const kernels::NormControl control;
  backend.CopyToDevice(&control, learner->Control(), sizeof control, {});
  return learner;
}

absl::Status Learner::Allocate(DType dtype, int64_t elements, TensorView* view) {
  ASSIGN_OR_RETURN(buffers_.emplace_back(), backend_.Allocate(elements * SizeOf(dtype)));
  *view = TensorView(buffers_.back()->data(), dtype, {elements});
  return absl::OkStatus();
}

absl::Status Learner::AllocateState(DType dtype) {
  const int64_t size = transformer().layout().num_elements();
  for (TensorView* state : {&master_, &gradients_, &m_, &v_})
    RETURN_IF_ERROR(Allocate(DType::kFloat32, size, state));
  if (dtype != DType::kFloat32) RETURN_IF_ERROR(Allocate(dtype, size, &weights_));
  const int64_t blocks = (size + kernels::kNormBlockElements - 1) / kernels::kNormBlockElements;
  RETURN_IF_ERROR(Allocate(DType::kFloat64, blocks, &sums_));
  return Allocate(DType::kUint8, sizeof(kernels::NormControl), &control_);
}

double Learner::Step(const Batch& batch, const OptimizerConfig& optimizer, int64_t train_steps) {
  const StepResult result = runner_.Run(batch, weights(), gradients_, static_cast<uint64_t>(step_));
  backend_.SumOfSquares(gradients_, sums_, {});
  kernels::ComputeGradientClipArgs clip = {.sums = sums_, .control = Control()};
  clip.grad_scale = 1 / result.divisor;  // the gradient is that of the summed loss
  clip.max_grad_norm = optimizer.max_grad_norm;
  clip.beta1 = optimizer.adam_beta1;
  clip.beta2 = optimizer.adam_beta2;
  clip.bias_correction = optimizer.bias_correction;
  clip.corrects_epsilon = optimizer.adam_form == AdamForm::kTorch;
  backend_.ComputeGradientClip(clip, {});
  for (const DecayRange& range : DecayRanges(transformer().layout())) {
    const Shape shape{range.end - range.begin};
    kernels::AdamWArgs args = {.grad = gradients_.Slice(range.begin, shape),
                               .master = master_.Slice(range.begin, shape),
                               .m = m_.Slice(range.begin, shape),
                               .v = v_.Slice(range.begin, shape)};
    if (!weights_.is_null()) args.weights = weights_.Slice(range.begin, shape);
    args.learning_rate = LearningRate(optimizer, train_steps, step_);
    args.beta1 = optimizer.adam_beta1;
    args.beta2 = optimizer.adam_beta2;
    args.epsilon = optimizer.adam_epsilon;
    args.weight_decay = range.decays ? optimizer.weight_decay : 0.0;
    args.control = Control();
    backend_.AdamW(args, {});
  }
  backend_.Synchronize({});
  ++step_;
  return result.loss_sum / result.divisor;
}

int64_t Learner::Updates() {
  kernels::NormControl control;
  backend_.CopyToHost(Control(), &control, sizeof control, {});
  backend_.Synchronize({});
  return control.updates;
}

}  // namespace anyorder::bench
