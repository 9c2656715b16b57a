// Files that exist whole or not at all, also after a power cut: write NAME.tmp, fsync, rename,
// fsync the directory.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::data {

// Appends to PATH.tmp until Commit makes it PATH. Destroyed without Commit, it leaves PATH
// untouched and removes PATH.tmp.
class DurableFile {
 public:
  // Replaces a PATH.tmp that an earlier run left.
  static absl::StatusOr<DurableFile> Create(const std::string& path);
  ~DurableFile();
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;

  // Buffered. Errors: ResourceExhausted (disk full), Unavailable.
  absl::Status Append(absl::string_view bytes);
  // Bytes appended so far.
  uint64_t size() const { return size_; }
  absl::Status Commit();

 private:
  DurableFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  absl::Status Flush();

  int fd_;
  std::string path_;
  std::string buffer_;
  uint64_t size_ = 0;
};

absl::Status WriteFileDurably(const std::string& path, absl::string_view bytes);

// Makes renames and removals inside `directory` survive a power cut.
absl::Status SyncDirectory(const std::string& directory);

}  // namespace anyorder::data
