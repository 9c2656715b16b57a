// A whole training step: forward and backward of core/network, the gradient's norm and AdamW, on
// random text. The norm, clipping and whether to skip stay on the device; the step ends when the
// device is done, as the trainer's does.

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
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

// What a step is of.
struct StepCase {
  std::string name;
  std::string shape;
  ModelConfig model;
  int64_t vocab = 0;
  OptimizerConfig optimizer;
  int64_t lanes = 0;
  std::function<Batch(int64_t step)> draw;  // the microbatch of a step
};

struct StepTimes {
  std::vector<double> seconds;
  double loss = 0;
};

// Steps after some to get warm; each lasts until the device is done.
absl::StatusOr<StepTimes> TimeSteps(Bench& bench, const StepCase& what, const BatchShape& shape,
                                    const ProfilerMarks* marks) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Learner> learner,
      Learner::Create(what.model, what.vocab, shape, /*seed=*/1, what.optimizer, bench.backend()));
  std::vector<Batch> batches;
  for (int i = 0; i < kBatches; ++i) batches.push_back(what.draw(i));
  StepTimes times;
  int64_t steps = 0;
  const auto run = [&] {
    const Batch& next = batches[static_cast<size_t>(steps++ % kBatches)];
    return SecondsOf([&] { times.loss = learner->Step(next, /*learning_rate=*/1e-5); });
  };
  for (int i = 0; i < kWarmUp; ++i) run();
  if (marks != nullptr) marks->begin();
  const int samples = marks != nullptr ? 1 : bench.samples();
  for (int sample = 0; sample < samples; ++sample) times.seconds.push_back(run());
  if (marks != nullptr) marks->end();
  const int64_t updates = learner->updates();
  if (!std::isfinite(times.loss) || updates != steps) {
    return absl::DataLossError(absl::StrFormat(
        "%s: the loss is %g after %d updates in %d steps: this is no speed of training", what.name,
        times.loss, updates, steps));
  }
  return times;
}

// `more`: further members of the line, each with a comma before it.
void PrintStep(Bench& bench, const StepCase& what, int64_t tokens, const StepTimes& times,
               const std::string& more) {
  const auto [seconds, spread] = Summarise(times.seconds);
  bench.Print(absl::StrFormat(
      "{\"name\": \"%s\", \"shape\": \"%s\", \"value\": %.6g, \"unit\": \"tokens/s\", "
      "\"ms\": %.4g, \"ms_a_lane\": %.4g, \"spread\": %.4f, \"samples\": %d, \"loss\": %.4f%s}",
      what.name, what.shape, static_cast<double>(tokens) / seconds, seconds * 1e3,
      seconds * 1e3 / static_cast<double>(what.lanes), spread, times.seconds.size(), times.loss,
      more));
}

std::string ShapeOf(const XlnetSize& size, int64_t batch) {
  return absl::StrFormat("B%d T%d M%d P%d", batch, size.length, size.memory, size.targets);
}

// The goals are for kGoalBatch.
std::string NameOf(const char* what, const XlnetSize& size, int64_t batch) {
  const std::string suffix = batch == kGoalBatch ? "" : absl::StrFormat("_b%d", batch);
  return absl::StrFormat("%s_%s%s", what, size.name, suffix);
}

const char* PrefixOf(const ProfilerMarks* marks) { return marks != nullptr ? "step_once" : "step"; }

}  // namespace

absl::Status MeasureStep(Bench& bench, const XlnetSize& size, int64_t batch, double dropout,
                         const ProfilerMarks* marks) {
  const ModelConfig model = ModelOf(size, dropout);
  ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                   MakeObjective("permutation_lm", model, SamplingOf(size)));
  const StepCase what{
      .name = NameOf(PrefixOf(marks), size, batch),
      .shape = ShapeOf(size, batch),
      .model = model,
      .vocab = size.vocab,
      .lanes = batch,
      .draw = [&](int64_t step) { return DrawBatch(*objective, size, batch, step); }};
  ASSIGN_OR_RETURN(const StepTimes times, TimeSteps(bench, what, objective->Shape(batch), marks));
  const double flops =
      CountFlops(size) * static_cast<double>(batch) / Summarise(times.seconds).seconds;
  PrintStep(bench, what, batch * size.length, times,
            absl::StrFormat(", \"tflops\": %.4g, \"share_of_989\": %.4f, \"share_of_790\": %.4f",
                            flops * 1e-12, flops / kPeak, flops / kReachable));
  return absl::OkStatus();
}

absl::Status MeasureStep(Bench& bench, const std::string& name, const RunConfig& config,
                         int64_t vocab, const ProfilerMarks* marks) {
  const int64_t lanes = config.train.micro_batch_size;
  ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective, MakeObjective(config));
  std::vector<int64_t> numbers(static_cast<size_t>(lanes));
  std::iota(numbers.begin(), numbers.end(), 0);
  const std::vector<bool> backward(numbers.size(), false);
  const StepCase what{
      .name = absl::StrCat(PrefixOf(marks), "_", name),
      .shape = absl::StrFormat("B%d T%d V%d", lanes, config.sampling.seq_len, vocab),
      .model = config.TrainedModel(),
      .vocab = vocab,
      .optimizer = config.optimizer,
      .lanes = lanes,
      .draw = [&](int64_t step) {
        return testing::RandomBatch(*objective, config.sampling, vocab, numbers, backward, step);
      }};
  ASSIGN_OR_RETURN(const StepTimes times, TimeSteps(bench, what, objective->Shape(lanes), marks));
  PrintStep(bench, what, lanes * config.sampling.seq_len, times, "");
  return absl::OkStatus();
}

}  // namespace anyorder::bench
