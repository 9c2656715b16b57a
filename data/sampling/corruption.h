// BERT's denoising (Devlin et al. 2019, section 3.1 and appendix A.1): which tokens of a sequence
// are targets, and what the network reads in their place.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "core/base/philox.h"
#include "core/config/sampling_config.h"

namespace anyorder::data {

// Ones at the targets: units in random order, each taken whole unless it would go above `goal`. A
// unit is a token (kSingle: exactly `goal` ones) or a word (kWord: `goal`, or less if no word that
// is left fits). A word begins at a word start and at what follows a functional token; functional
// tokens are in no unit. Arrays are in reading order of the text. REQUIRES spans is kSingle or
// kWord, 0 <= goal <= tokens that are not functional.
std::vector<uint8_t> DrawUnitMask(absl::Span<const uint8_t> word_starts,
                                  absl::Span<const uint8_t> functional, SpanKind spans,
                                  int64_t goal, RandomStream& random);

// UniLM's targets (Dong et al. 2019, section 2.4; the order of the released code): exactly `goal`
// ones. Each draw takes a token that is no target yet, uniformly, and with config.ngram_prob the n
// - 1 tokens after it, too, n uniform in 2..max_ngram; an n-gram ends before a functional token and
// where the goal is reached, and passes over what is a target already. REQUIRES 0 <= goal <= tokens
// that are not functional.
std::vector<uint8_t> DrawNgramMask(absl::Span<const uint8_t> functional,
                                   const SamplingConfig& config, int64_t goal,
                                   RandomStream& random);

// `tokens` with each target replaced: by `mask_id` with mask_token_prob, by an id drawn uniformly
// from the whole vocabulary with random_token_prob, else kept. As in BERT, special pieces may be
// drawn, and so may the token itself: what is kept is therefore 1 / vocab_size of the random ones
// more. Slots are drawn in order, so a draw depends on the targets before it.
std::vector<int32_t> CorruptTokens(absl::Span<const int32_t> tokens,
                                   absl::Span<const uint8_t> is_masked,
                                   const SamplingConfig& config, int32_t mask_id,
                                   int64_t vocab_size, RandomStream& random);

}  // namespace anyorder::data
