// What a run needs of memory and of its disk, known before anything is allocated: the set-up of a
// rank is gone through over a device that only counts (planned_rank.h).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/train/plan/planned_rank.h"
#include "core/train/run/run_config.h"

namespace anyorder {

// Bytes of the rank that needs the most. Doubles, because sizes that are out of all proportion
// overflow whole numbers, and the one who asks for them should be told how much it is.
struct MemoryPlan {
  struct Kind {
    std::string name;  // "weights", "optimizer", "gradients", "activations", ...
    double device = 0;
    double host = 0;
  };
  std::vector<Kind> kinds;
  // Of all ranks' files, without headers.
  double checkpoint_bytes = 0;
  // Not set up: it is more than a process can address, and `device` says how much at least.
  bool is_bound = false;

  double device() const;
  double host() const;
};

// What ranks on CPUs take is all of the host, and called `device` all the same. Takes a second at
// most. Errors: as PlannedRank::Create.
absl::StatusOr<MemoryPlan> PlanMemory(const RunConfig& config, int64_t vocab_size,
                                      const Cluster& cluster);

// Where ranks compute.
struct MachineRoom {
  int64_t host_bytes = 0;    // MachineMemoryBytes; 0: unknown, and nothing is refused
  int64_t device_bytes = 0;  // of the smallest GPU; 0: the ranks compute in the host's memory
  int64_t devices = 0;       // GPUs, which the machine's ranks share out
  int64_t ranks = 0;         // of the run's ranks on this machine; 0: none, and nothing is refused

  bool Holds(const MemoryPlan& plan) const;
};

// What to change so that the run fits, in the order of what it costs: what changes no bit, and for
// those who would rather change the batch, which changes the run. "" where nothing is enough.
struct MemoryAdvice {
  std::vector<std::string> settings;  // "train.recompute=layer", as --set takes them
  std::vector<std::string> batch;

  std::string Words() const;
};
MemoryAdvice AdviceFor(const RunConfig& config, int64_t vocab_size, const Cluster& cluster,
                       const MachineRoom& room);

// ResourceExhausted, with the amounts and what fits, if the run's ranks on such a machine need more
// than it has. What others use of it now, and what drivers and libraries take, is not counted:
// nothing is refused that may fit.
// `cluster`: but for the device, which `room` tells.
absl::Status CheckMemory(const RunConfig& config, int64_t vocab_size, Cluster cluster,
                         const MachineRoom& room);

}  // namespace anyorder
