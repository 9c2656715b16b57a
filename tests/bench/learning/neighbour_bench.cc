// What a masked language model learns that a causal one cannot (Devlin et al. 2019, section 1):
// tokens that are a function of both their neighbours (neighbour_text.h), predicted from the left
// alone and from both sides.
//
//   neighbour_bench [--objective gpt|bert] [--seed N] [--steps N] [--every N] [--dim N] [--layers
//   N] [--lanes N] [--seq-len N]
//                   [--symbols V] [--lr RATE]
//
// Prints one JSON object for each evaluation on fresh text: nats a target for odd tokens (functions
// of both neighbours) and for even ones, beside the least that the objective can reach on these
// very targets. `bert` hides 15 % of the tokens, all of them behind the mask.

#include <array>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/base/status.h"
#include "core/objective/objective.h"
#include "tests/bench/learning/learner.h"
#include "tests/bench/learning/neighbour_text.h"
#include "tests/bench/learning/small_training.h"
#include "tests/bench/options.h"

namespace anyorder::bench {
namespace {

struct Options : TrainingOptions {
  std::string objective = "bert";
  int64_t eval_batches = 16;
  NeighbourText text;
};

// Training draws its text from other steps.
constexpr int64_t kFirstEvalStep = int64_t{1} << 40;

// Of even [0] and odd [1] tokens.
struct Sums {
  std::array<double, 2> targets{}, loss{}, bound{};
};

class NeighbourBench {
 public:
  static absl::Status Run(const Options& options) {
    NeighbourBench bench(options);
    ANYORDER_RETURN_IF_ERROR(bench.SetUp());
    bench.Train();
    return absl::OkStatus();
  }

 private:
  explicit NeighbourBench(const Options& options) : options_(options) {}

  absl::Status SetUp() {
    if (options_.objective != "gpt" && options_.objective != "bert")
      return absl::InvalidArgumentError("--objective must be gpt or bert");
    sampling_.seq_len = options_.seq_len;
    sampling_.reuse_len = options_.seq_len / 2;
    sampling_.spans = SpanKind::kSingle;
    sampling_.num_predict = options_.seq_len;
    sampling_.bidirectional = false;
    // Relative positions: where the neighbours are is the same at every place.
    const ModelConfig model = SmallNetwork(options_.layers, options_.dim);
    ANYORDER_ASSIGN_OR_RETURN(
        backend_, kernels::MakeCpuBackend({.num_threads = static_cast<int>(options_.threads)}));
    ANYORDER_ASSIGN_OR_RETURN(objective_, MakeObjective(options_.objective, model, sampling_));
    const BatchShape shape = objective_->Shape(options_.lanes);
    const int64_t vocab_size = options_.text.vocab_size();
    ANYORDER_ASSIGN_OR_RETURN(learner_,
                              Learner::Create(model, vocab_size, shape, options_.seed, *backend_));
    ANYORDER_ASSIGN_OR_RETURN(evaluator_,
                              MemoryRunner::Create(model, vocab_size, shape, *backend_));
    return absl::OkStatus();
  }

  bool IsMasked() const { return options_.objective == "bert"; }

  TextSample Draw(int64_t lane, int64_t step) const {
    const auto seed = static_cast<uint64_t>(options_.seed);
    return IsMasked() ? options_.text.Masked(sampling_, seed, lane, step)
                      : options_.text.Window(sampling_, seed, lane, step);
  }

  Batch MakeBatch(int64_t step) const {
    Batch batch(objective_->Shape(options_.lanes));
    for (int64_t lane = 0; lane < options_.lanes; ++lane)
      objective_->BuildLane(Draw(lane, step), lane, batch);
    return batch;
  }

  void Train() {
    const OptimizerConfig optimizer = SmallOptimizer(options_.learning_rate, options_.steps);
    for (int64_t step = 0; step < options_.steps; ++step) {
      if (step % options_.every == 0) Report(step);
      learner_->Step(MakeBatch(step), optimizer, options_.steps);
    }
    Report(options_.steps);
  }

  // One target, token `place` of its text, with `unknown` symbols that nothing seen tells.
  void Add(int64_t place, int64_t unknown, double loss, Sums& sums) const {
    const auto parity = static_cast<size_t>(place % 2);
    sums.targets[parity] += 1;
    sums.loss[parity] += loss;
    sums.bound[parity] +=
        static_cast<double>(unknown) * std::log(static_cast<double>(options_.text.symbols));
  }

  void AddLane(const Batch& batch, int64_t b, int64_t step, Sums& sums) const {
    std::vector<uint8_t> hidden = Draw(b, step).is_masked;
    if (IsMasked()) hidden.pop_back();
    const std::vector<uint8_t> unknown = IsMasked() ? UnknownSymbols(hidden) : hidden;
    for (int64_t i = b * batch.shape.targets; i < (b + 1) * batch.shape.targets; ++i) {
      const int64_t slot = batch.readout_rows[i] - b * batch.shape.content_rows;
      const double loss = evaluator_->losses()[static_cast<size_t>(i)];
      if (IsMasked()) {  // CLS stands before the text
        Add(slot - 1, unknown[static_cast<size_t>(slot - 1)], loss, sums);
      } else {  // the token after the slot
        Add(slot + 1, (slot + 1) % 2, loss, sums);
      }
    }
  }

  void Report(int64_t step) {
    Sums sums;
    for (int64_t i = 0; i < options_.eval_batches; ++i) {
      const Batch batch = MakeBatch(kFirstEvalStep + i);
      evaluator_->Run(batch, learner_->weights());
      for (int64_t b = 0; b < options_.lanes; ++b) AddLane(batch, b, kFirstEvalStep + i, sums);
    }
    std::cout
        << absl::StrFormat(
               "{\"bench\": \"neighbour\", \"objective\": \"%s\", \"seed\": %d, \"step\": %d, "
               "\"odd_targets\": %.0f, \"odd_nll\": %.5f, \"odd_bound\": %.5f, "
               "\"even_nll\": %.5f, \"even_bound\": %.5f%s}",
               options_.objective, options_.seed, step, sums.targets[1],
               sums.loss[1] / sums.targets[1], sums.bound[1] / sums.targets[1],
               sums.loss[0] / sums.targets[0], sums.bound[0] / sums.targets[0],
               step == options_.steps ? ", \"final\": true" : "")
        << std::endl;
  }

  Options options_;
  SamplingConfig sampling_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<Learner> learner_;
  std::unique_ptr<MemoryRunner> evaluator_;
};

absl::Status RunProgram(int argc, char** argv) {
  Options options;
  options.steps = 1500;
  options.every = 250;
  ANYORDER_RETURN_IF_ERROR(ParseOptions(argc, argv,
                                        options.With({{"--objective", &options.objective},
                                                      {"--eval-batches", &options.eval_batches},
                                                      {"--symbols", &options.text.symbols, 2}})));
  return NeighbourBench::Run(options);
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("neighbour_bench", anyorder::bench::RunProgram(argc, argv));
}
