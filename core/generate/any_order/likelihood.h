// How probable tokens of a text are given the others: exactly where the network's order allows it,
// else a lower bound by Monte Carlo.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "core/generate/any_order/write_options.h"

namespace anyorder {

// A whole text, and which of its tokens are asked about: the others are given.
struct ScoredText {
  std::vector<int32_t> tokens;
  std::vector<int64_t> asked;  // positions, ascending, at least one
  bool wants_greedy = false;   // of estimates: a pass a token more
  int64_t likeliest = 0;       // how many tokens are told for each asked one
};

struct ScoreOptions {
  int64_t samples = 128;  // masks of a part (kEso: orders) that a bound is the mean of; at least 1
  uint64_t seed = 1;  // equal seeds and numbers of tokens: the same draws, so that differences of
                      // texts vary less
  // Texts or samples computed at once, at least 1, and the bytes that their activations may take:
  // if need be there are fewer, down to one. Scores change by the rounding of products at most
  // (README.md).
  int64_t batch = 16;
  int64_t pass_bytes = int64_t{4} << 30;
};

struct LogLikelihood {
  double log_prob = 0;  // nats
  // The standard error of the bound's estimate, as if samples were independent; infinite from one
  // sample. Counts of masks are spread evenly, which makes the real one smaller: masks of one count
  // vary less.
  double standard_error = 0;
  bool is_exact = true;  // else a lower bound of the model's log-probability
  // Whether writing the asked tokens with temperature 0 gives this text: in order, or of masked
  // diffusion the most confident one at a time (as LLaDA's evaluation does), block by block. Of
  // estimates false unless wants_greedy; of kEso always false, since its order is random.
  bool is_greedy = false;
  std::vector<double> token_log_probs;  // exact ones: of each asked token given those before it
  std::vector<std::vector<LikelyToken>> token_likeliest;  // the same; of kBlocks none
};

// Whether Score's numbers are exact.
inline bool ScoresExactly(const CanvasForm& form) {
  return form.family == CanvasFamily::kTwoStream || form.predicts_next() ||
         (form.family == CanvasFamily::kBlocks && form.block_len == 1);
}

// kTwoStream, kPairs, kCausal: exact, in one pass: asked tokens in the order of their positions,
// each given all that is given and those asked before it. kCausal: what is asked must be the end.
// kMasked: the bound of masked diffusion over counts of masks (Nie et al. 2025, equation 6 and its
// algorithm 3): -log p <= E over n uniform in 1..L of L/n times the sum over n random masked tokens
// of their NLL; counts are spread evenly over the samples. One token is exact.
// Masks of different texts share passes.
// kBlocks: the same in each block, given the blocks before it, and with masks of its own; blocks of
// one token are exact. What stands behind an asked block is not seen.
// kEso: the mean over random orders of the NLL of tokens one at a time, form B only.
// Errors: FailedPrecondition where the network cannot say (kEso's other forms; kCausal with given
// tokens behind asked ones; a first token that it has not learned to predict); OutOfRange for
// positions that it has not learned; ResourceExhausted; SlotNetwork::ReadRow's.
absl::StatusOr<std::vector<LogLikelihood>> ScoreTexts(const WritingModel& model,
                                                      const std::vector<ScoredText>& texts,
                                                      const ScoreOptions& options);

}  // namespace anyorder
