#include "core/network/tensors/device_batch.h"

namespace anyorder {

DeviceBatch::DeviceBatch(const NetworkShape& shape, DeviceInputs& inputs) {
  const BatchShape& batch = shape.batch;
  const int64_t lanes = batch.batch_size;
  tokens_ = {lanes * batch.content_rows, inputs};
  direction_ = {lanes, inputs};
  global_slots_ = {lanes * batch.global_rows, inputs};
  for (DeviceArray<int32_t>* array :
       {&row_ids_, &row_pos_, &row_lim_, &row_grp_, &row_doc_, &row_seg_})
    *array = {batch.num_rows(), inputs};
  row_glob_ = {batch.num_rows(), inputs};
  const int64_t keys = lanes * batch.num_keys();
  for (DeviceArray<int32_t>* array : {&key_pos_, &key_key_, &key_grp_, &key_doc_, &key_seg_})
    *array = {keys, inputs};
  key_glob_ = {keys, inputs};
  labels_ = {shape.num_targets(), inputs};
  weights_ = {shape.num_targets(), inputs};
  const int64_t summaries = batch.next_sentence ? lanes : 0;
  summary_labels_ = {summaries, inputs};
  summary_weights_ = {summaries, inputs};
  const int64_t tasks = batch.task_rows > 0 ? lanes : 0;
  task_labels_ = {tasks, inputs};
  task_weights_ = {tasks, inputs};
}

void DeviceBatch::Set(const Batch& batch) {
  tokens_.Set(batch.tokens);
  row_ids_.Set(batch.row_ids);
  direction_.Set(batch.direction);
  global_slots_.Set(batch.global_slots);
  row_pos_.Set(batch.row_pos);
  row_lim_.Set(batch.row_lim);
  row_grp_.Set(batch.row_grp);
  row_doc_.Set(batch.row_doc);
  row_seg_.Set(batch.row_seg);
  row_glob_.Set(batch.row_glob);
  key_pos_.Set(batch.key_pos);
  key_key_.Set(batch.key_key);
  key_grp_.Set(batch.key_grp);
  key_doc_.Set(batch.key_doc);
  key_seg_.Set(batch.key_seg);
  key_glob_.Set(batch.key_glob);
  labels_.Set(batch.labels);
  weights_.Set(batch.weights);
  summary_labels_.Set(batch.summary_labels);
  summary_weights_.Set(batch.summary_weights);
  task_labels_.Set(batch.task_labels);
  task_weights_.Set(batch.task_weights);
}

kernels::RowVisibility DeviceBatch::rows() const {
  return {row_pos_.data(), row_lim_.data(), row_grp_.data(),
          row_doc_.data(), row_seg_.data(), row_glob_.data()};
}

kernels::KeyVisibility DeviceBatch::keys() const {
  return {key_pos_.data(), key_key_.data(), key_grp_.data(),
          key_doc_.data(), key_seg_.data(), key_glob_.data()};
}

}  // namespace anyorder
