#include "launcher/inference/new_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "core/base/file_system.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

absl::Status Exists(const std::string& path, const std::string& option) {
  return AlreadyExists("'", path, "' exists and is not overwritten; name another ", option);
}

bool IsThere(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NewFile>> NewFile::Create(const std::string& path,
                                                         const std::string& option) {
  if (IsThere(path)) return Exists(path, option);
  std::unique_ptr<NewFile> file(new NewFile(path, option));
  std::string temporary = path + ".partial-XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) return ErrnoStatus("make", path);
  file->temporary_ = temporary;
  // mkstemp makes it private; it is to be as readable as any other file of the user.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(fd, 0666 & ~mask);
  file->file_ = ::fdopen(fd, "w");
  return file;
}

NewFile::~NewFile() {
  if (file_ != nullptr) std::fclose(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

absl::Status NewFile::Append(absl::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size()) return absl::OkStatus();
  return ErrnoStatus("write", path_);
}

absl::Status NewFile::Publish() {
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) return ErrnoStatus("write", path_);
  if (std::fclose(std::exchange(file_, nullptr)) != 0) return ErrnoStatus("write", path_);
  // A link fails where a rename would replace. Not every file system has them.
  if (::link(temporary_.c_str(), path_.c_str()) != 0) {
    if (errno == EEXIST || IsThere(path_)) return Exists(path_, option_);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) return ErrnoStatus("make", path_);
    temporary_.clear();
  }
  return FileSystem::Posix()->SyncDirectory(ParentPath(path_));
}

}  // namespace anyorder::launcher
