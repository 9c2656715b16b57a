#include "core/objective/lane_frame.h"

#include <numeric>

#include "core/base/check.h"

namespace anyorder {

std::vector<int32_t> DrawOrder(int64_t n, RandomStream& random) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  Shuffle(random, order.begin(), order.end());
  return order;
}

Slot GroupSlot(int32_t token, int64_t pos, int64_t lim, int64_t grp, int32_t seg) {
  return {.token = token,
          .pos = static_cast<int32_t>(pos),
          .lim = static_cast<int32_t>(lim),
          .grp = static_cast<int32_t>(grp),
          .seg = seg};
}

void SetRow(int64_t row, const Slot& value, Batch& batch) {
  batch.row_pos[row] = value.pos;
  batch.row_lim[row] = value.lim;
  batch.row_grp[row] = value.grp;
  batch.row_doc[row] = value.doc;
  batch.row_seg[row] = value.seg;
  if (batch.shape.next_positions) batch.row_next[row] = value.next;
}

void SetKey(int64_t key, const Slot& value, Batch& batch) {
  batch.key_pos[key] = value.pos;
  batch.key_key[key] = value.key;
  batch.key_grp[key] = value.grp;
  batch.key_doc[key] = value.doc;
  batch.key_seg[key] = value.seg;
}

void SetContentSlot(int64_t b, int64_t slot, const Slot& value, Batch& batch) {
  const int64_t row = ContentRow(batch.shape, b) + slot;
  batch.tokens[row] = value.token;
  SetRow(row, value, batch);
  SetKey(ContentKey(batch.shape, b) + slot, value, batch);
}

void SetReadout(int64_t b, int64_t entry, int64_t row, int32_t label, float weight, Batch& batch) {
  const int64_t place = b * batch.shape.targets + entry;
  batch.readout_rows[place] = static_cast<int32_t>(row);
  batch.labels[place] = label;
  batch.weights[place] = weight;
}

BatchShape WindowShape(const WindowSlots& slots, int64_t batch_size) {
  BatchShape shape;
  shape.batch_size = batch_size;
  shape.content_rows = slots.content;
  shape.query_rows = slots.query;
  shape.targets = slots.targets;
  shape.advance = slots.seq_len;
  shape.min_distance = 1 - slots.seq_len;
  shape.num_distances = 2 * slots.seq_len - 1;
  shape.content_readout = slots.query == 0;
  shape.own_divisor = slots.own_divisor;
  return shape;
}

void FillLaneIdentity(const TextSample& sample, int64_t b, Batch& batch) {
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

std::vector<int32_t> DocumentsOf(const TextSample& sample, bool hidden, EodPlace place) {
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

void FillMemoryKeys(const TextSample& sample, InitialMemory initial, int64_t b, Batch& batch) {
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

void FillNextSentence(const TextSample& sample, int64_t targets, int64_t cls_slot, int64_t b,
                      Batch& batch) {
  const BatchShape& shape = batch.shape;
  ANYORDER_CHECK(shape.next_sentence && sample.is_functional.back() != 0) << "no CLS at the end";
  batch.summary_rows[b] = static_cast<int32_t>(ContentRow(shape, b) + cls_slot);
  batch.summary_labels[b] = sample.b_follows_a ? 1 : 0;
  batch.summary_weights[b] = static_cast<float>(targets);
}

}  // namespace anyorder
