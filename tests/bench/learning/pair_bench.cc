// "New York" and "Thom Yorke": what predicting targets in sequence gains over predicting them
// independently (XLNet, Yang et al. 2019, section 2.6), and which dependencies one order leaves out
// (appendix A.5), on text for which both are known in closed form (PairText).
//
//   pair_bench [--objective permutation_lm|dae|gpt] [--seed N] [--steps N] [--every N] [--dim N]
//              [--layers N] [--lanes N] [--seq-len N] [--firsts C] [--branches R] [--lr RATE]
//              [--mask-token-prob P] [--random-token-prob P]
//
// Prints one JSON object for each evaluation, on names that training never draws: nats a name for
// both members together, and for each member by whether its prediction sees the other one. `gpt`
// reads names from the left, and never predicts the first member from the second. A permutation LM
// is also read `without_order`: every target sees the context only, which is independent prediction
// by the same weights. `dae` predicts independently; its input at a target is the mask with
// probability P (default 0.8), a random token (0.1), else the answer. The last line adds the closed
// forms; `bound` is the least expected joint NLL of the objective.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"
#include "core/objective/masked_lm.h"
#include "tests/bench/learning/experiment.h"

namespace anyorder::bench {
namespace {

// Text of two-token names ("New York") whose members are jointly random, so that what any model can
// reach is known in closed form.
//
// A name is (first member a, second member b): a uniform over C tokens, b uniform over r tokens
// that depend on a, and every b belongs to r firsts. So H(a) = H(b) = ln C, H(b | a) = H(a | b) =
// ln r, and names are independent of each other:
//   in sequence (marginal + conditional):   H(a, b)      = ln C + ln r
//   each by itself (sum of marginals):      H(a) + H(b)  = 2 ln C
//   the gap is the mutual information:      I(a; b)      = ln C - ln r
struct PairText {
  int64_t firsts = 64;   // C
  int64_t branches = 4;  // r <= C

  int64_t vocab_size() const { return kFirstId + 2 * firsts; }
  bool IsFirst(int32_t id) const { return id >= kFirstId && id < kFirstId + firsts; }
  bool IsSecond(int32_t id) const { return id >= kFirstId + firsts && id < vocab_size(); }

  // Of either member, and of both.
  double MarginalEntropy() const { return std::log(static_cast<double>(firsts)); }
  double JointEntropy() const {
    return MarginalEntropy() + std::log(static_cast<double>(branches));
  }

  // Least expected loss of both members, each predicted by itself, when the text shows them
  // corrupted as a denoising objective does: every target is the mask with probability `mask_rate`,
  // any of the vocabulary's tokens with `random_rate`, else itself. The targets that were left as
  // they are, and partners that were, give part of the answer away; so it lies below 2 ln C, and
  // equals it for mask_rate = 1.
  double CorruptedEntropy(double mask_rate, double random_rate) const;

  // [names][names SEP names SEP SEP CLS]. Of every four names of a half one is a target in both
  // members; the orders are uniformly random; input_tokens are corrupted at targets. One SEP more
  // than usual, since names need an even number of slots. `sampling` is PairBench's.
  TextSample Draw(const SamplingConfig& sampling, uint64_t seed, int64_t lane, int64_t step) const;
};

constexpr int64_t kNamesPerTarget = 4;

// SEP in the middle and SEP, SEP, CLS at the end: the rest of a half is names.
void PlaceFunctional(int64_t half, TextSample& sample) {
  const int64_t names = (half - 4) / 2;
  const int64_t middle = half + names / 2 * 2;
  const int64_t size = 2 * half;
  for (const int64_t slot : {middle, size - 3, size - 2, size - 1}) {
    sample.is_functional[slot] = 1;
    sample.tokens[slot] = slot == size - 1 ? kClassId : kSeparatorId;
  }
  for (int64_t slot = middle + 1; slot < size; ++slot)
    sample.segment[slot] = slot == size - 1 ? 2 : 1;
}

double XLogX(double x) { return x > 0 ? x * std::log(x) : 0.0; }

// By symmetry the entropy of one member is enough. What is seen: the member's own slot shows s, its
// partner's slot t. Given member x and partner y, each of r for x:
//   P(s | x) = mask_rate [s = mask] + random_rate / V + kept_rate [s = x], and likewise P(t | y).
double PairText::CorruptedEntropy(double mask_rate, double random_rate) const {
  const double kept_rate = 1.0 - mask_rate - random_rate;
  const double noise = random_rate / static_cast<double>(vocab_size());
  const int64_t mask = firsts;       // symbols 0..C-1: members; C: the mask
  const int64_t other = firsts + 1;  // any other token of the vocabulary: all tell equally little
  const auto num_other = static_cast<double>(vocab_size() - firsts - 1);
  const auto seen = [&](int64_t symbol, int64_t member) {
    if (symbol == mask) return mask_rate + noise;
    if (symbol == other) return num_other * noise;
    return noise + (symbol == member ? kept_rate : 0.0);
  };
  double entropy = 0;
  for (int64_t s = 0; s <= other; ++s) {
    for (int64_t t = 0; t <= other; ++t) {
      double total = 0;
      for (int64_t x = 0; x < firsts; ++x) {
        double partner = 0;
        for (int64_t k = 0; k < branches; ++k)
          partner += seen(t, (x + k) % firsts) / static_cast<double>(branches);
        const double joint = seen(s, x) * partner / static_cast<double>(firsts);
        entropy -= XLogX(joint);
        total += joint;
      }
      entropy += XLogX(total);
    }
  }
  return 2 * entropy;
}

TextSample PairText::Draw(const SamplingConfig& sampling, uint64_t seed, int64_t lane,
                          int64_t step) const {
  const int64_t half = sampling.reuse_len;
  ANYORDER_CHECK(half % (2 * kNamesPerTarget) == 0) << "half of " << half << " slots";
  const auto size = static_cast<size_t>(sampling.seq_len);
  TextSample sample = {.lane = lane, .step = step};
  sample.tokens.resize(size);
  sample.segment.resize(size);
  sample.is_masked.resize(size);
  sample.is_functional.resize(size);
  sample.order.resize(size);
  PlaceFunctional(half, sample);

  RandomStream text(seed, RandomPurpose::kPairs, step, lane);
  RandomStream masks(seed, RandomPurpose::kSpans, step, lane);
  RandomStream orders(seed, RandomPurpose::kPermutation, step, lane);
  for (const int64_t begin : {int64_t{0}, half}) {
    std::vector<int64_t> names;  // first slots
    for (int64_t slot = begin; slot < begin + half; ++slot) {
      if (sample.is_functional[slot] != 0) continue;
      names.push_back(slot);
      const auto first = static_cast<int64_t>(text.Below(static_cast<uint32_t>(firsts)));
      const auto branch = static_cast<int64_t>(text.Below(static_cast<uint32_t>(branches)));
      sample.tokens[slot] = static_cast<int32_t>(kFirstId + first);
      sample.tokens[++slot] = static_cast<int32_t>(kFirstId + firsts + (first + branch) % firsts);
    }
    const std::vector<int32_t> chosen = DrawOrder(static_cast<int64_t>(names.size()), masks);
    for (int64_t i = 0; i < half / (2 * kNamesPerTarget); ++i) {
      sample.is_masked[names[chosen[i]]] = 1;
      sample.is_masked[names[chosen[i]] + 1] = 1;
    }
    const std::vector<int32_t> order = DrawOrder(half, orders);
    std::copy(order.begin(), order.end(), sample.order.begin() + begin);
  }
  RandomStream corruption(seed, RandomPurpose::kCorruption, step, lane);
  sample.input_tokens = sample.tokens;
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (sample.is_masked[i] == 0) continue;
    sample.input_tokens[i] =
        Corrupted(sample.tokens[i], sampling, {.mask = kMaskId, .size = vocab_size()}, corruption);
  }
  return sample;
}

struct Options : ExperimentOptions {
  double mask_token_prob = 0.8;
  double random_token_prob = 0.1;
  PairText text;
};

struct MemberLosses {
  int64_t count = 0;
  double sum = 0;

  void Add(double loss) {
    ++count;
    sum += loss;
  }
};

// By whether the prediction of a member sees the other one.
struct NameLosses {
  MemberLosses first_alone, second_alone, first_given_second, second_given_first;

  int64_t names() const { return first_alone.count + first_given_second.count; }
  double Joint() const {
    return (first_alone.sum + second_alone.sum + first_given_second.sum + second_given_first.sum) /
           static_cast<double>(names());
  }
};

class PairBench final : public Experiment {
 public:
  // Sequences of a multiple of 16 slots, so that targets come in pairs in both halves.
  explicit PairBench(const Options& options)
      : Experiment(options, options.text.vocab_size()), options_(options) {
    model_.segments = Segments::kRelative;
    sampling_.reuse_len = options.seq_len / 2;
    sampling_.perm_size = options.seq_len / 2;
    sampling_.num_predict = options.seq_len / kNamesPerTarget;
    sampling_.mask_fraction = 1.0 / kNamesPerTarget;
    sampling_.mask_token_prob = options.mask_token_prob;
    sampling_.random_token_prob = options.random_token_prob;
  }

 private:
  TextSample Draw(uint64_t seed, int64_t lane, int64_t step) const override {
    TextSample sample = options_.text.Draw(sampling_, seed, lane, step);
    if (IsCausal()) {
      sample.next_tokens.assign(sample.tokens.begin() + 1, sample.tokens.end());
      sample.next_tokens.push_back(kSeparatorId);
    }
    return sample;
  }

  bool IsPermutation() const { return options_.objective == "permutation_lm"; }
  bool IsCausal() const { return options_.objective == "gpt"; }

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

  // Members of a name are neighbours among the readout entries, because both are targets (of `gpt`
  // all tokens are, but the first of a lane) and entries go by position. The one whose row sees
  // higher ranks sees the other; rows of `dae` all see the same.
  void Add(const Batch& batch, const std::vector<float>& losses, NameLosses& sums) const {
    for (size_t i = 0; i + 1 < losses.size(); ++i) {
      if (!options_.text.IsFirst(batch.labels[i])) continue;
      ANYORDER_CHECK(batch.weights[i] == 1.0f && options_.text.IsSecond(batch.labels[i + 1]))
          << "entries " << i << " and " << i + 1 << " are no name";
      const int32_t first = batch.row_lim[batch.readout_rows[i]];
      const int32_t second = batch.row_lim[batch.readout_rows[i + 1]];
      (first > second ? sums.first_given_second : sums.first_alone).Add(losses[i]);
      (second > first ? sums.second_given_first : sums.second_alone).Add(losses[i + 1]);
    }
  }

  static void AppendMembers(const NameLosses& sums, std::string& line) {
    for (const auto& [name, losses] : {std::pair{"first_alone", sums.first_alone},
                                       {"second_alone", sums.second_alone},
                                       {"first_given_second", sums.first_given_second},
                                       {"second_given_first", sums.second_given_first}}) {
      if (losses.count > 0)
        absl::StrAppendFormat(&line, ", \"%s_nll\": %.5f", name,
                              losses.sum / static_cast<double>(losses.count));
    }
  }

  absl::Status Report(int64_t step, double train_loss) override {
    ASSIGN_OR_RETURN(MemoryRunner evaluator, MakeEvaluator(model_, *objective_));
    NameLosses ordered;
    NameLosses unordered;
    for (int64_t i = 0; i < options_.eval_batches; ++i) {
      Batch batch = MakeBatch(*objective_, options_.seed, kFirstEvalStep + i);
      evaluator.Run(batch, learner_->weights());
      Add(batch, evaluator.losses(), ordered);
      if (!IsPermutation()) continue;
      ForgetOrder(batch);
      evaluator.Run(batch, learner_->weights());
      Add(batch, evaluator.losses(), unordered);
    }
    std::string line = absl::StrFormat(
        "{\"bench\": \"pair\", \"objective\": \"%s\", \"mask_token_prob\": %g, \"seed\": %d, "
        "\"step\": %d, \"train_loss\": %.5f, \"names\": %d, \"joint_nll\": %.5f",
        options_.objective, options_.mask_token_prob, options_.seed, step, train_loss,
        ordered.names(), ordered.Joint());
    AppendMembers(ordered, line);
    if (IsPermutation())
      absl::StrAppendFormat(&line, ", \"without_order_joint_nll\": %.5f", unordered.Joint());
    if (IsLast(step)) {
      const PairText& text = options_.text;
      const double bound =
          options_.objective != "dae"
              ? text.JointEntropy()
              : text.CorruptedEntropy(options_.mask_token_prob, options_.random_token_prob);
      absl::StrAppendFormat(&line,
                            ", \"final\": true, \"bound\": %.5f, \"joint_entropy\": %.5f, "
                            "\"sum_of_marginals\": %.5f, \"mutual_information\": %.5f",
                            bound, text.JointEntropy(), 2 * text.MarginalEntropy(),
                            2 * text.MarginalEntropy() - text.JointEntropy());
    }
    std::cout << line << "}" << std::endl;
    return absl::OkStatus();
  }

  Options options_;
};

absl::Status RunProgram(int argc, char** argv) {
  Options options;
  options.objective = "permutation_lm";
  RETURN_IF_ERROR(options.Parse(argc, argv,
                                {{"--objective", &options.objective},
                                 {"--eval-batches", &options.eval_batches},
                                 {"--firsts", &options.text.firsts},
                                 {"--branches", &options.text.branches, 1},
                                 {"--mask-token-prob", &options.mask_token_prob},
                                 {"--random-token-prob", &options.random_token_prob}}));
  if (options.seq_len % 16 != 0 || options.seq_len == 0 ||
      options.text.branches > options.text.firsts) {
    return absl::InvalidArgumentError(
        "--seq-len must be a multiple of 16, --branches at most --firsts");
  }
  return PairBench(options).Run();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("pair_bench", anyorder::bench::RunProgram(argc, argv));
}
