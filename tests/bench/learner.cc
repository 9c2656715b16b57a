#include "tests/bench/learner.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/status.h"
#include "core/optim/schedule.h"

namespace anyorder::bench {

absl::StatusOr<MemoryRunner> MemoryRunner::Create(const ModelConfig& model, int64_t vocab_size,
                                                  const BatchShape& shape,
                                                  kernels::Backend& backend) {
  ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<Transformer> transformer,
                            Transformer::Create(model, vocab_size, shape, backend));
  ANYORDER_ASSIGN_OR_RETURN(MemoryRing memory,
                            MemoryRing::Create(model, shape, shape.batch_size, backend));
  return MemoryRunner(std::move(transformer), std::move(memory));
}

StepResult MemoryRunner::Run(const Batch& batch, ConstTensorView weights, TensorView gradients) {
  StepArgs args;
  args.batch = &batch;
  args.weights = weights;
  args.memory = memory_.View(0, batch.shape.batch_size);
  args.training = !gradients.is_null();
  args.gradients = gradients;
  const StepResult result = transformer_->Run(args, {});
  memory_.Advance();
  return result;
}

absl::StatusOr<std::unique_ptr<Learner>> Learner::Create(const ModelConfig& model,
                                                         int64_t vocab_size,
                                                         const BatchShape& shape, uint64_t seed,
                                                         kernels::Backend& backend) {
  ANYORDER_ASSIGN_OR_RETURN(MemoryRunner runner,
                            MemoryRunner::Create(model, vocab_size, shape, backend));
  std::unique_ptr<Learner> learner(new Learner(std::move(runner), ToDType(model.dtype), backend));
  InitializeParameters(learner->transformer().layout(), model, seed, 0, learner->size_,
                       learner->master_.view.data<float>());
  if (!learner->weights_.view.is_null())
    backend.Cast(learner->master_.view, learner->weights_.view, {});
  return learner;
}

Learner::Learner(MemoryRunner runner, DType dtype, kernels::Backend& backend)
    : backend_(backend),
      runner_(std::move(runner)),
      size_(transformer().layout().num_elements()),
      master_(backend, DType::kFloat32, size_),
      weights_(backend, dtype, dtype == DType::kFloat32 ? 0 : size_),
      gradients_(backend, DType::kFloat32, size_),
      m_(backend, DType::kFloat32, size_),
      v_(backend, DType::kFloat32, size_),
      sums_(backend, DType::kFloat64,
            (size_ + kernels::kNormBlockElements - 1) / kernels::kNormBlockElements),
      ranges_(DecayRanges(transformer().layout())) {}

double Learner::Step(const Batch& batch, const OptimizerConfig& optimizer, int64_t train_steps) {
  const StepResult result = runner_.Run(batch, weights(), gradients_.view);
  backend_.SumOfSquares(gradients_.view, sums_.view, {});
  const double* const sums = sums_.view.data<double>();
  const double squares = std::accumulate(sums, sums + sums_.view.num_elements(), 0.0);
  // The gradient is that of the summed loss.
  const double norm = std::sqrt(squares) / result.divisor;
  const double clip =
      optimizer.max_grad_norm > 0 ? std::min(1.0, optimizer.max_grad_norm / norm) : 1.0;
  for (const DecayRange& range : ranges_) {
    const Shape shape{range.end - range.begin};
    kernels::AdamWArgs args;
    args.grad = gradients_.view.Slice(range.begin, shape);
    args.master = master_.view.Slice(range.begin, shape);
    args.m = m_.view.Slice(range.begin, shape);
    args.v = v_.view.Slice(range.begin, shape);
    if (!weights_.view.is_null()) args.weights = weights_.view.Slice(range.begin, shape);
    args.grad_scale = clip / result.divisor;
    args.learning_rate = LearningRate(optimizer, train_steps, step_);
    args.beta1 = optimizer.adam_beta1;
    args.beta2 = optimizer.adam_beta2;
    args.epsilon = optimizer.adam_epsilon;
    args.weight_decay = range.decays ? optimizer.weight_decay : 0.0;
    args.bias_correction = optimizer.bias_correction;
    args.step = step_;
    backend_.AdamW(args, {});
  }
  ++step_;
  return result.loss_sum / result.divisor;
}

}  // namespace anyorder::bench
