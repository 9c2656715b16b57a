#include "core/objective/batch.h"

#include "core/base/check.h"
#include "core/config/task_config.h"

namespace anyorder {

Batch::Batch(const BatchShape& batch_shape) : shape(batch_shape) {
  ANYORDER_CHECK(shape.batch_size > 0 && shape.content_rows > 0 && shape.query_rows >= 0 &&
                 shape.memory_rows >= 0 && shape.targets >= 0)
      << "lanes " << shape.batch_size << ", content rows " << shape.content_rows;
  const auto fill = [](int64_t size, auto&... arrays) {
    (arrays.assign(static_cast<size_t>(size), 0), ...);
  };
  const int64_t num_lanes = shape.batch_size;
  const int64_t num_rows = shape.num_rows();
  const int64_t num_keys = num_lanes * shape.num_keys();
  fill(num_lanes, lanes, direction);
  fill(num_lanes * shape.content_rows, tokens);
  fill(num_rows, row_ids, row_pos, row_lim, row_doc, row_seg, row_glob);
  row_grp.assign(static_cast<size_t>(num_rows), -1);
  if (shape.next_positions) fill(num_rows, row_next);
  fill(num_keys, key_pos, key_key, key_doc, key_seg, key_glob);
  key_grp.assign(static_cast<size_t>(num_keys), -1);
  fill(num_lanes * shape.global_rows, global_slots);
  const int64_t num_targets = num_lanes * shape.targets;
  fill(num_targets, readout_rows, labels, weights);
  ANYORDER_CHECK(shape.loss_names.size() <= kMaxLosses) << shape.loss_names.size() << " losses";
  if (!shape.loss_names.empty()) fill(num_targets, loss_ids);
  if (shape.own_divisor) fill(num_lanes, divisors);
  const int64_t num_task_rows = num_lanes * shape.task_rows;
  fill(num_task_rows, task_rows, task_valid);
  if (shape.task_rows > 0) fill(num_lanes, task_weights, task_labels, task_scores);
  if (shape.has_tags) task_tags.assign(static_cast<size_t>(num_task_rows), kNoTag);
  if (shape.has_spans) fill(num_lanes, task_starts, task_ends, task_classifiers, task_passages);
  if (shape.next_sentence) fill(num_lanes, summary_rows, summary_labels, summary_weights);
}

}  // namespace anyorder
