#include "core/objective/any_order/window_slots.h"

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/objective/lane_frame.h"

namespace anyorder {

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

Slot PadSlot(int64_t pos) {
  return {.pos = static_cast<int32_t>(pos), .lim = kSeesNothing, .doc = kernels::kDocPad};
}

Slot RankedSlot(int32_t token, int64_t pos, int32_t rank) {
  return {.token = token, .pos = static_cast<int32_t>(pos), .lim = rank, .key = rank};
}

namespace {

void SetRow(int64_t row, const Slot& value, Batch& batch) {
  batch.row_pos[row] = value.pos;
  batch.row_lim[row] = value.lim;
  batch.row_grp[row] = value.grp;
  batch.row_doc[row] = value.doc;
  batch.row_seg[row] = 0;
}

}  // namespace

void SetContentSlot(int64_t b, int64_t slot, const Slot& value, Batch& batch) {
  const int64_t row = ContentRow(batch.shape, b) + slot;
  const int64_t key = ContentKey(batch.shape, b) + slot;
  SetRow(row, value, batch);
  batch.tokens[row] = value.token;
  batch.key_pos[key] = value.pos;
  batch.key_key[key] = value.key;
  batch.key_grp[key] = value.grp;
  batch.key_doc[key] = value.doc;
  batch.key_seg[key] = 0;
}

void SetQuerySlot(int64_t b, int64_t slot, const Slot& value, Batch& batch) {
  SetRow(QueryRow(batch.shape, b) + slot, value, batch);
}

void SetReadout(int64_t b, int64_t entry, int64_t row, int32_t label, float weight, Batch& batch) {
  const int64_t place = b * batch.shape.targets + entry;
  batch.readout_rows[place] = static_cast<int32_t>(row);
  batch.labels[place] = label;
  batch.weights[place] = weight;
}

absl::Status CheckAnyOrder(const std::string& name, const ModelConfig& model,
                           const SamplingConfig& sampling) {
  ANYORDER_RETURN_IF_ERROR(CheckReadsWindows(name, model, sampling));
  ANYORDER_RETURN_IF_ERROR(sampling.Validate(SampleKind::kContiguous));
  ANYORDER_RETURN_IF_ERROR(CheckReadsNoPairs(name, model));
  if (model.same_length != SameLength::kOff) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.same_length is on, but rows of ", name,
                     " do not read from left to right; use causal_lm"));
  }
  return absl::OkStatus();
}

}  // namespace anyorder
