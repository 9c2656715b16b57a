#include "data/dataset/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"

namespace anyorder::data {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

absl::Status WriteAll(int fd, const std::string& path, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus("write", path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

absl::StatusOr<DurableFile> DurableFile::Create(const std::string& path) {
  const std::string temporary = path + ".tmp";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus("create", temporary);
  return DurableFile(fd, path);
}

DurableFile::DurableFile(DurableFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      buffer_(std::move(other.buffer_)),
      size_(other.size_) {}

DurableFile::~DurableFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink((path_ + ".tmp").c_str());
}

absl::Status DurableFile::Append(absl::string_view bytes) {
  size_ += bytes.size();
  buffer_.append(bytes.data(), bytes.size());
  return buffer_.size() >= kBufferBytes ? Flush() : absl::OkStatus();
}

absl::Status DurableFile::Flush() {
  const absl::Status status = WriteAll(fd_, path_, buffer_);
  buffer_.clear();
  return status;
}

absl::Status DurableFile::Commit() {
  ANYORDER_RETURN_IF_ERROR(Flush());
  const std::string temporary = path_ + ".tmp";
  if (::fsync(fd_) != 0) return ErrnoStatus("fsync", temporary);
  // Some file systems report a failed write only here.
  if (::close(std::exchange(fd_, -1)) != 0) return ErrnoStatus("close", temporary);
  if (std::rename(temporary.c_str(), path_.c_str()) != 0) return ErrnoStatus("rename to", path_);
  return SyncDirectory(ParentOf(path_));
}

absl::Status WriteFileDurably(const std::string& path, absl::string_view bytes) {
  ANYORDER_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path));
  ANYORDER_RETURN_IF_ERROR(file.Append(bytes));
  return file.Commit();
}

absl::Status SyncDirectory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus("open", directory);
  const absl::Status status = ::fsync(fd) == 0 ? absl::OkStatus() : ErrnoStatus("fsync", directory);
  ::close(fd);
  return status;
}

}  // namespace anyorder::data
