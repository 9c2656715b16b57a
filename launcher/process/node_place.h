// One node of a start that runs on several: which it is, and what of it lies on the node itself.
//
// Services and ranks get the same list of nodes (--nodes) and find themselves in it by the name
// that Slurm gave their node, so that they agree under srun, which numbers the nodes of each step
// again, and under mpirun, which does not number them. Without Slurm they find the name that is
// this machine's (host_names.h).

#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace anyorder::launcher {

struct NodePlace {
  std::string name;
  int index = 0;
  int count = 1;
};

// Where SLURMD_NODENAME is in `nodes` (comma between names), or where that is not set, this
// machine. InvalidArgument if it is not in it.
absl::StatusOr<NodePlace> FindNodePlace(const std::string& nodes);

// How long a file system of this kind (statfs(2)) may hide a name that another node has made: where
// it is not known to be of one machine, as long as NFS may remember that there was none.
absl::Duration NameCacheTime(int64_t f_type);

// Directories of one start on one node: sockets and session files, and shared memory. Anybody may
// make names next to them, so theirs are random, and RUN-DIR/.launch/scratch.NODE tells them to the
// ranks, and to the next start, which removes what a killed one left. Short, because a socket's
// path has room for 107 bytes. `shared_memory` is empty where there is no /dev/shm.
struct NodeScratch {
  std::string files;
  std::string shared_memory;
};
// New ones, mode 0700, in `parent` and /dev/shm; they are written down before this returns. For
// several processes of a node `parent` is not TMPDIR, which a site may set differently for each
// step of a job.
absl::StatusOr<NodeScratch> MakeScratch(const std::string& run_dir, const std::string& node,
                                        const std::string& parent);
// The directories that were written down last. InvalidArgument if none were; PermissionDenied if
// they are not, or no longer, private directories of this user.
absl::StatusOr<NodeScratch> FindScratch(const std::string& run_dir, const std::string& node);
// Removes them, and the record of them. What is not a private directory of this user stays: the
// name may be another user's by now.
absl::Status RemoveScratch(const std::string& run_dir, const std::string& node);
absl::Status RemoveScratch(const NodeScratch& scratch);
// Whether MakeScratch gave this name.
bool IsScratchName(const std::string& path);

// Where the service of this start listens. Each start has its own: the one before may still be
// finishing a save.
std::string ServiceSocket(const NodeScratch& scratch, int64_t attempt);

// What `anyorder clean-node` prints before the name of a node that runs steps.
inline constexpr char kCleanNodeAnswer[] = "anyorder-node ";
// And before the name of one that sees another run directory, and why it thinks so.
inline constexpr char kOtherDirectoryAnswer[] = "anyorder-other-directory ";

// What the answers of nodes say, one of these lines each.
struct NodeAnswers {
  std::set<std::string> nodes;  // that can take part
  std::string elsewhere;        // a node with another run directory and why, "" if there is none
};
// Other lines are warnings, which this passes on.
NodeAnswers ReadNodeAnswers(absl::string_view output);
// The error that `elsewhere` is.
absl::Status NotShared(const std::string& run_dir, const std::string& elsewhere);

// Writes a file into RUN-DIR/.launch, which the launcher owns, for nodes to see that it is theirs,
// too; the caller removes it. Removes those of launchers that were killed. Its name is new each
// time: network file systems may remember for a minute that a name was not there.
absl::StatusOr<std::string> WriteSharedMark(const std::string& run_dir);

}  // namespace anyorder::launcher
