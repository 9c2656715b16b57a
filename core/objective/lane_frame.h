// What every objective writes the same way into its lane of a batch: identity, slots, readout and
// recurrence memory.

#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/base/check.h"
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
inline std::vector<int32_t> DrawOrder(int64_t n, RandomStream& random) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  Shuffle(random, order.begin(), order.end());
  return order;
}

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
inline Slot GroupSlot(int32_t token, int64_t pos, int64_t lim, int64_t grp, int32_t seg = 0) {
  return {.token = token,
          .pos = static_cast<int32_t>(pos),
          .lim = static_cast<int32_t>(lim),
          .grp = static_cast<int32_t>(grp),
          .seg = seg};
}
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

// Index of lane b's first content row, query row, content key.
inline int64_t ContentRow(const BatchShape& shape, int64_t b) { return b * shape.content_rows; }
inline int64_t QueryRow(const BatchShape& shape, int64_t b) {
  return shape.batch_size * shape.content_rows + b * shape.query_rows;
}
inline int64_t ContentKey(const BatchShape& shape, int64_t b) {
  return b * shape.num_keys() + shape.memory_rows;
}

// The arrays of one row, and of one key, for callers with an order of their own.
inline void SetRow(int64_t row, const Slot& value, Batch& batch) {
  batch.row_pos[row] = value.pos;
  batch.row_lim[row] = value.lim;
  batch.row_grp[row] = value.grp;
  batch.row_doc[row] = value.doc;
  batch.row_seg[row] = value.seg;
  if (batch.shape.next_positions) batch.row_next[row] = value.next;
}
inline void SetKey(int64_t key, const Slot& value, Batch& batch) {
  batch.key_pos[key] = value.pos;
  batch.key_key[key] = value.key;
  batch.key_grp[key] = value.grp;
  batch.key_doc[key] = value.doc;
  batch.key_seg[key] = value.seg;
}
inline void SetContentSlot(int64_t b, int64_t slot, const Slot& value, Batch& batch) {
  const int64_t row = ContentRow(batch.shape, b) + slot;
  batch.tokens[row] = value.token;
  SetRow(row, value, batch);
  SetKey(ContentKey(batch.shape, b) + slot, value, batch);
}
// Entry `entry` of lane b's readout: row `row` of the batch is to predict `label`. Of weight 0: the
// row is read and its loss is not counted.
inline void SetReadout(int64_t b, int64_t entry, int64_t row, int32_t label, float weight,
                       Batch& batch) {
  const int64_t place = b * batch.shape.targets + entry;
  batch.readout_rows[place] = static_cast<int32_t>(row);
  batch.labels[place] = label;
  batch.weights[place] = weight;
}
// Query slot `query` of lane b, which is entry `query` of the readout.
inline void SetQuery(int64_t b, int64_t query, const Slot& value, int32_t label, float weight,
                     Batch& batch) {
  const int64_t row = QueryRow(batch.shape, b) + query;
  SetRow(row, value, batch);
  SetReadout(b, query, row, label, weight, batch);
}

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
inline BatchShape WindowShape(const WindowSlots& slots, int64_t batch_size) {
  return {.batch_size = batch_size,
          .content_rows = slots.content,
          .query_rows = slots.query,
          .targets = slots.targets,
          .advance = slots.seq_len,
          .min_distance = 1 - slots.seq_len,
          .num_distances = 2 * slots.seq_len - 1,
          .content_readout = slots.query == 0,
          .own_divisor = slots.own_divisor};
}

// Lane id, direction, step, tokens and logical row ids of lane `b`. There may be more content slots
// than tokens: an objective that has several slots for one token fills the others.
inline void FillLaneIdentity(const TextSample& sample, int64_t b, Batch& batch) {
  const BatchShape& shape = batch.shape;
  ANYORDER_CHECK(b >= 0 && b < shape.batch_size) << "lane " << b << " of " << shape.batch_size;
  ANYORDER_CHECK(static_cast<int64_t>(sample.tokens.size()) <= shape.content_rows)
      << sample.tokens.size() << " tokens for " << shape.content_rows << " slots";
  batch.step = sample.step;
  batch.lanes[b] = sample.lane;
  batch.direction[b] = sample.backward ? 1 : 0;
  std::copy(sample.tokens.begin(), sample.tokens.end(),
            batch.tokens.begin() + ContentRow(shape, b));

  const int64_t slots = shape.content_rows + shape.query_rows;
  for (int64_t slot = 0; slot < shape.content_rows; ++slot)
    batch.row_ids[ContentRow(shape, b) + slot] = static_cast<int32_t>(sample.lane * slots + slot);
  for (int64_t slot = 0; slot < shape.query_rows; ++slot) {
    batch.row_ids[QueryRow(shape, b) + slot] =
        static_cast<int32_t>(sample.lane * slots + shape.content_rows + slot);
  }
}

// Where <eod> stands: at the end of its document, or at the begin of the next one, where its slot
// predicts that document's first token.
enum class EodPlace { kEndsDocument, kBeginsNext };
// The document of each token, Slot::doc: numbers from 0 on in reading order; all 0 unless `hidden`.
inline std::vector<int32_t> DocumentsOf(const TextSample& sample, bool hidden, EodPlace place) {
  std::vector<int32_t> documents(sample.tokens.size(), 0);
  if (!hidden) return documents;
  int32_t ended = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    const bool ends = sample.tokens[i] == sample.vocabulary.end_of_document;
    documents[i] = ended + (ends && place == EodPlace::kBeginsNext ? 1 : 0);
    if (ends) ++ended;
  }
  return documents;
}

// Memory keys of lane `b`: positions -M..-1, segment 0, visible across documents. While a lane is
// younger than its memory is long, slots that hold no state yet are hidden, or seen as zeros
// (ModelConfig::initial_memory).
inline void FillMemoryKeys(const TextSample& sample, InitialMemory initial, int64_t b,
                           Batch& batch) {
  const BatchShape& shape = batch.shape;
  const int64_t first = b * shape.num_keys();
  for (int64_t slot = 0; slot < shape.memory_rows; ++slot) {
    const int64_t age = shape.memory_rows - slot;  // 1: the newest state
    const bool holds_state = sample.step * shape.advance >= age;
    const int64_t key = first + slot;
    batch.key_pos[key] = static_cast<int32_t>(-age);
    batch.key_key[key] = kMemoryRank;
    batch.key_seg[key] = 0;
    batch.key_doc[key] =
        holds_state || initial == InitialMemory::kZeros ? kernels::kDocAny : kernels::kDocPad;
  }
}

// The next-sentence entry of lane `b`, whose content slot `cls_slot` is CLS. Gradients are sums
// that the step divides by all targets, so that an entry of weight 1 would count for one target;
// with as many targets in every lane, the weight `targets` makes the step's loss mean nll of
// targets + mean nll of next-sentence labels, as BERT's. Where lanes have a few targets less
// (masked SEP or CLS, whole words) the second term counts by that share more: about 85 / 84.7 with
// the published spans.
inline void FillNextSentence(const TextSample& sample, int64_t targets, int64_t cls_slot, int64_t b,
                             Batch& batch) {
  const BatchShape& shape = batch.shape;
  ANYORDER_CHECK(shape.next_sentence && sample.is_functional.back() != 0) << "no CLS at the end";
  batch.summary_rows[b] = static_cast<int32_t>(ContentRow(shape, b) + cls_slot);
  batch.summary_labels[b] = sample.b_follows_a ? 1 : 0;
  batch.summary_weights[b] = static_cast<float>(targets);
}

}  // namespace anyorder
