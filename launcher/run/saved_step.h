// What a command of the user needs of a run: its configuration, the checkpoint that it names
// (`--step N`, the best or the newest good one), and the dataset that the run learned from.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "ckpt/reader.h"
#include "core/train/run/run_config.h"
#include "core/train/state/saved_weights.h"
#include "data/dataset/dataset_index.h"

namespace anyorder::launcher {

// The configuration of a run that is there. Files are kept private from here on if the run's are.
absl::StatusOr<RunConfig> LoadConfigOfRun(const std::string& run_dir);

// step -1: the newest whose every byte is right; others are skipped with a warning. Otherwise that
// one or, with kBestStep (launcher/process/command_line.h), the one of the best evaluation,
// verified. Weights that a run diverged with get a warning. Errors: InvalidArgument for a step that
// is not there, or a run without an evaluated one, FailedPrecondition for a run without a
// checkpoint; DataLoss with what to do next. Nothing of the run is changed.
absl::StatusOr<ckpt::Checkpoint> OpenSavedStep(const std::string& run_dir, int64_t step);

// Says on standard error which weights of a run that keeps an average are used.
void LogWeights(const ckpt::Checkpoint& checkpoint, WeightChoice choice);

// The index of `shards`, the dataset that a run learned from. A fault says that `wanted` is wanted
// of it, and what to do `instead`. FailedPrecondition if the dataset is gone, which is for the user
// to mend and no failure of the machine; errors of the file system otherwise.
absl::StatusOr<data::DatasetIndex> ReadTrainingData(const std::string& shards,
                                                    absl::string_view wanted,
                                                    absl::string_view instead);

}  // namespace anyorder::launcher
