// UniLMv2's fine-tuning for generation (Bao et al. 2020, section 3.5; the authors' s2s-ft): [SOS]
// source [EOS] target [EOS], every target token predicted from the source and the target tokens
// before it, all in one pass.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"

namespace anyorder {

// Learns from generation examples. Slots a lane, all of them content: seq_len of the text,
// num_predict [P]. The source has rank 0; the t-th target token, its [EOS] among them, has rank t,
// and its [P], at the same position, sees ranks below t and itself. So a network writes as it has
// learned: Generation() has the same slots. Target tokens that others read are replaced with
// target_replace_prob: by <mask>, a random token or themselves as mask_token_prob and
// random_token_prob say; what is asked for is the true token.
//
// A target is cut to num_predict - 1 tokens, a source to what then remains of seq_len, both at
// their ends; a text that is shorter leaves padding (doc -1).
// InvalidArgument: memory, two directions, no room for a source.
absl::StatusOr<std::unique_ptr<Objective>> MakeUnilmV2Seq2seq(const ModelConfig& model,
                                                              const SamplingConfig& sampling);

}  // namespace anyorder
