// "New York": what predicting targets in sequence gains over predicting them independently (XLNet,
// Yang et al. 2019, section 2.6), on text for which both are known in closed form (pair_text.h).
//
//   pair_bench [--objective permutation_lm|dae] [--seed N] [--steps N] [--every N] [--dim N]
//   [--layers N] [--lanes N]
//              [--seq-len N] [--firsts C] [--branches R] [--lr RATE] [--mask-token-prob P]
//              [--random-token-prob P]
//
// Prints one JSON object for each evaluation, on names that training never draws: nats a name for
// both members together, for the member that is predicted first and for the other. A permutation LM
// is also read `without_order`: every target sees the context only, which is independent prediction
// by the same weights. `dae` predicts independently; its input at a target is the mask with
// probability P (default 0.8), a random token (0.1), else the answer. The last line adds the closed
// forms; `bound` is the least expected joint NLL of the objective.

#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"

#include "core/base/status.h"
#include "core/objective/objective.h"
#include "tests/bench/learning/learner.h"
#include "tests/bench/learning/pair_text.h"
#include "tests/bench/learning/small_training.h"
#include "tests/bench/options.h"

namespace anyorder::bench {
namespace {

struct Options : TrainingOptions {
  std::string objective = "permutation_lm";
  int64_t eval_batches = 32;
  double mask_token_prob = 0.8;
  double random_token_prob = 0.1;
  PairText text;
};

// Training draws its text from other steps.
constexpr int64_t kFirstEvalStep = int64_t{1} << 40;

struct NameLosses {
  int64_t names = 0;
  double joint = 0;   // sums over names
  double sooner = 0;  // of the member that comes first in the order
  double later = 0;
};

class PairBench {
 public:
  static absl::Status Run(const Options& options) {
    PairBench bench(options);
    ANYORDER_RETURN_IF_ERROR(bench.SetUp());
    bench.Train();
    return absl::OkStatus();
  }

 private:
  explicit PairBench(const Options& options)
      : options_(options), sampling_(PairSampling(options.seq_len)) {
    sampling_.mask_token_prob = options.mask_token_prob;
    sampling_.random_token_prob = options.random_token_prob;
  }

  absl::Status SetUp() {
    if (options_.seq_len % 16 != 0 || options_.seq_len == 0 ||
        options_.text.branches > options_.text.firsts) {
      return absl::InvalidArgumentError(
          "--seq-len must be a multiple of 16, --branches at most --firsts");
    }
    ModelConfig model = SmallNetwork(options_.layers, options_.dim);
    model.segments = Segments::kRelative;
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

  void Train() {
    const OptimizerConfig optimizer = SmallOptimizer(options_.learning_rate, options_.steps);
    double loss = 0;
    for (int64_t step = 0; step < options_.steps; ++step) {
      if (step % options_.every == 0) Report(step, loss);
      Batch batch(objective_->Shape(options_.lanes));
      FillBatch(step, batch);
      loss = learner_->Step(batch, optimizer, options_.steps);
    }
    Report(options_.steps, loss);
  }

  void FillBatch(int64_t step, Batch& batch) const {
    for (int64_t lane = 0; lane < options_.lanes; ++lane) {
      objective_->BuildLane(options_.text.Draw(sampling_, options_.seed, lane, step), lane, batch);
    }
  }

  bool IsPermutation() const { return options_.objective == "permutation_lm"; }

  // Nobody sees a target's content: both halves' query rows are cut back to the lowest rank among
  // their half's rows.
  void ForgetOrder(Batch& batch) const {
    const BatchShape& shape = batch.shape;
    for (int64_t b = 0; b < shape.batch_size; ++b) {
      for (int64_t slot = 0; slot < shape.query_rows; ++slot) {
        const int64_t row = b * shape.query_rows + shape.batch_size * shape.content_rows + slot;
        const bool second_half = batch.row_pos[row] >= sampling_.reuse_len;
        batch.row_lim[row] = second_half ? static_cast<int32_t>(sampling_.reuse_len) + 1 : 0;
      }
    }
  }

  // Members of a name are neighbours among the readout entries, because both are targets and
  // entries go by position.
  void Add(const Batch& batch, NameLosses& sums) const {
    const std::vector<float>& losses = evaluator_->losses();
    for (size_t i = 0; i + 1 < losses.size(); i += 2) {
      ANYORDER_CHECK(batch.weights[i] == 1.0f && options_.text.IsFirst(batch.labels[i]) &&
                     options_.text.IsSecond(batch.labels[i + 1]))
          << "entries " << i << " and " << i + 1 << " are no name";
      const bool in_turn =
          batch.row_lim[batch.readout_rows[i]] <= batch.row_lim[batch.readout_rows[i + 1]];
      sums.joint += losses[i] + losses[i + 1];
      sums.sooner += in_turn ? losses[i] : losses[i + 1];
      sums.later += in_turn ? losses[i + 1] : losses[i];
      ++sums.names;
    }
  }

  void Report(int64_t step, double train_loss) {
    NameLosses ordered;
    NameLosses unordered;
    for (int64_t i = 0; i < options_.eval_batches; ++i) {
      Batch batch(objective_->Shape(options_.lanes));
      FillBatch(kFirstEvalStep + i, batch);
      evaluator_->Run(batch, learner_->weights());
      Add(batch, ordered);
      if (!IsPermutation()) continue;
      ForgetOrder(batch);
      evaluator_->Run(batch, learner_->weights());
      Add(batch, unordered);
    }
    const auto names = static_cast<double>(ordered.names);
    std::string line = absl::StrFormat(
        "{\"bench\": \"pair\", \"objective\": \"%s\", \"mask_token_prob\": %g, \"seed\": %d, "
        "\"step\": %d, "
        "\"train_loss\": %.5f, \"names\": %d, \"joint_nll\": %.5f",
        options_.objective, options_.mask_token_prob, options_.seed, step, train_loss,
        ordered.names, ordered.joint / names);
    if (IsPermutation()) {
      absl::StrAppendFormat(
          &line, ", \"sooner_nll\": %.5f, \"later_nll\": %.5f, \"without_order_joint_nll\": %.5f",
          ordered.sooner / names, ordered.later / names, unordered.joint / names);
    }
    if (step == options_.steps) {
      const PairText& text = options_.text;
      const double bound = IsPermutation() ? text.JointEntropy()
                                           : text.CorruptedEntropy(options_.mask_token_prob,
                                                                   options_.random_token_prob);
      absl::StrAppendFormat(&line,
                            ", \"final\": true, \"bound\": %.5f, \"joint_entropy\": %.5f, "
                            "\"sum_of_marginals\": %.5f, \"mutual_information\": %.5f",
                            bound, text.JointEntropy(), 2 * text.MarginalEntropy(),
                            text.MutualInformation());
    }
    std::cout << line << "}" << std::endl;
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
  ANYORDER_RETURN_IF_ERROR(
      ParseOptions(argc, argv,
                   options.With({{"--objective", &options.objective},
                                 {"--eval-batches", &options.eval_batches},
                                 {"--firsts", &options.text.firsts},
                                 {"--branches", &options.text.branches, 1},
                                 {"--mask-token-prob", &options.mask_token_prob},
                                 {"--random-token-prob", &options.random_token_prob}})));
  return PairBench::Run(options);
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("pair_bench", anyorder::bench::RunProgram(argc, argv));
}
