// What every objective writes the same way into its lane of a batch: identity, and recurrence
// memory.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "core/config/model_config.h"
#include "core/objective/batch.h"
#include "core/objective/text_sample.h"

namespace anyorder {

// Memory ranks below every slot that an objective may number from 0 on, so that each row sees all
// of it.
inline constexpr int32_t kMemoryRank = -1;
// A row that may see nothing at all, memory included.
inline constexpr int32_t kSeesNothing = kMemoryRank - 1;

// Lane id, direction, step, tokens and logical row ids of lane `b`. There may be more content slots
// than tokens: an objective that has several slots for one token fills the others.
void FillLaneIdentity(const TextSample& sample, int64_t b, Batch& batch);

// Memory keys of lane `b`: positions -M..-1, segment 0, visible across documents. While a lane is
// younger than its memory is long, slots that hold no state yet are hidden, or seen as zeros
// (ModelConfig::initial_memory).
void FillMemoryKeys(const TextSample& sample, InitialMemory initial, int64_t b, Batch& batch);

// InvalidArgument if the settings ask for next-sentence labels, which only pairs of sentences have.
absl::Status CheckReadsNoPairs(const std::string& name, const ModelConfig& model);

// InvalidArgument unless the settings are those of a system that reads windows of text, one way,
// and remembers nothing.
absl::Status CheckReadsWindows(const std::string& name, const ModelConfig& model,
                               const SamplingConfig& sampling);

// The next-sentence entry of lane `b`, whose content slot `cls_slot` is CLS. Gradients are sums
// that the step divides by all targets, so that an entry of weight 1 would count for one target;
// with as many targets in every lane, the weight `targets` makes the step's loss mean nll of
// targets + mean nll of next-sentence labels, as BERT's. Where lanes have a few targets less
// (masked SEP or CLS, whole words) the second term counts by that share more: about 85 / 84.7 with
// the published spans.
void FillNextSentence(const TextSample& sample, int64_t targets, int64_t cls_slot, int64_t b,
                      Batch& batch);

// Index of lane b's first content row, query row, content key.
inline int64_t ContentRow(const BatchShape& shape, int64_t b) {
  return b * shape.content_rows;
}
inline int64_t QueryRow(const BatchShape& shape, int64_t b) {
  return shape.batch_size * shape.content_rows + b * shape.query_rows;
}
inline int64_t ContentKey(const BatchShape& shape, int64_t b) {
  return b * shape.num_keys() + shape.memory_rows;
}

}  // namespace anyorder
