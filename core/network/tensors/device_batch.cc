#include "core/network/tensors/device_batch.h"

namespace anyorder {

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
