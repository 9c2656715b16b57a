// Going on with a run under another schedule: more steps, another learning rate. Such a run is no
// longer a pure function of one configuration, so it takes a flag (--allow-schedule-change) and a
// record in the ledger.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/train/run/ledger.h"
#include "core/train/run/run_config.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"

namespace anyorder {

// "train.steps = 300 -> train.steps = 400" of each key that differs, empty if none does. The keys
// are train.steps and optimizer.learning_rate, min_learning_rate_ratio, warmup_steps, decay.
// Errors: those of CheckSameRun if any other key differs. The number of lanes is one: the data
// position and the recurrence memory are kept by lane.
absl::StatusOr<std::string> ScheduleChange(const RunConfig& started, const RunConfig& now);

// CheckSameRun, except that `is_allowed` lets the schedule differ; without it the error names the
// flag.
absl::Status CheckMayGoOn(const RunConfig& started, const RunConfig& now, bool is_allowed);

// With the launcher's lease in hand, before the new configuration replaces the frozen one: writes a
// change down.
absl::Status RecordScheduleChange(const RunDirectory& paths, const RunConfig& now, int64_t attempt,
                                  Ledger& ledger);

// A checkpoint of before the change counts as one of `config` if the ledger says that the change
// was allowed; a config.toml that was edited by hand is still refused.
absl::Status AcceptRecordedSchedule(const std::string& run_dir, const RunConfig& config,
                                    TrainMetadata* saved);

}  // namespace anyorder
