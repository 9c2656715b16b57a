#include "launcher/start/room.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/file_system.h"
#include "core/base/machine_memory.h"
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
  ASSIGN_OR_RETURN(const int64_t available, FileSystem::Posix()->FreeBytes(path));
  if (available >= needed) return absl::OkStatus();
  return ResourceExhausted("'", ParentPath(path), "' has ", available >> 10,
                           " KiB free, but mpirun and the ranks need ", needed >> 10,
                           " KiB there; ", remedy);
}

}  // namespace

absl::StatusOr<int64_t> FreeBytesAround(const std::string& directory) {
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(directory, error);
  if (error) return ErrnoStatus("resolve", directory, error.value());
  while (!std::filesystem::exists(place, error) && place.has_relative_path())
    place = place.parent_path();
  return FileSystem::Posix()->FreeBytes(place.string());
}

absl::Status CheckCheckpointRoom(const RunConfig& config, const CheckpointRoom& room,
                                 std::string* warning) {
  const CheckpointConfig& kept = config.checkpoint;
  const int64_t steps = config.train.steps - room.step;
  if (steps <= 0) return absl::OkStatus();
  // The last step is saved whatever `every` says.
  const int64_t saves = kept.every > 0 ? (steps + kept.every - 1) / kept.every : 1;
  const auto bytes_for = [&](int64_t keep_last) {
    const int64_t kept_at_once = keep_last + (kept.keep_best ? 1 : 0);
    const int64_t more =
        1 + std::max<int64_t>(0, std::min(saves - 1, kept_at_once - room.checkpoints));
    return static_cast<double>(more) * room.checkpoint_bytes;
  };
  const auto free = static_cast<double>(room.free_bytes);
  if (bytes_for(kept.keep_last) > free) {
    const auto affordable = static_cast<int64_t>(free / room.checkpoint_bytes);
    const int64_t fewer = std::max<int64_t>(2, affordable + room.checkpoints - 1);
    return ResourceExhausted(
        "the file system of the run directory has ", FormatBytes(free),
        " free, but the checkpoints that are kept at once need ",
        FormatBytes(bytes_for(kept.keep_last)), " more (", FormatBytes(room.checkpoint_bytes),
        " each, checkpoint.keep_last = ", kept.keep_last, " and one that is being written); ",
        bytes_for(fewer) > free ? "" : absl::StrCat("set checkpoint.keep_last = ", fewer, ", "),
        "free some, or name another --run-dir");
  }
  if (kept.keep_every == 0 || kept.every == 0) return absl::OkStatus();
  const int64_t for_good = config.train.steps / kept.keep_every - room.step / kept.keep_every;
  const double all =
      bytes_for(kept.keep_last) + static_cast<double>(for_good) * room.checkpoint_bytes;
  if (all > free) {
    *warning = absl::StrCat("checkpoint.keep_every = ", kept.keep_every, " will keep ", for_good,
                            " checkpoints of ", FormatBytes(room.checkpoint_bytes),
                            " until the run ends, and the file system has ", FormatBytes(free),
                            " free: move some away in time");
  }
  return absl::OkStatus();
}

absl::Status CheckRoom(const NodeScratch& scratch, int64_t ranks) {
  RETURN_IF_ERROR(RaiseOpenFiles(kFiles + kFilesPerRank * ranks,
                                 absl::StrCat("mpirun with ", Counted(ranks, "rank"))));
  const int64_t segments = kSegmentBytes * ranks;
  const bool has_shared_memory = !scratch.shared_memory.empty();
  RETURN_IF_ERROR(CheckFree(scratch.files, kFilesBytes + (has_shared_memory ? 0 : segments),
                            "free some, or set TMPDIR to another directory"));
  if (!has_shared_memory) return absl::OkStatus();
  return CheckFree(scratch.shared_memory, segments,
                   "remove what lies there, or give the container more (--shm-size)");
}

}  // namespace anyorder::launcher
