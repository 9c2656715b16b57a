#include "launcher/start/room.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "core/base/file_system.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

// Session directories of mpirun: 8.3 MiB with 1 and with 4 ranks (Open MPI 4.1).
constexpr int64_t kFilesBytes = int64_t{16} << 20;
// A rank's segment of shared memory, which grows to this; a page that is not there when it is
// touched is a SIGBUS.
constexpr int64_t kSegmentBytes = int64_t{4} << 20;
// mpirun had 37 files open with 4 ranks, a rank 25; with a limit of 32 a start of one rank hung.
constexpr int64_t kFiles = 64;
constexpr int64_t kFilesPerRank = 4;

absl::Status CheckFree(const std::string& path, int64_t needed, const char* remedy) {
  ANYORDER_ASSIGN_OR_RETURN(const int64_t available, FileSystem::Posix()->FreeBytes(path));
  if (available >= needed) return absl::OkStatus();
  return ResourceExhausted("'", ParentPath(path), "' has ", available >> 10,
                           " KiB free, but mpirun and the ranks need ", needed >> 10,
                           " KiB there; ", remedy);
}

absl::Status CheckNumFiles(int64_t ranks) {
  const auto needed = static_cast<rlim_t>(kFiles + kFilesPerRank * ranks);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return ErrnoStatus("getrlimit", "open files");
  if (limit.rlim_cur >= needed) return absl::OkStatus();
  if (limit.rlim_max >= needed) {
    limit.rlim_cur = needed;
    if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return absl::OkStatus();
  }
  return ResourceExhausted("this process may open ", std::min(limit.rlim_cur, limit.rlim_max),
                           " files, but mpirun needs ", needed, " for ", ranks,
                           " ranks; raise the limit (ulimit -n)");
}

}  // namespace

absl::Status CheckRoom(const NodeScratch& scratch, int64_t ranks) {
  ANYORDER_RETURN_IF_ERROR(CheckNumFiles(ranks));
  const int64_t segments = kSegmentBytes * ranks;
  const bool has_shared_memory = !scratch.shared_memory.empty();
  ANYORDER_RETURN_IF_ERROR(CheckFree(scratch.files,
                                     kFilesBytes + (has_shared_memory ? 0 : segments),
                                     "free some, or set TMPDIR to another directory"));
  if (!has_shared_memory) return absl::OkStatus();
  return CheckFree(scratch.shared_memory, segments,
                   "remove what lies there, or give the container more (--shm-size)");
}

}  // namespace anyorder::launcher
