// "unilm": UniLM v1 (Dong et al. 2019), four masked language models in one network. Each lane of a
// step is bidirectional, sequence to sequence, left to right or right to left (TextMode); a mode is
// its ranks, which say who sees whom. In all of them the input is corrupted at targets, as BERT's,
// and targets are read out where they stand. With the next-sentence head, lanes in bidirectional
// mode have a label; in the others its weight is 0.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/objective/objective.h"

namespace anyorder {

// Segment ids by mode. Those of released fine-tuning code are 2 (left to right), 4 and 5 (source
// and target); 0 and 1 for the two segments of the bidirectional mode and 3 for right to left are
// ours.
inline constexpr int32_t kUnilmFirstSegment = 0;
inline constexpr int32_t kUnilmSecondSegment = 1;
inline constexpr int32_t kUnilmLeftToRight = 2;
inline constexpr int32_t kUnilmRightToLeft = 3;
inline constexpr int32_t kUnilmSource = 4;
inline constexpr int32_t kUnilmTarget = 5;
inline constexpr int64_t kNumUnilmSegments = 6;

// How a network writes a target to a source, in sequence-to-sequence mode: GenerationForm's
// "cloze".
std::unique_ptr<GenerationForm> MakeUnilmGeneration(const GenerationTokens& tokens);

// InvalidArgument for settings that it cannot use: memory, backward lanes, segments that are not
// learned, shares that do not sum to 1, next-sentence labels without the bidirectional mode.
ObjectiveOrStatus MakeUnilm(const ObjectiveSettings& settings);

// "unilm_seq2seq": UniLM v1 fine-tuned for generation (Dong et al. 2019, section 2.5, and the
// released code): [CLS] source [SEP] target [SEP] of labelled examples under the
// sequence-to-sequence mask of "unilm". Of the target's tokens, its [SEP] among them, a share
// target_mask_prob is hidden and asked for: to predict [SEP] is how the network learns to stop.
//
// InvalidArgument for settings that it cannot use: those of "unilm", and a share of targets outside
// (0, 1].
ObjectiveOrStatus MakeUnilmSeq2seq(const ObjectiveSettings& settings);

// How fine-tuning for generation lays an example out: [CLS] source [SEP] target [SEP], cut to the
// slots that there are.
struct SourceTargetText {
  std::vector<int32_t> tokens;  // at most the slots asked for
  int64_t source_slots = 0;     // [CLS] source [SEP]; the target and its [SEP] follow
};

// `sample` is of SampleKind::kExamples with two parts. What is too long loses its last tokens, the
// longer part first (the target when equal), as the released code's truncate_tokens_pair does.
// REQUIRES slots >= 5.
SourceTargetText LayOutSourceTarget(const TextSample& sample, int64_t slots);

}  // namespace anyorder
