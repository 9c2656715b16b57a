// Whether a dataset of labelled examples is what an objective was configured for.

#pragma once

#include <string>

#include "absl/status/status.h"

#include "core/train/run/run_config.h"
#include "data/dataset/dataset.h"

namespace anyorder {

enum class TaskLabels { kRequired, kMayLack };

// FailedPrecondition for a dataset of plain text, of another task, of more classes or choices than
// [objective] num_classes, or, with kRequired, with an example that has no label. Objectives
// without a task head take any dataset.
absl::Status CheckTaskData(const RunConfig& config, const data::Dataset& dataset,
                           TaskLabels labels);

// FailedPrecondition if the objective has a task head, both datasets have labelled examples and a
// label's number is another class's in `held_out` than in `training`. `held_out_name` and
// `training_name` are what messages call them, e.g. "eval.shards 'DIR'".
absl::Status CheckSameClasses(const RunConfig& config, const data::DatasetIndex& held_out,
                              const std::string& held_out_name, const data::DatasetIndex& training,
                              const std::string& training_name);

}  // namespace anyorder
