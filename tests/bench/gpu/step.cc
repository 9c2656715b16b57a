// A whole training step: forward and backward of core/network, the gradient's norm and AdamW, on
// random text. The norm, clipping and whether to skip stay on the device; the step ends when the
// device is done, as the trainer's does.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/status.h"
#include "core/network/transformer.h"
#include "core/objective/objective.h"
#include "tests/bench/flat_tensor.h"
#include "tests/bench/gpu/cases.h"
#include "tests/bench/gpu/network.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::bench {

ModelConfig ModelOf(const XlnetSize& size, double dropout) {
  ModelConfig model;
  model.num_layers = size.layers;
  model.model_dim = size.model_dim;
  model.num_heads = size.heads;
  model.head_dim = size.head_dim();
  model.ffn_dim = size.ffn_dim;
  model.mem_len = size.memory;
  model.dropout = model.attention_dropout = dropout;
  model.dtype = ComputeType::kBFloat16;
  return model;
}

SamplingConfig SamplingOf(const XlnetSize& size) {
  SamplingConfig sampling;
  sampling.seq_len = size.length;
  sampling.reuse_len = size.length / 2;
  sampling.perm_size = size.length / 2;
  sampling.num_predict = size.targets;
  return sampling;
}

// Odd lanes read backwards, as half of the pretraining lanes do.
Batch DrawBatch(const Objective& objective, const XlnetSize& size, int64_t batch, int64_t step) {
  std::vector<int64_t> lanes(static_cast<size_t>(batch));
  std::vector<bool> backward(lanes.size());
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    lanes[lane] = static_cast<int64_t>(lane);
    backward[lane] = lane % 2 == 1;
  }
  return testing::RandomBatch(objective, SamplingOf(size), size.vocab, lanes, backward, step);
}

namespace {

constexpr int kBatches = 4;  // different ones, in turn
constexpr int kWarmUp = 3;

// The initial parameters do not depend on how they are cut, and drawing hundreds of millions takes
// one thread long.
std::vector<float> DrawParameters(const ParameterLayout& layout, const ModelConfig& model) {
  const int64_t size = layout.num_elements();
  std::vector<float> values(static_cast<size_t>(size));
  const int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  const int64_t share = (size + threads - 1) / threads;
  std::vector<std::thread> drawing;
  for (int64_t begin = 0; begin < size; begin += share) {
    const int64_t end = std::min(begin + share, size);
    drawing.emplace_back([&, begin, end] {
      InitializeParameters(layout, model, 1, begin, end, values.data() + begin);
    });
  }
  for (std::thread& thread : drawing) thread.join();
  return values;
}

class Step {
 public:
  Step(kernels::Backend& backend, Transformer& transformer, const ModelConfig& model,
       const BatchShape& shape)
      : backend_(backend),
        transformer_(transformer),
        size_(transformer.layout().num_elements()),
        master_(backend, DType::kFloat32, size_),
        weights_(backend, DType::kBFloat16, size_),
        gradients_(backend, DType::kFloat32, size_),
        m_(backend, DType::kFloat32, size_),
        v_(backend, DType::kFloat32, size_),
        sums_(backend, DType::kFloat64,
              (size_ + kernels::kNormBlockElements - 1) / kernels::kNormBlockElements),
        control_(backend, DType::kUint8, sizeof(kernels::NormControl)),
        memory_(MemoryOrDie(model, shape, backend)),
        ranges_(DecayRanges(transformer.layout())) {
    const std::vector<float> initial = DrawParameters(transformer.layout(), model);
    backend.CopyToDevice(initial.data(), master_.view.raw(), master_.view.num_bytes(), {});
    backend.Cast(master_.view, weights_.view, {});
    const kernels::NormControl control;
    backend.CopyToDevice(&control, control_.view.raw(), sizeof control, {});
  }

  // fp32 master weights, gradients and two moments, bf16 weights, two memories; and a little for
  // what is small.
  static int64_t Bytes(const Transformer& transformer, const ModelConfig& model,
                       const BatchShape& shape) {
    constexpr int64_t kRest = int64_t{1} << 20;
    return 18 * transformer.layout().num_elements() + 2 * MemoryElements(model, shape) + kRest;
  }

  // Mean loss; returns when all is done.
  double Run(const Batch& batch, int64_t step) {
    StepArgs args;
    args.batch = &batch;
    args.weights = weights_.view;
    args.memory = memory_.View(0, batch.shape.batch_size);
    args.seed = static_cast<uint64_t>(step);
    args.gradients = gradients_.view;
    const StepResult result = transformer_.Run(args, {});
    memory_.Advance();
    backend_.SumOfSquares(gradients_.view, sums_.view, {});
    kernels::ComputeGradientClipArgs fold;
    fold.sums = sums_.view;
    fold.control = Control();
    fold.grad_scale = 1 / result.divisor;
    fold.max_grad_norm = 1;
    backend_.ComputeGradientClip(fold, {});
    for (const DecayRange& range : ranges_) Update(range);
    backend_.Synchronize({});
    return result.loss_sum / result.divisor;
  }

  int64_t Updates() {
    kernels::NormControl control;
    backend_.CopyToHost(control_.view.raw(), &control, sizeof control, {});
    backend_.Synchronize({});
    return control.updates;
  }

 private:
  static int64_t MemoryElements(const ModelConfig& model, const BatchShape& shape) {
    return shape.batch_size * model.num_layers * shape.ring_rows() * model.model_dim;
  }
  kernels::NormControl* Control() {
    return static_cast<kernels::NormControl*>(control_.view.raw());
  }

  void Update(const DecayRange& range) {
    const Shape shape{range.end - range.begin};
    kernels::AdamWArgs args;
    args.grad = gradients_.view.Slice(range.begin, shape);
    args.master = master_.view.Slice(range.begin, shape);
    args.m = m_.view.Slice(range.begin, shape);
    args.v = v_.view.Slice(range.begin, shape);
    args.weights = weights_.view.Slice(range.begin, shape);
    args.learning_rate = 1e-5;
    args.weight_decay = range.decays ? 0.01 : 0.0;
    args.control = Control();
    backend_.AdamW(args, {});
  }

  kernels::Backend& backend_;
  Transformer& transformer_;
  int64_t size_;
  FlatTensor master_, weights_, gradients_, m_, v_, sums_, control_;
  MemoryRing memory_;
  std::vector<DecayRange> ranges_;
};

// A step of its own network, with batches in turn.
class PreparedStep {
 public:
  static absl::StatusOr<std::unique_ptr<PreparedStep>> Create(kernels::Backend& backend,
                                                              const XlnetSize& size, int64_t batch,
                                                              double dropout) {
    const ModelConfig model = ModelOf(size, dropout);
    ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                              MakeObjective("permutation_lm", model, SamplingOf(size)));
    const BatchShape shape = objective->Shape(batch);
    auto prepared = std::make_unique<PreparedStep>();
    ANYORDER_ASSIGN_OR_RETURN(prepared->transformer_,
                              Transformer::Create(model, size.vocab, shape, backend));
    for (int step = 0; step < kBatches; ++step)
      prepared->batches_.push_back(DrawBatch(*objective, size, batch, step));
    // Whether there is room for what a Step allocates, which ends the program otherwise.
    ANYORDER_RETURN_IF_ERROR(
        backend.Allocate(Step::Bytes(*prepared->transformer_, model, shape)).status());
    prepared->step_ = std::make_unique<Step>(backend, *prepared->transformer_, model, shape);
    return prepared;
  }

  // Seconds until the device is done.
  double Run() {
    const auto begin = std::chrono::steady_clock::now();
    loss_ = step_->Run(batches_[static_cast<size_t>(steps_ % kBatches)], steps_);
    ++steps_;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    return elapsed.count();
  }

  double loss() const { return loss_; }
  // Whether every step so far was one of training.
  absl::Status Check(const std::string& name) {
    if (std::isfinite(loss_) && step_->Updates() == steps_) return absl::OkStatus();
    return absl::DataLossError(absl::StrFormat(
        "%s: the loss is %g after %d updates in %d steps: this is no speed of training", name,
        loss_, step_->Updates(), steps_));
  }

 private:
  std::unique_ptr<Transformer> transformer_;
  std::vector<Batch> batches_;
  std::unique_ptr<Step> step_;
  int64_t steps_ = 0;
  double loss_ = 0;
};

std::string ShapeOf(const XlnetSize& size, int64_t batch) {
  return absl::StrFormat("B%d T%d M%d P%d", batch, size.length, size.memory, size.targets);
}

// The goals are for kGoalBatch.
std::string NameOf(const char* what, const XlnetSize& size, int64_t batch) {
  const std::string suffix = batch == kGoalBatch ? "" : absl::StrFormat("_b%d", batch);
  return absl::StrFormat("%s_%s%s", what, size.name, suffix);
}

void PrintStep(Bench& bench, const std::string& name, const XlnetSize& size, int64_t batch,
               const std::vector<double>& samples, double loss) {
  const auto [seconds, spread] = Summarise(samples);
  const double flops = CountFlops(size).total() * static_cast<double>(batch) / seconds;
  bench.Print(absl::StrFormat(
      "{\"name\": \"%s\", \"shape\": \"%s\", \"value\": %.6g, \"unit\": \"tokens/s\", \"ms\": "
      "%.4g, "
      "\"ms_a_lane\": %.4g, \"spread\": %.4f, \"samples\": %d, \"tflops\": %.4g, \"share_of_989\": "
      "%.4f, \"share_of_790\": %.4f, \"loss\": %.4f}",
      name, ShapeOf(size, batch), static_cast<double>(batch * size.length) / seconds, seconds * 1e3,
      seconds * 1e3 / static_cast<double>(batch), spread, samples.size(), flops * 1e-12,
      flops / kPeak, flops / kReachable, loss));
}

}  // namespace

absl::Status MeasureStep(Bench& bench, const XlnetSize& size, int64_t batch, double dropout) {
  const std::string name = NameOf("step", size, batch);
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<PreparedStep> step,
                            PreparedStep::Create(bench.backend(), size, batch, dropout));
  for (int i = 0; i < kWarmUp; ++i) step->Run();
  std::vector<double> seconds;
  for (int sample = 0; sample < bench.samples(); ++sample) seconds.push_back(step->Run());
  ANYORDER_RETURN_IF_ERROR(step->Check(name));
  PrintStep(bench, name, size, batch, seconds, step->loss());
  return absl::OkStatus();
}

absl::Status RunOneStep(Bench& bench, const XlnetSize& size, int64_t batch, double dropout,
                        const ProfilerMarks& marks) {
  const std::string name = NameOf("step_once", size, batch);
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<PreparedStep> step,
                            PreparedStep::Create(bench.backend(), size, batch, dropout));
  for (int i = 0; i < kWarmUp; ++i) step->Run();
  marks.begin();
  const double seconds = step->Run();
  marks.end();
  ANYORDER_RETURN_IF_ERROR(step->Check(name));
  PrintStep(bench, name, size, batch, {seconds}, step->loss());
  return absl::OkStatus();
}

}  // namespace anyorder::bench
