// Texts drawn from the model, token by token, each lane for itself.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

#include "core/generate/search.h"

namespace anyorder {

struct SampleOptions {
  double temperature = 1.0;  // probabilities are those of logits / temperature; > 0
  int64_t top_k = 0;         // only the k likeliest allowed tokens; 0: all
  double top_p = 1.0;  // only the likeliest whose probabilities sum to at least this (Holtzman et
                       // al. 2020); in (0, 1]
  uint64_t seed = 1;
  TokenRules rules;

  // InvalidArgument listing every fault.
  absl::Status Validate() const;
};

// One text a lane. Token t of lane b is drawn by RandomStream(seed, RandomPurpose::kGeneration, t,
// first_stream + b): a text depends on its number and its logits, never on its company. Tokens of
// equal probability are taken in the order of their ids. The log-probability of a text is the
// model's, without temperature and cuts, and so is the score. A lane in which the rules allow no
// token ends there, not ended.
std::vector<Hypothesis> SampleTexts(NextTokens& model, const SampleOptions& options,
                                    int64_t first_stream);

}  // namespace anyorder
