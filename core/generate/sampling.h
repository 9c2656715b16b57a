// Texts drawn from the model, token by token, each lane for itself.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/generate/search.h"
#include "core/generate/token_draw.h"

namespace anyorder {

struct SampleOptions {
  TokenCuts cuts;
  uint64_t seed = 1;
  TokenRules rules;

  // InvalidArgument listing every fault.
  absl::Status Validate() const;
};

// One text a lane. Token t of lane b is drawn by RandomStream(seed, RandomPurpose::kGeneration, t,
// streams[b]): a text depends on its number and its logits, never on its company. Tokens of
// equal probability are taken in the order of their ids. The log-probability of a text is the
// model's, without temperature and cuts, and so is the score. A lane in which the rules allow no
// token ends there, not ended. `listener` hears of tokens as they are drawn, the end token too;
// their positions count from 0 behind the prompt. NextTokens' errors.
absl::StatusOr<std::vector<Hypothesis>> SampleTexts(NextTokens& model, const SampleOptions& options,
                                                    const std::vector<uint64_t>& streams,
                                                    TokenListener listener = NobodyListens);

}  // namespace anyorder
