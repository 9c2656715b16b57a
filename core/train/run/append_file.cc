#include "core/train/run/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "core/base/status.h"

namespace anyorder {
namespace {

absl::Status CutTornTail(int fd, const std::string& path) {
  off_t size = ::lseek(fd, 0, SEEK_END);
  const off_t whole_file = size;
  char last = 0;
  while (size > 0) {
    if (::pread(fd, &last, 1, size - 1) != 1) return ErrnoStatus("read", path);
    if (last == '\n') break;
    --size;
  }
  if (size == whole_file) return absl::OkStatus();
  return ::ftruncate(fd, size) == 0 ? absl::OkStatus() : ErrnoStatus("truncate", path);
}

}  // namespace

absl::StatusOr<AppendFile> AppendFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus("open", path);
  AppendFile file(fd, path);
  ANYORDER_RETURN_IF_ERROR(CutTornTail(fd, path));
  return file;
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

absl::Status AppendFile::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus("write", path_);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status AppendFile::Sync() {
  return ::fdatasync(fd_) == 0 ? absl::OkStatus() : ErrnoStatus("sync", path_);
}

}  // namespace anyorder
