// Which starter of MPI ranks a cluster has, found by looking, and the environment that Open MPI
// needs there.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// Words that start `ranks` ranks on `hosts`, each "NAME:SLOTS", filled in their order; the ranks'
// own command follows.
std::vector<std::string> MpirunCommand(int64_t ranks, const std::vector<std::string>& hosts);

// "NAME=value" for the ranks of every run. Variables that are set already win over them.
std::vector<std::string> CommonMpiEnvironment();
// The same for ranks on several nodes. `notes`
// get a line for each choice that a user may want to make otherwise.
std::vector<std::string> MpiEnvironmentForNodes(std::vector<std::string>* notes);

}  // namespace anyorder::launcher
