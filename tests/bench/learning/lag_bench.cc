// What recurrence memory lets a causal model see (Transformer-XL, Dai et al. 2019, section 3.2), on
// text whose only regularity is a copy at a known distance (LagText): loss by position inside a
// segment, with memory and without.
//
//   lag_bench [--mem N] [--lag N] [--seq-len T] [--seed N] [--steps N] [--every N] [--dim N]
//             [--layers N] [--lanes N] [--symbols V] [--lr RATE] [--positions relative|learned]
//             [--longer 0|1]
//
// Where lag > T no target's source is in its segment: without memory the loss of every position
// stays at ln V. Where lag <= T the first lag - 1 targets of a segment have theirs in the segment
// before. Prints one JSON object for each evaluation, on fresh text; the last one has the closed
// forms and the loss of each position. With --longer the trained model is then evaluated with 1, 2,
// 4 and 8 times its memory: distances stay what they were, learned positions begin anew in each
// segment.

#include <cmath>
#include <iostream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/philox.h"
#include "core/base/status.h"
#include "tests/bench/learning/experiment.h"

namespace anyorder::bench {
namespace {

// Text in which the only regularity is a copy at a known distance, so that what any model can reach
// is known in closed form.
//
// x(t) = x(t - lag) with probability p, else uniform over V symbols; the first `lag` symbols are
// uniform. A stationary process: any `lag` consecutive symbols are independent and uniform, so
//   a model that does not see x(t - lag):  loss >= ln V
//   a model that sees it: loss >= H = -m ln m - (1 - m) ln((1 - m) / (V - 1)), m = p + (1 - p) / V
struct LagText {
  int64_t symbols = 32;  // V
  int64_t lag = 24;
  double copies = 0.8;  // p

  int64_t vocab_size() const { return kFirstId + symbols; }
  // ln V and H.
  double BlindEntropy() const { return std::log(static_cast<double>(symbols)); }
  double InformedEntropy() const {
    const auto size = static_cast<double>(symbols);
    const double match = copies + (1 - copies) / size;
    return -match * std::log(match) - (1 - match) * std::log((1 - match) / (size - 1));
  }

  // The symbol at `position` of the text of `lane`: a pure function. About 1 / (1 - p) draws.
  int32_t Token(uint64_t seed, int64_t lane, int64_t position) const {
    for (;; position -= lag) {
      RandomStream random(seed, RandomPurpose::kPairs, static_cast<uint64_t>(position),
                          static_cast<uint64_t>(lane));
      if (position < lag || random.Uniform() >= copies)
        return kFirstId + static_cast<int32_t>(random.Below(static_cast<uint32_t>(symbols)));
    }
  }

  // Tokens [step * seq_len, (step + 1) * seq_len) and the one after each.
  TextSample Segment(int64_t seq_len, uint64_t seed, int64_t lane, int64_t step) const {
    TextSample sample = {.lane = lane, .step = step};
    sample.segment.assign(static_cast<size_t>(seq_len), 0);
    for (int64_t slot = 0; slot <= seq_len; ++slot) {
      const int32_t token = Token(seed, lane, step * seq_len + slot);
      if (slot < seq_len) sample.tokens.push_back(token);
      if (slot > 0) sample.next_tokens.push_back(token);
    }
    return sample;
  }
};

struct Options : ExperimentOptions {
  int64_t mem_len = 32;
  std::string positions = "relative";
  int64_t longer = 0;
  LagText text;
};

// Evaluation reads other texts than training, of as many lanes.
constexpr uint64_t kEvalSeed = uint64_t{1} << 40;

double Mean(const std::vector<double>& values) {
  double mean = 0;
  for (const double value : values) mean += value / static_cast<double>(values.size());
  return mean;
}

class LagBench final : public Experiment {
 public:
  explicit LagBench(const Options& options)
      : Experiment(options, options.text.vocab_size()), options_(options) {
    model_.mem_len = options.mem_len;
    if (options.positions == "relative") return;
    model_.positions = Positions::kLearned;
    model_.max_positions = options.seq_len;
  }

 private:
  TextSample Draw(uint64_t seed, int64_t lane, int64_t step) const override {
    return options_.text.Segment(options_.seq_len, seed, lane, step);
  }

  // Mean loss of each position of a segment, over segments that have a whole lag and a whole memory
  // before them.
  absl::StatusOr<std::vector<double>> Evaluate(int64_t mem_len) {
    ModelConfig model = model_;
    model.mem_len = mem_len;
    ASSIGN_OR_RETURN(const std::unique_ptr<Objective> objective, ObjectiveOf(model));
    ASSIGN_OR_RETURN(MemoryRunner runner, MakeEvaluator(model, *objective));
    const int64_t first =
        (std::max(options_.text.lag, mem_len) + options_.seq_len - 1) / options_.seq_len;
    std::vector<double> sums(static_cast<size_t>(options_.seq_len));
    for (int64_t step = 0; step < first + options_.eval_batches; ++step) {
      runner.Run(MakeBatch(*objective, kEvalSeed + options_.seed, step), learner_->weights());
      if (step < first) continue;
      for (size_t i = 0; i < runner.losses().size(); ++i)
        sums[i % sums.size()] += runner.losses()[i];
    }
    for (double& sum : sums) sum /= static_cast<double>(options_.eval_batches * options_.lanes);
    return sums;
  }

  absl::Status ReportWithMemory(int64_t mem_len) {
    ASSIGN_OR_RETURN(const std::vector<double> losses, Evaluate(mem_len));
    std::cout << absl::StrFormat(
                     "{\"bench\": \"lag_longer\", \"positions\": \"%s\", \"mem_len\": %d, "
                     "\"eval_mem_len\": %d, \"lag\": %d, \"seq_len\": %d, \"seed\": %d, "
                     "\"loss\": %.5f}",
                     options_.positions, options_.mem_len, mem_len, options_.text.lag,
                     options_.seq_len, options_.seed, Mean(losses))
              << std::endl;
    return absl::OkStatus();
  }

  absl::Status Report(int64_t step, double train_loss) override {
    ASSIGN_OR_RETURN(const std::vector<double> losses, Evaluate(options_.mem_len));
    std::string line = absl::StrFormat(
        "{\"bench\": \"lag\", \"mem_len\": %d, \"lag\": %d, \"seq_len\": %d, \"seed\": %d, "
        "\"step\": %d, \"train_loss\": %.5f, \"loss\": %.5f",
        options_.mem_len, options_.text.lag, options_.seq_len, options_.seed, step, train_loss,
        Mean(losses));
    if (IsLast(step)) {
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
    for (int64_t times = 1; options_.longer > 0 && IsLast(step) && times <= 8; times *= 2)
      RETURN_IF_ERROR(ReportWithMemory(times * options_.mem_len));
    return absl::OkStatus();
  }

  Options options_;
};

absl::Status RunProgram(int argc, char** argv) {
  Options options;
  options.objective = "causal_lm";
  options.seq_len = 16;
  options.lanes = 32;
  RETURN_IF_ERROR(options.Parse(argc, argv,
                                {{"--mem", &options.mem_len},
                                 {"--lag", &options.text.lag, 1},
                                 {"--eval-steps", &options.eval_batches},
                                 {"--symbols", &options.text.symbols, 2},
                                 {"--positions", &options.positions},
                                 {"--longer", &options.longer}}));
  if (options.positions != "learned" && options.positions != "relative")
    return absl::InvalidArgumentError("--positions must be relative or learned");
  return LagBench(options).Run();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("lag_bench", anyorder::bench::RunProgram(argc, argv));
}
