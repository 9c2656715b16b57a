// Weights that a run begins with instead of initial ones: those of another run's checkpoint, tensor
// by tensor, by their names (core/network/weight_transfer.h). Moments, memory and the data position
// start from scratch.
//
// `train.init_from` does it at the first step, for the very same network but its heads. `anyorder
// import --format run` makes a run directory of them, also for a longer model.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ckpt/reader.h"
#include "core/network/tensors/parameters.h"
#include "core/network/weight_transfer.h"
#include "core/train/run/run_config.h"

namespace anyorder {

// Of [train] init_from.
struct WarmStart {
  std::string checkpoint;  // directory
  int64_t step = 0;        // of the other run
  std::string digest;      // its state_digest
  TransferPlan plan;

  // "weights of CHECKPOINT (step N, state_digest D); randomly initialised: task_head.weight, ...":
  // for the ledger.
  std::string Description() const;
};

// `init_from` is a checkpoint or a run directory, whose newest good checkpoint is taken. Reads it
// whole to verify it. Errors: InvalidArgument if it is no directory; DataLoss; FailedPrecondition
// without a checkpoint, for weights of another tokenizer, of a network that computes something else
// from them, and for tensors that are missing or of another shape, each named.
absl::StatusOr<WarmStart> PlanWarmStart(const std::string& init_from, const RunConfig& config,
                                        const ParameterLayout& layout,
                                        const std::string& tokenizer_digest);

// Overwrites what the plan has of elements [begin, end) of the new flat space, at `master`, with
// the checkpoint's; the others stay. DataLoss.
absl::Status ReadTransferred(const ckpt::Checkpoint& checkpoint, const TransferPlan& plan,
                             int64_t begin, int64_t end, float* master);

}  // namespace anyorder
