// Whether a dataset of labelled examples is what an objective was configured for.

#pragma once

#include "absl/status/status.h"

#include "core/train/run_config.h"
#include "data/dataset.h"

namespace anyorder {

enum class TaskLabels { kRequired, kMayLack };

// FailedPrecondition for a dataset of plain text, of another task, of more classes or choices than [objective] num_classes, or, with
// kRequired, with an example that has no label. Objectives without a task head take any dataset.
absl::Status CheckTaskData(const RunConfig& config,
                           const data::Dataset& dataset,
                           TaskLabels labels);

}  // namespace anyorder
