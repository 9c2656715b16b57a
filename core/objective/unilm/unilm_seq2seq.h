// "unilm_seq2seq": UniLM v1 fine-tuned for generation (Dong et al. 2019, section 2.5, and the
// released code): [CLS] source [SEP] target [SEP] of labelled examples under the
// sequence-to-sequence mask of "unilm". Of the target's tokens, its [SEP] among them, a share
// target_mask_prob is hidden and asked for: to predict [SEP] is how the network learns to stop.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "core/objective/objective.h"

namespace anyorder {

// InvalidArgument for settings that it cannot use: those of "unilm", and a share of targets outside
// (0, 1].
absl::StatusOr<std::unique_ptr<Objective>> MakeUnilmSeq2seq(const ModelConfig& model,
                                                            const SamplingConfig& sampling);

}  // namespace anyorder
