// What every objective writes the same way into its lane of a batch: identity, slots, readout and
// recurrence memory.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/philox.h"
#include "core/config/model_config.h"
#include "core/objective/batch.h"
#include "core/objective/text_sample.h"
#include "kernels/visibility.h"

namespace anyorder {

// Memory ranks below every slot that an objective may number from 0 on, so that each row sees all
// of it.
inline constexpr int32_t kMemoryRank = -1;
// A row that may see nothing at all, memory included.
inline constexpr int32_t kSeesNothing = kMemoryRank - 1;

// The lane's own stream of draws at this step.
inline RandomStream LaneDraws(const TextSample& sample) {
  return RandomStream(sample.seed, RandomPurpose::kObjective, static_cast<uint64_t>(sample.step),
                      static_cast<uint64_t>(sample.lane));
}
// Puts [begin, end) into a random order, each equally probable (Fisher and Yates).
template <typename Stream, typename Iterator>
void Shuffle(Stream&& draws, Iterator begin, Iterator end) {
  for (auto left = end - begin; left > 1; --left)
    std::iter_swap(begin + (left - 1),
                   begin + static_cast<int64_t>(draws.Below64(static_cast<uint64_t>(left))));
}
// [0, n) in such an order.
std::vector<int32_t> DrawOrder(int64_t n, RandomStream& random);

// A key is seen where key <= lim, or within a group; kernels/visibility.h.
struct Slot {
  int32_t token = 0;  // content slots only
  int32_t pos = 0;
  int32_t lim = 0;
  int32_t key = kernels::kKeyNever;  // content slots only
  int32_t grp = -1;
  int32_t seg = 0;
  int32_t doc = 0;
  int32_t next = 0;  // position of the token that it predicts, where rows say that
};
// It sees nothing, no other slot sees it, nothing is read from it.
inline Slot PadSlot(int64_t pos) {
  return {.pos = static_cast<int32_t>(pos), .lim = kSeesNothing, .doc = kernels::kDocPad};
}
// A content slot of rank `rank`: it sees ranks up to its own.
inline Slot RankedSlot(int32_t token, int64_t pos, int64_t rank, int32_t seg = 0) {
  const auto lim = static_cast<int32_t>(rank);
  return {.token = token, .pos = static_cast<int32_t>(pos), .lim = lim, .key = lim, .seg = seg};
}
// A content slot that stands for a token still to be predicted: it sees ranks up to `lim` and the
// slots of its group, which alone see it.
Slot GroupSlot(int32_t token, int64_t pos, int64_t lim, int64_t grp, int32_t seg = 0);
// Reading from left to right, for training, scoring and generation alike: a content slot sees the
// slots up to its own position, a query slot those before it.
inline Slot CausalSlot(int32_t token, int64_t pos) {
  Slot slot = RankedSlot(token, pos, pos);
  slot.next = slot.pos + 1;
  return slot;
}
inline Slot CausalQuery(int64_t pos) {
  return {.pos = static_cast<int32_t>(pos), .lim = static_cast<int32_t>(pos - 1)};
}

void SetContentSlot(int64_t b, int64_t slot, const Slot& value, Batch& batch);
// The arrays of one row, and of one key, for callers with an order of their own.
void SetRow(int64_t row, const Slot& value, Batch& batch);
void SetKey(int64_t key, const Slot& value, Batch& batch);
// Entry `entry` of lane b's readout: row `row` of the batch is to predict `label`. Of weight 0: the
// row is read and its loss is not counted.
void SetReadout(int64_t b, int64_t entry, int64_t row, int32_t label, float weight, Batch& batch);

// How much of a prompt and its answer stays in a sequence.
struct FittedParts {
  int64_t source = 0;     // its last tokens
  int64_t answer = 0;     // its first tokens
  bool is_whole = false;  // nothing of the answer is cut

  int64_t length() const { return source + answer; }
};
// The prompt gives way until it has half of the slots, then the answer, of parts.target tokens with
// what ends it. What always fits is one token of each. REQUIRES seq_len >= 2.
inline FittedParts FitParts(const PartLengths& parts, int64_t seq_len) {
  FittedParts fitted;
  fitted.source = std::min(parts.source, std::max(seq_len - parts.target, seq_len / 2));
  fitted.answer = std::min(parts.target, seq_len - fitted.source);
  fitted.is_whole = fitted.answer == parts.target;
  return fitted;
}

// The shape of windows of text without memory: slots at [0, seq_len), all possibly seeing all.
struct WindowSlots {
  int64_t seq_len = 0;
  int64_t content = 0;  // slots a lane; several may stand at one position
  int64_t query = 0;
  int64_t targets = 0;
  bool own_divisor = false;
};
BatchShape WindowShape(const WindowSlots& slots, int64_t batch_size);

// Lane id, direction, step, tokens and logical row ids of lane `b`. There may be more content slots
// than tokens: an objective that has several slots for one token fills the others.
void FillLaneIdentity(const TextSample& sample, int64_t b, Batch& batch);

// Where <eod> stands: at the end of its document, or at the begin of the next one, where its slot
// predicts that document's first token.
enum class EodPlace { kEndsDocument, kBeginsNext };
// The document of each token, Slot::doc: numbers from 0 on in reading order; all 0 unless `hidden`.
std::vector<int32_t> DocumentsOf(const TextSample& sample, bool hidden, EodPlace place);

// Memory keys of lane `b`: positions -M..-1, segment 0, visible across documents. While a lane is
// younger than its memory is long, slots that hold no state yet are hidden, or seen as zeros
// (ModelConfig::initial_memory).
void FillMemoryKeys(const TextSample& sample, InitialMemory initial, int64_t b, Batch& batch);

// The next-sentence entry of lane `b`, whose content slot `cls_slot` is CLS. Gradients are sums
// that the step divides by all targets, so that an entry of weight 1 would count for one target;
// with as many targets in every lane, the weight `targets` makes the step's loss mean nll of
// targets + mean nll of next-sentence labels, as BERT's. Where lanes have a few targets less
// (masked SEP or CLS, whole words) the second term counts by that share more: about 85 / 84.7 with
// the published spans.
void FillNextSentence(const TextSample& sample, int64_t targets, int64_t cls_slot, int64_t b,
                      Batch& batch);

// Index of lane b's first content row, query row, content key.
inline int64_t ContentRow(const BatchShape& shape, int64_t b) { return b * shape.content_rows; }
inline int64_t QueryRow(const BatchShape& shape, int64_t b) {
  return shape.batch_size * shape.content_rows + b * shape.query_rows;
}
inline int64_t ContentKey(const BatchShape& shape, int64_t b) {
  return b * shape.num_keys() + shape.memory_rows;
}

// Query slot `query` of lane b, which is entry `query` of the readout.
inline void SetQuery(int64_t b, int64_t query, const Slot& value, int32_t label, float weight,
                     Batch& batch) {
  const int64_t row = QueryRow(batch.shape, b) + query;
  SetRow(row, value, batch);
  SetReadout(b, query, row, label, weight, batch);
}

}  // namespace anyorder
