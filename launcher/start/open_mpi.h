// The words and the environment that Open MPI's mpirun and its ranks need. Only this file knows its
// releases: in 4.1 ORTE starts ranks, from 5 on PRRTE does, which has other names.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "launcher/process/node_place.h"

namespace anyorder::launcher {

struct OpenMpi {
  std::string version;      // "5.0.7"
  bool has_prrte = false;   // 5 or newer
  bool is_untried = false;  // newer than kNewestTried of open_mpi.cc
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

// How a notice begins that this mpirun prints, between two lines of dashes, where a rank ends with
// another status than 0, as ranks do that were asked to stop (OutputRelay::DropNotice). "": none.
absl::string_view ExitNotice(const OpenMpi& mpi);

// All of these are "NAME=value"; variables that are set already win over them.

// For ranks on several nodes. Logs the choice that a user may want to make otherwise.
std::vector<std::string> MpiEnvironmentForNodes();
// For an mpirun whose ranks are all on this machine, and them; `scratch` takes what they leave when
// they are killed.
std::vector<std::string> MpirunEnvironmentHere(const OpenMpi& mpi, const NodeScratch& scratch);
// An mpirun may start ranks from a machine that is not in `nodes` (comma between names), where no
// service makes a directory. PRRTE needs one there: it refuses to start where a killed one with its
// process number left its own in /tmp. Makes and records one (MakeScratch) and returns true; the
// caller removes it at the end. False where none is needed. Errors of MakeScratch.
absl::StatusOr<bool> MakeHeadScratch(const OpenMpi& mpi, const std::string& run_dir,
                                     const std::string& nodes);
// To be added to MpiEnvironmentForNodes, for an mpirun that starts its daemons on `nodes`, by srun
// or by RemoteShell. It and its daemons then use the recorded directories of their machines (not
// Open MPI's own in /tmp, ompi.HOST.UID, which another user could have taken). They do not where
// there is no record, and where a shell would read the path of a program or of the run directory
// otherwise than it is.
void AddMpirunEnvironment(const OpenMpi& mpi, const std::string& run_dir, const std::string& nodes,
                          bool by_srun, std::vector<std::string>* environment);
// In this process, a rank: sets the variables to the directories of its own node, in place of those
// that mpirun passed on from its machine. What the user has set stays.
void UseForMpi(const NodeScratch& scratch);
// The words that are followed by a host and a command: `wanted`, else what the user's variables for
// mpirun say, else ssh. Sets those variables in this process, so that mpirun uses the same words.
std::string RemoteShell(const std::string& wanted);
// `anyorder mpi-daemon DAEMON RUN-DIR NODES WORDS...`: becomes mpirun's daemon, DAEMON WORDS...
// Returns on errors only, with an exit status.
int ExecMpiDaemon(int argc, char** argv);

}  // namespace anyorder::launcher
