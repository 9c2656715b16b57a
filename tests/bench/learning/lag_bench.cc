// What recurrence memory lets a causal model see (Transformer-XL, Dai et al. 2019, section 3.2), on
// text whose only regularity is a copy at a known distance (lag_text.h): loss by position inside a
// segment, with memory and without.
//
//   lag_bench [--mem N] [--lag N] [--seq-len T] [--seed N] [--steps N] [--every N] [--dim N]
//   [--layers N] [--lanes N]
//             [--symbols V] [--copies P] [--lr RATE] [--positions relative|learned] [--longer 0|1]
//
// Where lag > T no target's source is in its segment: without memory the loss of every position
// stays at ln V. Where lag <= T the first lag - 1 targets of a segment have theirs in the segment
// before. Prints one JSON object for each evaluation, on fresh text; the last one has the closed
// forms and the loss of each position. With --longer the trained model is then evaluated with 1, 2,
// 4 and 8 times its memory: distances stay what they were, learned positions begin anew in each
// segment.

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/status.h"
#include "core/objective/objective.h"
#include "tests/bench/learning/lag_text.h"
#include "tests/bench/learning/learner.h"
#include "tests/bench/learning/small_training.h"
#include "tests/bench/options.h"

namespace anyorder::bench {
namespace {

struct Options : TrainingOptions {
  int64_t mem_len = 32;
  int64_t eval_steps = 32;
  std::string positions = "relative";
  int64_t longer = 0;
  LagText text;
};

// Evaluation reads other texts than training, of as many lanes.
constexpr uint64_t kEvalSeed = uint64_t{1} << 40;

class LagBench {
 public:
  static absl::Status Run(const Options& options) {
    LagBench bench(options);
    ANYORDER_RETURN_IF_ERROR(bench.SetUp());
    return bench.Train();
  }

 private:
  explicit LagBench(const Options& options) : options_(options) {}

  absl::Status SetUp() {
    if (options_.text.copies < 0 || options_.text.copies >= 1)
      return absl::InvalidArgumentError("--copies must be in [0, 1)");
    model_ = SmallNetwork(options_.layers, options_.dim);
    model_.mem_len = options_.mem_len;
    if (options_.positions == "learned") {
      model_.positions = Positions::kLearned;
      model_.max_positions = options_.seq_len;
    } else if (options_.positions != "relative") {
      return absl::InvalidArgumentError("--positions must be relative or learned");
    }
    sampling_.seq_len = options_.seq_len;
    sampling_.bidirectional = false;
    ANYORDER_ASSIGN_OR_RETURN(
        backend_, kernels::MakeCpuBackend({.num_threads = static_cast<int>(options_.threads)}));
    ANYORDER_ASSIGN_OR_RETURN(objective_, MakeObjective("causal_lm", model_, sampling_));
    ANYORDER_ASSIGN_OR_RETURN(
        learner_, Learner::Create(model_, options_.text.vocab_size(),
                                  objective_->Shape(options_.lanes), options_.seed, *backend_));
    return absl::OkStatus();
  }

  absl::Status Train() {
    const OptimizerConfig optimizer = SmallOptimizer(options_.learning_rate, options_.steps);
    double loss = 0;
    for (int64_t step = 0; step < options_.steps; ++step) {
      if (step % options_.every == 0) ANYORDER_RETURN_IF_ERROR(Report(step, loss));
      loss = learner_->Step(MakeBatch(*objective_, options_.seed, step), optimizer, options_.steps);
    }
    ANYORDER_RETURN_IF_ERROR(Report(options_.steps, loss));
    for (int64_t times = 1; options_.longer > 0 && times <= 8; times *= 2)
      ANYORDER_RETURN_IF_ERROR(ReportWithMemory(times * options_.mem_len));
    return absl::OkStatus();
  }

  Batch MakeBatch(const Objective& objective, uint64_t seed, int64_t step) const {
    Batch batch(objective.Shape(options_.lanes));
    for (int64_t lane = 0; lane < options_.lanes; ++lane)
      objective.BuildLane(options_.text.Segment(options_.seq_len, seed, lane, step), lane, batch);
    return batch;
  }

  // Mean loss of each position of a segment, over segments that have a whole lag and a whole memory
  // before them.
  absl::StatusOr<std::vector<double>> Evaluate(int64_t mem_len) {
    ModelConfig model = model_;
    model.mem_len = mem_len;
    ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective,
                              MakeObjective("causal_lm", model, sampling_));
    ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<MemoryRunner> runner,
                              MemoryRunner::Create(model, options_.text.vocab_size(),
                                                   objective->Shape(options_.lanes), *backend_));
    const int64_t first =
        (std::max(options_.text.lag, mem_len) + options_.seq_len - 1) / options_.seq_len;
    std::vector<double> sums(static_cast<size_t>(options_.seq_len));
    for (int64_t step = 0; step < first + options_.eval_steps; ++step) {
      runner->Run(MakeBatch(*objective, kEvalSeed + options_.seed, step), learner_->weights());
      if (step < first) continue;
      for (size_t i = 0; i < runner->losses().size(); ++i)
        sums[i % sums.size()] += runner->losses()[i];
    }
    for (double& sum : sums) sum /= static_cast<double>(options_.eval_steps * options_.lanes);
    return sums;
  }

  absl::Status ReportWithMemory(int64_t mem_len) {
    ANYORDER_ASSIGN_OR_RETURN(const std::vector<double> losses, Evaluate(mem_len));
    double mean = 0;
    for (const double loss : losses) mean += loss / static_cast<double>(losses.size());
    std::cout << absl::StrFormat(
                     "{\"bench\": \"lag_longer\", \"positions\": \"%s\", \"mem_len\": %d, "
                     "\"eval_mem_len\": %d, \"lag\": %d, \"seq_len\": %d, \"seed\": %d, "
                     "\"loss\": %.5f}",
                     options_.positions, options_.mem_len, mem_len, options_.text.lag,
                     options_.seq_len, options_.seed, mean)
              << std::endl;
    return absl::OkStatus();
  }

  absl::Status Report(int64_t step, double train_loss) {
    ANYORDER_ASSIGN_OR_RETURN(const std::vector<double> losses, Evaluate(options_.mem_len));
    double mean = 0;
    for (const double loss : losses) mean += loss / static_cast<double>(losses.size());
    std::string line = absl::StrFormat(
        "{\"bench\": \"lag\", \"mem_len\": %d, \"lag\": %d, \"seq_len\": %d, \"seed\": %d, "
        "\"step\": %d, \"train_loss\": %.5f, \"loss\": %.5f",
        options_.mem_len, options_.text.lag, options_.seq_len, options_.seed, step, train_loss,
        mean);
    if (step == options_.steps) {
      absl::StrAppendFormat(
          &line,
          ", \"final\": true, \"blind_entropy\": %.5f, \"informed_entropy\": %.5f, "
          "\"loss_by_position\": [%s]",
          options_.text.BlindEntropy(), options_.text.InformedEntropy(),
          absl::StrJoin(losses, ", ", [](std::string* out, double loss) {
            absl::StrAppendFormat(out, "%.4f", loss);
          }));
    }
    std::cout << line << "}" << std::endl;
    return absl::OkStatus();
  }

  Options options_;
  ModelConfig model_;
  SamplingConfig sampling_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<Learner> learner_;
};

absl::Status RunProgram(int argc, char** argv) {
  Options options;
  options.seq_len = 16;
  options.lanes = 32;
  ANYORDER_RETURN_IF_ERROR(ParseOptions(argc, argv,
                                        options.With({{"--mem", &options.mem_len},
                                                      {"--lag", &options.text.lag, 1},
                                                      {"--eval-steps", &options.eval_steps},
                                                      {"--symbols", &options.text.symbols, 2},
                                                      {"--copies", &options.text.copies},
                                                      {"--positions", &options.positions},
                                                      {"--longer", &options.longer}})));
  return LagBench::Run(options);
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("lag_bench", anyorder::bench::RunProgram(argc, argv));
}
