// What starts the ranks in a job: srun or mpirun, found by looking.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::launcher {

struct MpiChoice {
  std::string plugin;  // of srun --mpi=; "": mpirun starts the ranks
  std::string reason;  // for the log
};

// `wanted`: auto, srun or mpirun. `srun_list`: what `srun --mpi=list` prints. `has_mpirun`: there
// is one in PATH. InvalidArgument, with what to ask the administrator for, if there is no backend.
absl::StatusOr<MpiChoice> ChooseMpi(const std::string& wanted, absl::string_view srun_list,
                                    bool has_mpirun);

}  // namespace anyorder::launcher
