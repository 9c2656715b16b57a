// What a run needs of memory and of its disk, computed from shapes before anything is allocated.

#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "core/train/run/run_config.h"

namespace anyorder {

// Bytes of the rank that needs the most, at least: scratch of operations and of libraries comes on
// top. Doubles, because sizes that are out of all proportion overflow whole numbers, and the one
// who asks for them should be told how much it is.
struct MemoryNeed {
  double state = 0;        // compute weights; master weights, moments and average
  double gradients = 0;    // windows, sums that wait, and the owned one
  double recurrence = 0;   // rings of its lanes
  double activations = 0;  // of one microbatch
  // Always the host's: its share of a checkpoint, staged_copies times, and what optimizer.state and
  // dist.partials put there.
  double host = 0;

  double on_device() const { return state + gradients + recurrence + activations; }
};

// REQUIRES: a configuration that is valid for `ranks` ranks, with an objective that can be made.
// Takes no longer for a larger model.
MemoryNeed ComputeMemoryNeed(const RunConfig& config, int64_t vocab_size, int64_t ranks);
// The size of one checkpoint, without headers.
double CheckpointBytes(const RunConfig& config, int64_t vocab_size);

// Where ranks compute.
struct MachineRoom {
  int64_t host_bytes = 0;    // MachineMemoryBytes; 0: unknown, and nothing is refused
  int64_t device_bytes = 0;  // of the smallest GPU; 0: the ranks compute in the host's memory
  int64_t devices = 0;       // GPUs, which the machine's ranks share out
  int64_t ranks = 0;         // of the run's ranks on this machine; 0: none, and nothing is refused
};

// ResourceExhausted, with the amounts and a batch that fits, if the run's ranks on this machine
// need more than it has. What others use of it now is not counted: they may be gone when the ranks
// start.
absl::Status CheckMemory(const RunConfig& config, int64_t vocab_size, int64_t ranks,
                         const MachineRoom& room);

}  // namespace anyorder
