// Files and directories that commands make: whole or not at all, for a while only, or for this user
// alone.

#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::launcher {

// A file that appears whole or not at all, and never takes an existing one's place.
class NewFile {
 public:
  // `option` named it; null for "", where it named none. AlreadyExists if there is anything at
  // `path`; I/O.
  static absl::StatusOr<std::unique_ptr<NewFile>> Create(const std::string& path,
                                                         const std::string& option);
  // Removes what was not published.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Written when this returns, still under a temporary name.
  absl::Status Append(absl::string_view bytes);
  // Durable, with its name, when this returns. AlreadyExists if somebody made one meanwhile.
  absl::Status Publish();
  // Leaves what has been written under another name, which this returns: after an error, of what
  // took long.
  std::string Keep() { return std::exchange(temporary_, ""); }

 private:
  NewFile(std::string path, std::string option)
      : path_(std::move(path)), option_(std::move(option)) {}

  const std::string path_;
  const std::string option_;
  std::string temporary_;  // "": nothing to remove
  std::FILE* file_ = nullptr;
};

// A directory that appears complete or not at all: filled under a temporary name in the same place,
// then renamed.
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

// From here on new files are readable by this user only (`run.private`): umask 077 for this process
// and all that it starts, as steps of Slurm, too. Files that are there already stay as they are.
// Not while other threads make files.
void KeepFilesPrivate();

// Takes from a directory of ours what others may do in it, whatever is in it already.
absl::Status CloseToOthers(const std::string& directory);

}  // namespace anyorder::launcher
