#include "core/network/tensors/device_inputs.h"

#include <cstring>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder {

int64_t DeviceInputs::Reserve(int64_t bytes) {
  ANYORDER_CHECK(backend_ == nullptr && bytes >= 0) << "a place for " << bytes << " bytes";
  const int64_t begin = ends_.empty() ? 0 : ends_.back();
  ends_.push_back(begin + AlignedBytes(bytes));
  return static_cast<int64_t>(ends_.size()) - 1;
}

absl::Status DeviceInputs::Allocate(kernels::Backend& backend) {
  backend_ = &backend;
  if (backend.is_host_memory() || ends_.empty() || ends_.back() == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(storage_, backend.Allocate(ends_.back()));
  staging_.resize(static_cast<size_t>(ends_.back()));
  return absl::OkStatus();
}

const void* DeviceInputs::Put(int64_t place, const void* host, int64_t bytes) {
  if (backend_->is_host_memory()) return host;
  const int64_t begin = place == 0 ? 0 : ends_[place - 1];
  ANYORDER_CHECK(bytes <= ends_[place] - begin)
      << bytes << " bytes for a place of " << ends_[place] - begin;
  std::memcpy(staging_.data() + begin, host, static_cast<size_t>(bytes));
  return static_cast<const char*>(storage_->data()) + begin;
}

void DeviceInputs::Send(StreamView stream) {
  if (staging_.empty()) return;
  backend_->CopyToDevice(staging_.data(), storage_->data(), static_cast<int64_t>(staging_.size()),
                         stream);
}

template <typename Visit>
void DeviceBatch::VisitArrays(const Batch& batch, const Visit& visit) {
  visit(tokens, batch.tokens);
  visit(row_ids, batch.row_ids);
  visit(direction, batch.direction);
  visit(global_slots, batch.global_slots);
  visit(row_pos, batch.row_pos);
  visit(row_lim, batch.row_lim);
  visit(row_grp, batch.row_grp);
  visit(row_doc, batch.row_doc);
  visit(row_seg, batch.row_seg);
  visit(row_glob, batch.row_glob);
  visit(key_pos, batch.key_pos);
  visit(key_key, batch.key_key);
  visit(key_grp, batch.key_grp);
  visit(key_doc, batch.key_doc);
  visit(key_seg, batch.key_seg);
  visit(key_glob, batch.key_glob);
  visit(labels, batch.labels);
  visit(weights, batch.weights);
  visit(summary_labels, batch.summary_labels);
  visit(summary_weights, batch.summary_weights);
  visit(task_labels, batch.task_labels);
  visit(task_weights, batch.task_weights);
  visit(task_scores, batch.task_scores);
  visit(task_valid, batch.task_valid);
  visit(task_starts, batch.task_starts);
  visit(task_ends, batch.task_ends);
  visit(task_classifiers, batch.task_classifiers);
}

DeviceBatch::DeviceBatch(const BatchShape& shape, DeviceInputs& inputs) {
  VisitArrays(Batch(shape), [&inputs](auto& array, const auto& values) {
    array = {static_cast<int64_t>(values.size()), inputs};
  });
}

void DeviceBatch::Set(const Batch& batch) {
  VisitArrays(batch, [](auto& array, const auto& values) { array.Set(values); });
}

}  // namespace anyorder
