// A directory that appears complete or not at all: filled under a temporary name in the same place,
// then renamed. And one for temporary files.

#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::launcher {

class NewDirectory {
 public:
  // `output` as given with `option`; what is missing above it is made. Changes nothing on error.
  // Errors: InvalidArgument if empty; AlreadyExists unless `output` is absent or an empty
  // directory; I/O.
  static absl::StatusOr<NewDirectory> Create(const std::string& output, const std::string& option);
  // Removes what was not published.
  ~NewDirectory();
  NewDirectory(NewDirectory&& other) noexcept;
  NewDirectory& operator=(NewDirectory&&) = delete;

  // Where to write.
  const std::filesystem::path& path() const { return temporary_; }
  // Where it will be.
  const std::filesystem::path& output() const { return output_; }
  // The files in it must be durable already; its name is when this returns.
  absl::Status Publish();

 private:
  NewDirectory() = default;

  std::filesystem::path output_;
  std::filesystem::path temporary_;  // empty: nothing to remove
};

// A directory of this user alone in TMPDIR (/tmp without), removed at its end. A process that is
// killed leaves it there.
class ScratchFolder {
 public:
  // "PREFIX-XXXXXX". InvalidArgument if there is no place for it.
  static absl::StatusOr<ScratchFolder> Make(const std::string& prefix);
  ~ScratchFolder();
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;

  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;  // "": nothing to remove
};

// What Create refuses, for programs that look before they work long.
absl::Status RefuseUnlessAbsentOrEmpty(const std::filesystem::path& output,
                                       const std::string& option);

// AlreadyExists, "'PATH' `refusal`", unless `path` is absent or a file with `mark` in its first
// `bytes` bytes: something else than an older output must not be lost to a slip of the keyboard.
absl::Status RefuseUnlessMarked(const std::string& path, absl::string_view mark, size_t bytes,
                                absl::string_view refusal);

// With those above it; an existing one is good.
absl::Status MakeDirectories(const std::string& path);

}  // namespace anyorder::launcher
