// Files that survive a power cut. All file calls of ckpt/ go through FileSystem, so that each of
// them can fail, or lose power, in a test (tests/testing/model_file_system.h).
//
// Errors are ErrnoStatus: "operation 'path': reason". A failed sync must never be repeated: the
// kernel may have dropped the pages and would report success (PostgreSQL wiki, "Fsync Errors").

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder {

// A new file being written. The destructor closes it; only Close reports what closing found.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  // Reserves disk space, so that a full disk shows before the writing. Writes nothing: where the
  // file system cannot reserve, the writing finds out about space.
  virtual absl::Status Preallocate(int64_t bytes) = 0;
  // Thread-safe for ranges that do not overlap.
  virtual absl::Status WriteAt(int64_t offset, const void* data, int64_t bytes) = 0;
  virtual absl::Status SyncData() = 0;
  virtual absl::Status Close() = 0;
};

// A log that several lives of a program add to. Thread-compatible.
class AppendableFile {
 public:
  virtual ~AppendableFile() = default;
  // One write: on an error a part of `text` may be there. Not synced.
  virtual absl::Status Append(absl::string_view text) = 0;
};

// Thread-safe.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual int64_t size() const = 0;
  // Exactly `bytes` bytes, or OutOfRange if the file is shorter.
  virtual absl::Status ReadAt(int64_t offset, void* dst, int64_t bytes) const = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // The real one. Never null, never deleted.
  static FileSystem* Posix();

  // Creates `path`, which must not exist. `large` files may bypass the page cache (O_DIRECT):
  // measured faster for checkpoint payload, and it leaves the trainer's memory alone.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreateNew(const std::string& path,
                                                                  bool large) = 0;
  // DataLoss if the name is there and no regular file's, or its directory is none.
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) = 0;
  // Creates `path` if it is not there.
  virtual absl::StatusOr<std::unique_ptr<AppendableFile>> OpenForAppend(
      const std::string& path) = 0;
  virtual absl::Status MakeDirectory(const std::string& path) = 0;  // AlreadyExists if it is there
  // Atomic. Replaces a file; fails on a directory that is not empty. OK also where NFS has sent the
  // call twice because the first answer was lost: `from` is gone, and `to` is that file.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;  // must be empty
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Sorted names without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) = 0;
  virtual absl::StatusOr<int64_t> FreeBytes(const std::string& path) = 0;
};

// fallocate(2), or a test's.
using AllocateCall = int (*)(int fd, int mode, off_t offset, off_t bytes);
// Whether the first `bytes` of `fd`'s file are reserved now; false where its file system does not
// offer that. Not posix_fallocate, which glibc emulates there: it writes a byte into each block, so
// that every file would be written twice. Errors: ErrnoStatus, ENOSPC for one.
absl::StatusOr<bool> ReserveSpace(int fd, absl::string_view path, int64_t bytes,
                                  AllocateCall allocate = nullptr);

// "a/b"; `name` must not start with "/".
std::string JoinPath(absl::string_view directory, absl::string_view name);
std::string ParentPath(absl::string_view path);  // "." when there is none
std::string BaseName(absl::string_view path);

// Whole small files of ckpt/ (manifest, votes, leases). Errors: DataLoss above 256 MiB, which lists
// 32 TiB of payload: a file of that name with more in it is damaged, and must not take the
// machine's memory.
absl::StatusOr<std::string> ReadSmallFile(FileSystem* fs, const std::string& path);

// A file that appears whole or not at all: "PATH.tmp" until Commit syncs it, renames it to PATH and
// syncs the directory. After an OK the new content survives a power cut; after an error or a crash
// the old content is whole. Without a Commit "PATH.tmp" is removed; one that a crash left is
// replaced.
class AtomicFile {
 public:
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(FileSystem* fs,
                                                            const std::string& path);
  ~AtomicFile();

  // For content that is not written from begin to end. Not to be mixed with Append.
  WritableFile& file() { return *file_; }
  // Buffered.
  absl::Status Append(absl::string_view bytes);
  // Bytes appended so far.
  int64_t size() const { return flushed_ + std::ssize(buffer_); }
  // Unless `is_durable`, nothing is synced (ReplaceFile).
  absl::Status Commit(bool is_durable = true);

 private:
  AtomicFile(FileSystem* fs, const std::string& path, std::unique_ptr<WritableFile> file)
      : fs_(fs), path_(path), file_(std::move(file)) {}
  absl::Status Flush();

  FileSystem* const fs_;
  const std::string path_;
  const std::unique_ptr<WritableFile> file_;
  std::string buffer_;
  int64_t flushed_ = 0;
  bool is_renamed_ = false;
};

absl::Status WriteFileAtomically(FileSystem* fs, const std::string& path, absl::string_view content,
                                 bool is_durable = true);
// Writes on FileSystem::Posix(). Not for ckpt/.
inline absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) {
  return WriteFileAtomically(FileSystem::Posix(), path, content);
}

// Replaces a file at once for its readers, and syncs nothing: after a power cut it may be the old
// one, the new one or empty. For what is soon written again.
inline absl::Status ReplaceFile(const std::string& path, absl::string_view content) {
  return WriteFileAtomically(FileSystem::Posix(), path, content, /*is_durable=*/false);
}

// Removes a directory and the files in it (one level), or a file or link. NotFound is no error.
absl::Status RemoveDirectoryWithFiles(FileSystem* fs, const std::string& path);

}  // namespace anyorder
