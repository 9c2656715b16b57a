#include "tests/bench/learner.h"

#include <algorithm>
#include <thread>

#include "core/base/status.h"
#include "core/network/tensors/parameters.h"

namespace anyorder::bench {
namespace {

// The only rank has nobody to exchange with.
class OnlyRank final : public dist::Communicator {
 public:
  OnlyRank() : Communicator(0, 1, "") {}

 private:
  void DoExchange(absl::Span<const dist::SendBlock>,
                  absl::Span<const dist::ReceiveBlock>) override {}
};

std::vector<dist::DecaySegment> DecaySegmentsOf(const ParameterLayout& layout) {
  std::vector<dist::DecaySegment> segments;
  for (const ParameterInfo& info : layout.parameters())
    segments.push_back({info.offset, info.end(), info.decays});
  return segments;
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
                                                  kernels::Backend& backend,
                                                  const Retention& retention) {
  ASSIGN_OR_RETURN(std::unique_ptr<Transformer> transformer,
                   Transformer::Create(model, vocab_size, shape, backend, retention));
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

Learner::Learner(MemoryRunner runner, kernels::Backend& backend)
    : backend_(backend), runner_(std::move(runner)), communicator_(std::make_unique<OnlyRank>()) {}

absl::StatusOr<std::unique_ptr<Learner>> Learner::Create(
    const ModelConfig& model, int64_t vocab_size, const BatchShape& shape, uint64_t seed,
    const OptimizerConfig& optimizer, kernels::Backend& backend, const Retention& retention) {
  ASSIGN_OR_RETURN(MemoryRunner runner,
                   MemoryRunner::Create(model, vocab_size, shape, backend, retention));
  std::unique_ptr<Learner> learner(new Learner(std::move(runner), backend));
  const ParameterLayout& layout = learner->transformer().layout();
  dist::Communicator& communicator = *learner->communicator_;
  ASSIGN_OR_RETURN(learner->transport_, dist::MakeCommunicatorTransport(communicator, backend));
  ASSIGN_OR_RETURN(
      learner->optimizer_,
      dist::ShardedOptimizer::Create(communicator, backend, *learner->transport_,
                                     layout.num_elements(), DecaySegmentsOf(layout), optimizer));
  ASSIGN_OR_RETURN(learner->weights_,
                   dist::WeightWindows::Create(communicator, backend, *learner->transport_,
                                               {layout.num_elements(), ToDType(model.dtype)}));
  RETURN_IF_ERROR(learner->Allocate(DType::kFloat32, &learner->gradients_));
  const TensorView master = learner->optimizer_->master();
  const std::vector<float> initial = DrawParameters(layout, model, seed);
  backend.CopyToDevice(initial.data(), master.raw(), master.num_bytes(), {});
  learner->weights_->Set(master);
  return learner;
}

absl::Status Learner::Allocate(DType dtype, TensorView* view) {
  const int64_t size = transformer().layout().num_elements();
  ASSIGN_OR_RETURN(buffers_.emplace_back(), backend_.Allocate(size * SizeOf(dtype)));
  *view = TensorView(buffers_.back()->data(), dtype, {size});
  return absl::OkStatus();
}

double Learner::Step(const Batch& batch, double learning_rate) {
  const StepResult result = runner_.Run(batch, weights(), gradients_, step_++);
  // The gradient is that of the summed loss.
  optimizer_->Step(gradients_, {learning_rate, 1 / result.divisor}, *weights_);
  backend_.Synchronize({});
  if (!optimizer_->AwaitOutcome().skipped) ++updates_;
  return result.loss_sum / result.divisor;
}

}  // namespace anyorder::bench
