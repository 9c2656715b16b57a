// What a start of a run is asked for, and everything about it that can be refused before anything
// is written; `anyorder launch` and `anyorder submit` ask the same questions.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/train/plan/memory_plan.h"
#include "core/train/run/ledger.h"
#include "core/train/run/run_config.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"
#include "launcher/process/host_names.h"

namespace anyorder::launcher {

// What a batch system that chooses the nodes is asked for.
struct BatchNodes {
  std::string partition;  // "": not said
  int64_t ranks_per_node = 0;
  int64_t ranks = 0;  // of all
};

struct StartRequest {
  std::string config;  // file; empty: the run directory's frozen one
  std::string run_dir;
  int64_t ranks = 1;
  bool has_ranks_of_last_start = false;  // nobody named another number
  std::vector<std::string> overrides;    // section.key=value
  ResumeMode resume = ResumeMode::kAuto;
  bool allow_schedule_change = false;  // core/train/state/resume.h
  // What this machine has for the run's ranks here; null: none run here.
  std::function<MachineRoom(const RunConfig& config)> room;
  // Where they run else; what the run's inventory does not know of these refuses nothing.
  std::vector<HostSlots> slots;
  BatchNodes batch_nodes;
  bool may_lack_dataset = false;  // another job makes it first: it is only checked if it is there
};

// The configuration of the start, with absolute directories. Errors: InvalidArgument for settings,
// ranks or a run directory that do not fit; FailedPrecondition and DataLoss for data that cannot be
// used, is not that of the run or too short for its lanes; ResourceExhausted if memory or disk can
// never hold it; those of the file system.
absl::StatusOr<RunConfig> ResolveStart(const StartRequest& request);

// Whether data.shards holds a dataset.
bool HasDataset(const RunConfig& config);

// The last start that was no Slurm job's. It has `nodes` if it named machines (--hosts).
absl::StatusOr<std::optional<ledger::Start>> LastStartWithoutSlurm(const RunDirectory& paths);

}  // namespace anyorder::launcher
