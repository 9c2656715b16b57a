// A whole training step: forward and backward of core/network, the gradient's norm and AdamW, on
// random text. The norm, clipping and whether to skip stay on the device; the step ends when the
// device is done, as the trainer's does.

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/status.h"
#include "tests/bench/gpu/cases.h"
#include "tests/bench/learner.h"
#include "tests/bench/options.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::bench {

ModelConfig ModelOf(const XlnetSize& size, double dropout) {
  ModelConfig model = {.num_layers = size.layers,
                       .model_dim = size.model_dim,
                       .num_heads = size.heads,
                       .head_dim = size.head_dim(),
                       .ffn_dim = size.ffn_dim,
                       .mem_len = size.memory};
  model.dropout = model.attention_dropout = dropout;
  model.dtype = ComputeType::kBFloat16;
  return model;
}

SamplingConfig SamplingOf(const XlnetSize& size) {
  return {.seq_len = size.length,
          .reuse_len = size.length / 2,
          .num_predict = size.targets,
          .perm_size = size.length / 2};
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
  const double flops = CountFlops(size) * static_cast<double>(batch) / seconds;
  bench.Print(absl::StrFormat(
      "{\"name\": \"%s\", \"shape\": \"%s\", \"value\": %.6g, \"unit\": \"tokens/s\", "
      "\"ms\": %.4g, \"ms_a_lane\": %.4g, \"spread\": %.4f, \"samples\": %d, \"tflops\": %.4g, "
      "\"share_of_989\": %.4f, \"share_of_790\": %.4f, \"loss\": %.4f}",
      name, ShapeOf(size, batch), static_cast<double>(batch * size.length) / seconds, seconds * 1e3,
      seconds * 1e3 / static_cast<double>(batch), spread, samples.size(), flops * 1e-12,
      flops / kPeak, flops / kReachable, loss));
}

}  // namespace

// Steps after some to get warm; each lasts until the device is done.
absl::Status MeasureStep(Bench& bench, const XlnetSize& size, int64_t batch, double dropout,
                         const ProfilerMarks* marks) {
  const int samples = marks != nullptr ? 1 : bench.samples();
  const std::string name = NameOf(marks != nullptr ? "step_once" : "step", size, batch);
  const ModelConfig model = ModelOf(size, dropout);
  ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                   MakeObjective("permutation_lm", model, SamplingOf(size)));
  ASSIGN_OR_RETURN(const std::unique_ptr<Learner> learner,
                   Learner::Create(model, size.vocab, objective->Shape(batch), /*seed=*/1,
                                   OptimizerConfig(), bench.backend()));
  std::vector<Batch> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(DrawBatch(*objective, size, batch, i));
  int64_t steps = 0;
  double loss = 0;
  const auto run = [&] {
    const Batch& next = batches[static_cast<size_t>(steps++ % kBatches)];
    return SecondsOf([&] { loss = learner->Step(next, /*learning_rate=*/1e-5); });
  };
  for (int i = 0; i < kWarmUp; ++i) run();
  std::vector<double> seconds;
  if (marks != nullptr) marks->begin();
  for (int sample = 0; sample < samples; ++sample) seconds.push_back(run());
  if (marks != nullptr) marks->end();
  const int64_t updates = learner->updates();
  if (!std::isfinite(loss) || updates != steps) {
    return absl::DataLossError(absl::StrFormat(
        "%s: the loss is %g after %d updates in %d steps: this is no speed of training", name, loss,
        updates, steps));
  }
  PrintStep(bench, name, size, batch, seconds, loss);
  return absl::OkStatus();
}

}  // namespace anyorder::bench
