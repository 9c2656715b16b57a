#include "core/objective/lane_frame.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"

namespace anyorder {

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

absl::Status CheckReadsNoPairs(const std::string& name, const ModelConfig& model) {
  if (!model.next_sentence_head) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("objective.next_sentence is true, but ", name,
                   " reads no sentence pairs; use permutation_lm, dae or bert"));
}

absl::Status CheckReadsWindows(const std::string& name, const ModelConfig& model,
                               const SamplingConfig& sampling) {
  FaultList faults;
  faults.Require(model.mem_len == 0, absl::StrCat("model.mem_len is ", model.mem_len,
                                                  " but must be 0: ", name, " remembers nothing"));
  faults.Require(
      !sampling.bidirectional,
      absl::StrCat("sampling.bidirectional is true but must be false: ", name, " reads one way"));
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(faults.Joined());
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
