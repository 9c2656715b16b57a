// Reading committed checkpoints: any element range of any tensor, at any world size, every byte
// checked.
//
// Nothing here needs the service, MPI or a lease. Format: ckpt/FORMAT.md.

#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "ckpt/manifest.h"
#include "core/base/file_system.h"

namespace anyorder::ckpt {

using TensorInfo = SafetensorsEntry;  // name, dtype, shape

enum class VerifyPace {
  kFast,       // as fast as the disk gives them, in several threads
  kBackground  // one thread of low priority: training runs at the same time
};

struct VerifyOptions {
  VerifyPace pace = VerifyPace::kFast;
  // Names of the files to read; empty: all.
  std::vector<std::string> files = {};
  // Called after each few MiB, by any of the threads, with the bytes read and how many there are.
  // False ends the reading: Cancelled.
  std::function<bool(int64_t done, int64_t total)> proceed = {};
};

// One committed checkpoint, open for reading. Movable; reads are thread-safe.
class Checkpoint {
 public:
  // Reads the manifest and checks its CRC. Files are opened when they are first read, so that a
  // rank of many touches its own only; their sizes are checked then, and payload as it is read.
  // Errors: NotFound if `dir` holds no manifest; DataLoss if it is damaged.
  static absl::StatusOr<Checkpoint> Open(const std::string& dir,
                                         FileSystem* fs = FileSystem::Posix());
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  // Whether every file is there with its exact size: one open for each. DataLoss naming the first
  // that is not.
  absl::Status CheckFiles() const;

  const std::string& directory() const { return dir_; }
  int64_t step() const { return manifest_.id.step; }
  int64_t generation() const { return manifest_.id.generation; }
  int world_size() const { return manifest_.id.world_size; }  // ranks that wrote it
  int64_t num_bytes() const { return manifest_.num_bytes(); }
  const std::string& run_id() const { return manifest_.id.run_id; }
  // What rank 0 gave to Client::Save.
  const std::string& metadata_json() const { return manifest_.metadata; }
  std::vector<TensorInfo> tensors() const;  // sorted by name

  // Reads flat elements [begin, end) of the global tensor into `dst`, in the tensor's dtype. Every
  // chunk touched is read whole and its CRC compared, once if the reader goes on from where it
  // stopped. Large ranges are read by several threads.
  // Errors: NotFound for an unknown name, OutOfRange for a bad range, DataLoss naming file, tensor
  // and offset.
  absl::Status Read(absl::string_view name, int64_t begin, int64_t end, void* dst) const;

  // Reads everything once and compares all checksums.
  // Errors: DataLoss naming the first bad chunk's file and tensors and how many more there are; or
  // what the disk says.
  absl::Status Verify(const VerifyOptions& options = {}) const;

  // XXH3-128 in hex over (name, dtype, shape, bytes) of all tensors in name order: equal training
  // state means equal digests, for any number of ranks that wrote it.
  absl::StatusOr<std::string> StateDigest() const;

 private:
  class OpenFiles;

  Checkpoint(std::string dir, FileSystem* fs);
  absl::Status ReadChunk(int file, int64_t chunk, void* dst) const;
  absl::Status ReadFileRange(int file, int64_t offset, int64_t bytes, char* to) const;

  std::string dir_;
  FileSystem* fs_;
  Manifest manifest_;
  std::unique_ptr<OpenFiles> files_;
};

// The checkpoint is bad (bytes missing, wrong or too few). False if the machine cannot read it now.
inline bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsOutOfRange(status);
}

struct CheckpointInfo {
  std::string directory;
  int64_t step = 0;
  int64_t generation = 0;  // 0 when the manifest cannot be read
  int world_size = 0;
  int64_t num_bytes = 0;
  bool opens = false;        // manifest and file sizes are right; says nothing about payload
  bool is_unproven = false;  // what it holds may be of no use: its metadata says so (FORMAT.md)
  int64_t keep_step = -1;  // its metadata asks that the checkpoint of this step stays; -1: of none
  // Why it does not open: DataLoss and NotFound mean bad, others that it could not be read.
  absl::Status status;
};

// The newest of `infos` that opens; null: none does.
inline const CheckpointInfo* NewestOf(const std::vector<CheckpointInfo>& infos) {
  const auto it = absl::c_find_if(infos, [](const CheckpointInfo& info) { return info.opens; });
  return it == infos.end() ? nullptr : &*it;
}

// The step whose checkpoint stays, as the newest of `infos` says that names one which is there, of
// those up to `newest_step`; -1: none does. What a run no longer asks for stays until it names
// another.
int64_t StepToKeep(const std::vector<CheckpointInfo>& infos,
                   int64_t newest_step = std::numeric_limits<int64_t>::max());

// The committed checkpoints of a run, newest (highest step) first. Empty if there is no such
// directory.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(const std::string& run_dir,
                                                            FileSystem* fs = FileSystem::Posix());

// The steps of a run's committed checkpoints, newest first, by their names alone.
absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& run_dir,
                                               FileSystem* fs = FileSystem::Posix());

// The newest checkpoint that has a good manifest: one for many ranks to load, each of which reads
// its part and so verifies it. One rank calls this and tells the others; what they find damaged it
// quarantines, and calls again. Bad ones on the way are set aside (Quarantine) if `quarantine_bad`,
// and skipped with a warning either way.
// Errors: NotFound if the run never committed one; DataLoss if it did but none is good (a fresh
// start would then silently throw the run away).
absl::StatusOr<std::string> FindNewest(const std::string& run_dir, bool quarantine_bad,
                                       FileSystem* fs = FileSystem::Posix(),
                                       bool must_verify = false);
// Finds it, and every byte passes Verify: for a process that works alone.
inline absl::StatusOr<std::string> FindNewestGood(const std::string& run_dir, bool quarantine_bad,
                                                  FileSystem* fs = FileSystem::Posix()) {
  return FindNewest(run_dir, quarantine_bad, fs, /*must_verify=*/true);
}

// Renames a checkpoint that was found bad aside; nothing is deleted. `generation` is that of what
// was found bad, 0 if its manifest cannot be read. AlreadyExists if that one has been set aside
// before: then `dir` is another one by now and stays.
absl::Status Quarantine(const std::string& dir, int64_t generation,
                        FileSystem* fs = FileSystem::Posix());

}  // namespace anyorder::ckpt
