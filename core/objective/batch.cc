#include "core/objective/batch.h"

#include "core/base/check.h"
#include "core/config/task_config.h"

namespace anyorder {

Batch::Batch(const BatchShape& batch_shape) : shape(batch_shape) {
  ANYORDER_CHECK(shape.batch_size > 0 && shape.content_rows > 0 && shape.query_rows >= 0 &&
                 shape.memory_rows >= 0 && shape.targets >= 0)
      << "lanes " << shape.batch_size << ", content rows " << shape.content_rows;
  const auto lanes_count = static_cast<size_t>(shape.batch_size);
  lanes.assign(lanes_count, 0);
  direction.assign(lanes_count, 0);
  tokens.assign(lanes_count * static_cast<size_t>(shape.content_rows), 0);

  const auto num_rows = static_cast<size_t>(shape.num_rows());
  for (std::vector<int32_t>* array : {&row_ids, &row_pos, &row_lim, &row_doc, &row_seg})
    array->assign(num_rows, 0);
  row_grp.assign(num_rows, -1);
  row_glob.assign(num_rows, 0);
  if (shape.next_positions) row_next.assign(num_rows, 0);

  const size_t num_keys = lanes_count * static_cast<size_t>(shape.num_keys());
  for (std::vector<int32_t>* array : {&key_pos, &key_key, &key_doc, &key_seg})
    array->assign(num_keys, 0);
  key_grp.assign(num_keys, -1);
  key_glob.assign(num_keys, 0);

  global_slots.assign(lanes_count * static_cast<size_t>(shape.global_rows), 0);

  const size_t num_targets = lanes_count * static_cast<size_t>(shape.targets);
  readout_rows.assign(num_targets, 0);
  labels.assign(num_targets, 0);
  weights.assign(num_targets, 0.0f);
  ANYORDER_CHECK(shape.loss_names.size() <= kMaxLosses) << shape.loss_names.size() << " losses";
  if (!shape.loss_names.empty()) loss_ids.assign(num_targets, 0);
  if (shape.own_divisor) divisors.assign(lanes_count, 0.0);
  const size_t num_task_rows = lanes_count * static_cast<size_t>(shape.task_rows);
  task_rows.assign(num_task_rows, 0);
  task_valid.assign(num_task_rows, 0);
  if (shape.task_rows > 0) {
    task_weights.assign(lanes_count, 0.0f);
    task_labels.assign(lanes_count, 0);
    task_scores.assign(lanes_count, 0.0f);
  }
  if (shape.has_tags) task_tags.assign(num_task_rows, kNoTag);
  if (shape.has_spans) {
    for (std::vector<int32_t>* array :
         {&task_starts, &task_ends, &task_classifiers, &task_passages})
      array->assign(lanes_count, 0);
  }
  if (!shape.next_sentence) return;
  summary_rows.assign(lanes_count, 0);
  summary_labels.assign(lanes_count, 0);
  summary_weights.assign(lanes_count, 0.0f);
}

}  // namespace anyorder
