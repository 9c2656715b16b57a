// Whether a dataset of labelled examples is what an objective was configured for.

#pragma once

#include <string>

#include "absl/status/status.h"

#include "core/train/run/run_config.h"
#include "data/dataset/dataset.h"

namespace anyorder {

enum class TaskLabels { kRequired, kMayLack };

// A special token that the objective writes and `ids` lacks: "mask", "sep", "cls" or "bos"; empty
// if there is none.
std::string LackingToken(const RunConfig& config, const data::VocabIds& ids);

// Whether the objective of `config` can learn from the dataset or be measured on it.
// FailedPrecondition for labelled examples where it learns from plain text, for plain text where it
// learns from examples, for a vocabulary with a LackingToken, and for examples of a task that it
// does not learn; of an objective with a task head also for another task or more classes or choices
// than [objective] says, or, with kRequired, for an example that has no label (but those that
// data::kMisplacedCount counts).
absl::Status CheckTaskData(const RunConfig& config, const data::Dataset& dataset,
                           TaskLabels labels);

// Warns where sampling.seq_len cuts examples: how many of `path`, and how many of their tokens,
// with those that the objective adds, are not read. Passages are read in windows instead.
void WarnOfCutExamples(const RunConfig& config, const data::Dataset& dataset,
                       const std::string& path);

// FailedPrecondition if the objective has a task head, both datasets have labelled examples and a
// label's number is another class's in `held_out` than in `training`. `held_out_name` and
// `training_name` are what messages call them, e.g. "eval.shards 'DIR'".
absl::Status CheckSameClasses(const RunConfig& config, const data::DatasetIndex& held_out,
                              const std::string& held_out_name, const data::DatasetIndex& training,
                              const std::string& training_name);

}  // namespace anyorder
