// A file system in memory that forgets what was never synced, for crash tests of ckpt/.
//
// The model is the strictest reading of POSIX: file content survives only from SyncData, names only
// from SyncDirectory of their directory, and what was not synced may have reached the disk in part
// and in any order. Every mutating call is a numbered operation; one can be made the last before a
// power cut.

#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/file_system.h"
#include "core/base/mutex.h"

namespace anyorder::ckpt {

uint64_t MixHash(uint64_t hash, uint64_t value);

// Of a file; the same for two that differ only in their time stamps and the seals over them.
uint64_t ContentHash(absl::string_view content);

enum class CrashMode {
  kLoseUnsynced,  // nothing but what was synced is left
  kKeepAll,       // the disk happened to have written everything
  kTear,  // a random part: 512-byte or 4-KiB sectors of files, a prefix of each directory's changes
  kReorder,  // the same, but any of each directory's changes: a disk without a journal
};

class ModelFileSystem : public FileSystem {
 public:
  ModelFileSystem();
  ~ModelFileSystem() override;

  int64_t num_operations() const {
    const MutexLock lock(&mutex_);
    return num_operations_;
  }
  // The power goes at operation `operation` (counted from 0 over the life of the object): it and
  // all later calls fail. Its effect may still have reached the drive's cache.
  void CrashAt(int64_t operation, bool reaches_drive) {
    const MutexLock lock(&mutex_);
    crash_at_ = operation;
    crash_reaches_drive_ = reaches_drive;
  }
  // What a machine finds when it comes up again; open files are gone.
  void Restart(CrashMode mode, uint64_t seed);

  absl::StatusOr<std::unique_ptr<WritableFile>> CreateNew(const std::string& path,
                                                          bool large) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<AppendableFile>> OpenForAppend(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override;
  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override;

  // Damage behind the back of whoever uses it: `path` holds `content` from now on, durably. Not an
  // operation.
  void Overwrite(const std::string& path, std::string content);
  std::string Contents(const std::string& path) const;
  // The tree of `other` as its users see it; what was not synced counts as synced.
  void CopyFrom(const ModelFileSystem& other);
  // Of the names and contents at and below `path`; 0 if nothing is there. Trees that differ only in
  // time stamps have the same.
  uint64_t Fingerprint(const std::string& path) const;
  int num_open_files() const { return num_open_files_; }

 private:
  struct Node;
  class File;
  using NodePtr = std::shared_ptr<Node>;  // shared by a directory and open files, as inodes are
  using Change = std::vector<std::pair<std::string, NodePtr>>;  // null: the name goes

  absl::StatusOr<NodePtr> Find(const std::string& path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<NodePtr> FindDirectory(const std::string& path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts an operation, and carries it out if it still gets to the drive. An error: the power is
  // gone.
  template <typename Operation>
  absl::Status Step(const Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Apply(const Change& change, std::map<std::string, NodePtr>* entries);
  absl::Status ChangeDirectory(const std::string& directory, const Change& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The name `path` becomes `node`'s.
  absl::Status Enter(const std::string& path, const NodePtr& node)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static NodePtr Copy(const Node& node);
  static uint64_t FingerprintOf(const Node& node);
  void CrashNode(Node* node, CrashMode mode, std::mt19937_64* random);

  mutable Mutex mutex_;
  NodePtr root_ ABSL_GUARDED_BY(mutex_);
  int64_t num_operations_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t crash_at_ ABSL_GUARDED_BY(mutex_) = -1;
  bool crash_reaches_drive_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<int> num_open_files_ = 0;
};

}  // namespace anyorder::ckpt
