// Weights that a run begins with instead of drawn ones ([train] init_from): those of another run,
// tensor by tensor, by their names.
//
// Every tensor of the new run must come from there with the same shape, but for heads, which the
// other run may not have: these are drawn, and the ledger names them. Heads of the other run that
// the new one lacks are left behind. Moments, memory and the data position begin anew.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/network/tensors/parameters.h"
#include "core/train/run/run_config.h"

namespace anyorder {

struct WarmStart {
  // Elements [begin, end) of the new flat space are those from `source` on of the other run's.
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t source = 0;
  };
  std::string checkpoint;          // directory
  int64_t step = 0;                // of the other run
  std::string digest;              // its state_digest
  std::vector<Piece> pieces;       // in the order of the new layout
  std::vector<std::string> drawn;  // tensors that the other run has not

  // "weights of CHECKPOINT (step N, state_digest D); drawn: task_head.weight, ...": for the ledger.
  std::string Description() const;
};

// `init_from` is a checkpoint or a run directory, whose newest good checkpoint is taken. Reads it
// whole to verify it. Errors: InvalidArgument if it is no directory; DataLoss; FailedPrecondition
// without a checkpoint, for weights of another tokenizer, of a network that computes something else
// from them, and for tensors that are missing or of another shape, each named.
absl::StatusOr<WarmStart> PlanWarmStart(const std::string& init_from, const RunConfig& config,
                                        const ParameterLayout& layout,
                                        const std::string& tokenizer_digest);

// Overwrites elements [begin, end) of the new flat space, at `master`, with what the plan has for
// them; the others stay. DataLoss.
absl::Status ReadWarmStart(const WarmStart& plan, int64_t begin, int64_t end, float* master);

}  // namespace anyorder
