// What a masked language model learns that a causal one cannot (Devlin et al. 2019, section 1):
// tokens that are a function of both their neighbours (NeighbourText), predicted from the left
// alone and from both sides.
//
//   neighbour_bench [--objective gpt|bert] [--seed N] [--steps N] [--every N] [--dim N]
//                   [--layers N] [--lanes N] [--seq-len N] [--symbols V] [--lr RATE]
//
// Prints one JSON object for each evaluation on fresh text: nats a target for odd tokens (functions
// of both neighbours) and for even ones, beside the least that the objective can reach on these
// very targets. `bert` hides 15 % of the tokens, all of them behind the mask.

#include <array>
#include <cmath>
#include <iostream>

#include "absl/strings/str_format.h"

#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"
#include "data/sampling/sample_draws.h"
#include "tests/bench/learning/experiment.h"

namespace anyorder::bench {
namespace {

// Text in which every second token is a function of both its neighbours, so that what can be
// reached from one side and from both is known in closed form.
//
// Even tokens are independent and uniform over V symbols; an odd one is the pair of its neighbours,
// one of V * V symbols.
//   read from left to right: an odd token costs ln V (its left neighbour is known, its right one
//   not yet);
//                             the even token after it costs 0: the pair names it
//   read from both sides: a hidden token costs ln V for each symbol in it that nothing seen tells
//   (UnknownSymbols)
struct NeighbourText {
  int64_t symbols = 8;  // V

  int64_t vocab_size() const { return kFirstId + symbols * (1 + symbols); }

  // SampleKind::kContiguous, the first token even.
  TextSample Window(const SamplingConfig& sampling, uint64_t seed, int64_t lane,
                    int64_t step) const {
    TextSample sample = Tokens(sampling.seq_len + 1, seed, lane, step);
    sample.next_tokens.assign(sample.tokens.begin() + 1, sample.tokens.end());
    sample.tokens.pop_back();
    sample.segment.assign(sample.tokens.size(), 0);
    return sample;
  }

  // SampleKind::kMaskedPairs: seq_len - 1 tokens, the first even, and CLS; BERT's targets, all of
  // them hidden behind `<mask>`.
  TextSample Masked(const SamplingConfig& sampling, uint64_t seed, int64_t lane,
                    int64_t step) const {
    TextSample sample = Tokens(sampling.seq_len - 1, seed, lane, step);
    const auto size = static_cast<int64_t>(sample.tokens.size());
    sample.tokens.push_back(kClassId);
    sample.segment.assign(sample.tokens.size(), 0);
    sample.is_masked.assign(sample.tokens.size(), 0);
    sample.is_functional.assign(sample.tokens.size(), 0);
    sample.is_functional.back() = 1;
    sample.input_tokens = sample.tokens;
    RandomStream masks(seed, RandomPurpose::kSpans, step, lane);
    const std::vector<int32_t> order = DrawOrder(size, masks);
    for (int64_t i = 0; i < sampling.NumTargets(SampleKind::kMaskedPairs); ++i) {
      sample.is_masked[order[i]] = 1;
      sample.input_tokens[order[i]] = kMaskId;
    }
    return sample;
  }

 private:
  TextSample Tokens(int64_t size, uint64_t seed, int64_t lane, int64_t step) const {
    TextSample sample = {.lane = lane, .step = step};
    std::vector<int32_t>& values = sample.tokens;
    RandomStream random(seed, RandomPurpose::kPairs, step, lane);
    values.resize(static_cast<size_t>(size + 2));
    for (size_t i = 0; i < values.size(); i += 2)
      values[i] = static_cast<int32_t>(random.Below(static_cast<uint32_t>(symbols)));
    for (size_t i = 1; i + 1 < values.size(); i += 2)
      values[i] = static_cast<int32_t>(symbols + values[i - 1] * symbols + values[i + 1]);
    values.resize(static_cast<size_t>(size));
    for (int32_t& value : values) value += kFirstId;
    return sample;
  }
};

// Of tokens, the first of them even, of which those with `hidden` are not seen: how many of a
// hidden token's symbols (one of an even token, two of an odd one) are told neither by an even
// token nor by a pair that is seen; 0 for tokens that are seen. Those symbols are independent and
// uniform, so a token's entropy is their number times ln V.
std::vector<uint8_t> UnknownSymbols(const std::vector<uint8_t>& hidden) {
  const size_t size = hidden.size();
  // The symbol of an even place, which may lie one behind the last token.
  const auto is_unknown = [&](size_t even) -> int {
    const bool seen = even < size && hidden[even] == 0;
    const bool told_before = even > 0 && hidden[even - 1] == 0;
    const bool told_after = even + 1 < size && hidden[even + 1] == 0;
    return !seen && !told_before && !told_after;
  };
  std::vector<uint8_t> unknown(size, 0);
  for (size_t i = 0; i < size; ++i) {
    if (hidden[i] == 0) continue;
    unknown[i] =
        static_cast<uint8_t>(i % 2 == 0 ? is_unknown(i) : is_unknown(i - 1) + is_unknown(i + 1));
  }
  return unknown;
}

struct Options : ExperimentOptions {
  NeighbourText text;
};

// Of even [0] and odd [1] tokens.
struct Sums {
  std::array<double, 2> targets{}, loss{}, bound{};
};

// Relative positions: where the neighbours are is the same at every place.
class NeighbourBench final : public Experiment {
 public:
  explicit NeighbourBench(const Options& options)
      : Experiment(options, options.text.vocab_size()), options_(options) {
    sampling_.reuse_len = options_.seq_len / 2;
    sampling_.spans = SpanKind::kSingle;
    sampling_.num_predict = options_.seq_len;
  }

 private:
  bool IsMasked() const { return options_.objective == "bert"; }

  TextSample Draw(uint64_t seed, int64_t lane, int64_t step) const override {
    return IsMasked() ? options_.text.Masked(sampling_, seed, lane, step)
                      : options_.text.Window(sampling_, seed, lane, step);
  }

  // One target, token `place` of its text, with `unknown` symbols that nothing seen tells.
  void Add(int64_t place, int64_t unknown, double loss, Sums& sums) const {
    const auto parity = static_cast<size_t>(place % 2);
    sums.targets[parity] += 1;
    sums.loss[parity] += loss;
    sums.bound[parity] +=
        static_cast<double>(unknown) * std::log(static_cast<double>(options_.text.symbols));
  }

  void AddLane(const Batch& batch, const std::vector<float>& losses, int64_t b, int64_t step,
               Sums& sums) const {
    std::vector<uint8_t> hidden = Draw(options_.seed, b, step).is_masked;
    if (IsMasked()) hidden.pop_back();
    const std::vector<uint8_t> unknown = IsMasked() ? UnknownSymbols(hidden) : hidden;
    for (int64_t i = b * batch.shape.targets; i < (b + 1) * batch.shape.targets; ++i) {
      const int64_t slot = batch.readout_rows[i] - b * batch.shape.content_rows;
      const double loss = losses[static_cast<size_t>(i)];
      if (IsMasked()) {  // CLS stands before the text
        Add(slot - 1, unknown[static_cast<size_t>(slot - 1)], loss, sums);
      } else {  // the token after the slot
        Add(slot + 1, (slot + 1) % 2, loss, sums);
      }
    }
  }

  absl::Status Report(int64_t step, double) override {
    ASSIGN_OR_RETURN(MemoryRunner evaluator, MakeEvaluator(model_, *objective_));
    Sums sums;
    for (int64_t i = 0; i < options_.eval_batches; ++i) {
      const Batch batch = MakeBatch(*objective_, options_.seed, kFirstEvalStep + i);
      evaluator.Run(batch, learner_->weights());
      for (int64_t b = 0; b < options_.lanes; ++b)
        AddLane(batch, evaluator.losses(), b, kFirstEvalStep + i, sums);
    }
    std::cout
        << absl::StrFormat(
               "{\"bench\": \"neighbour\", \"objective\": \"%s\", \"seed\": %d, \"step\": %d, "
               "\"odd_targets\": %.0f, \"odd_nll\": %.5f, \"odd_bound\": %.5f, "
               "\"even_nll\": %.5f, \"even_bound\": %.5f%s}",
               options_.objective, options_.seed, step, sums.targets[1],
               sums.loss[1] / sums.targets[1], sums.bound[1] / sums.targets[1],
               sums.loss[0] / sums.targets[0], sums.bound[0] / sums.targets[0],
               IsLast(step) ? ", \"final\": true" : "")
        << std::endl;
    return absl::OkStatus();
  }

  Options options_;
};

absl::Status RunProgram(int argc, char** argv) {
  Options options;
  options.objective = "bert";
  options.eval_batches = 16;
  options.steps = 1500;
  options.every = 250;
  RETURN_IF_ERROR(options.Parse(argc, argv,
                                {{"--objective", &options.objective},
                                 {"--eval-batches", &options.eval_batches},
                                 {"--symbols", &options.text.symbols, 2}}));
  if (options.objective != "gpt" && options.objective != "bert")
    return absl::InvalidArgumentError("--objective must be gpt or bert");
  return NeighbourBench(options).Run();
}

}  // namespace
}  // namespace anyorder::bench

int main(int argc, char** argv) {
  return anyorder::ReportAndExitStatus("neighbour_bench", anyorder::bench::RunProgram(argc, argv));
}
