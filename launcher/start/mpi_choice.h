// What starts the ranks: srun or mpirun, found by looking, and the words and the environment that
// Open MPI needs. Only this file knows its releases: in 4.1 ORTE starts ranks, from 5 on PRRTE
// does, which has other names.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "launcher/process/node_place.h"

namespace anyorder::launcher {

struct MpiChoice {
  std::string plugin;  // of srun --mpi=; "": mpirun starts the ranks
  std::string reason;  // for the log
};

// `wanted`: auto, srun or mpirun. `srun_list`: what `srun --mpi=list` prints. `has_mpirun`: there
// is one in PATH. InvalidArgument, with what to ask the administrator for, if there is no backend.
absl::StatusOr<MpiChoice> ChooseMpi(const std::string& wanted, absl::string_view srun_list,
                                    bool has_mpirun);

struct OpenMpi {
  std::string version;      // "5.0.7"
  bool has_prrte = false;   // 5 or newer
  bool is_untried = false;  // newer than any that was tried
};
// What `mpirun --version` prints, and what the library that ranks are linked with says of itself
// (dist::MpiLibraryVersion). InvalidArgument, with both and what to do, unless they are of one
// major release of Open MPI, 4.1 or newer.
absl::StatusOr<OpenMpi> ReadOpenMpi(absl::string_view mpirun, absl::string_view library);
// That of the mpirun in PATH, the same way. Warns of one that is untried.
absl::StatusOr<OpenMpi> FindOpenMpi();

// Words that start `ranks` ranks on `hosts`, each "NAME:SLOTS", filled in their order, or on this
// machine if there are none; the ranks' own command follows.
std::vector<std::string> MpirunCommand(const OpenMpi& mpi, int64_t ranks,
                                       const std::vector<std::string>& hosts);

// All of these are "NAME=value"; variables that are set already win over them.

// For ranks on several nodes. `notes` get a line for each choice that a user may want to make
// otherwise.
std::vector<std::string> MpiEnvironmentForNodes(std::vector<std::string>* notes);
// For an mpirun whose ranks are all on this machine, and them; `scratch` takes what they leave when
// they are killed.
std::vector<std::string> MpirunEnvironmentHere(const OpenMpi& mpi, const NodeScratch& scratch);
// Adds to that of MpiEnvironmentForNodes what an mpirun needs whose daemons start on `nodes` (comma
// between names), by srun or by RemoteShell: it and its daemons take the directories of their
// nodes. Open MPI's own names in /tmp (ompi.HOST.UID) are another user's to take; they stay where a
// shell would read the program's path or the run directory's otherwise.
void AddMpirunEnvironment(const OpenMpi& mpi, const std::string& run_dir, const std::string& nodes,
                          bool by_srun, std::vector<std::string>* environment);
// In this process, a rank: the directories of its own node, instead of what mpirun passed on from
// its own. What the user has set stays.
void UseForMpi(const NodeScratch& scratch);
// The words that are followed by a host and a command: `wanted`, else what the user's variables for
// mpirun say, else ssh. mpirun gets the same ones.
std::string RemoteShell(const std::string& wanted);
// `anyorder mpi-daemon DAEMON RUN-DIR NODES WORDS...`: becomes mpirun's daemon, DAEMON WORDS...
int ExecMpiDaemon(int argc, char** argv);

}  // namespace anyorder::launcher
