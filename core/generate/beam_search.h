// Beam search over several prompts at once. Width 1 is greedy search.
//
// A step extends every live text of a prompt by every allowed token and orders the candidates by
// the sum of their log-probabilities; equal sums by the lane of the text they extend, then by token
// id, so that the result is a function of the logits. Of the first `width` candidates those that
// end leave the beam as finished; the first `width` that do not end live on. With a width of at
// least V^max_tokens nothing is ever dropped: the search is exhaustive.
//
// Finished texts are ordered by score; the `width` best are kept. A prompt is done when
//   kExact: it has `width` finished texts, and no live text can reach the worst of them, even if
//   all its further tokens were certain and
//           it grew to max_tokens (with alpha >= 0 a longer text of equal log-probability has the
//           better score); or
//   kFirst: it has `width` finished texts;
//   and in any case after max_tokens steps, when live texts count as they are, not ended.
// So kExact stops early without changing what a search to max_tokens would return first.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/generate/search.h"

namespace anyorder {

enum class SearchStop { kExact, kFirst };

struct BeamOptions {
  int64_t width = 1;          // equals the lanes of a prompt
  double length_penalty = 0;  // alpha >= 0
  SearchStop stop = SearchStop::kExact;
  TokenRules rules;

  // InvalidArgument listing every fault.
  absl::Status Validate() const;
};

// For each prompt at most `width` texts, the best score first; none if the rules allow no text.
// NextTokens' errors. REQUIRES: options are valid and model.lanes() is a multiple of the width.
absl::StatusOr<std::vector<std::vector<Hypothesis>>> BeamSearch(NextTokens& model,
                                                                const BeamOptions& options);

}  // namespace anyorder
