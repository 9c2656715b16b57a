#include "core/base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "core/base/whole_file.h"

namespace anyorder {

namespace {

constexpr int64_t kMaxSmallFileBytes = int64_t{256} << 20;
constexpr size_t kBufferBytes = 1 << 20;

// What every disk and file system we know accepts as the unit of O_DIRECT.
constexpr int64_t kDirectAlignment = 4096;

bool IsAligned(int64_t offset, const void* data, int64_t bytes) {
  return ((static_cast<uint64_t>(offset) | reinterpret_cast<uintptr_t>(data) |
           static_cast<uint64_t>(bytes)) %
          kDirectAlignment) == 0;
}

// 0, or the errno of the write that failed.
int PwriteAll(int fd, int64_t offset, const void* data, int64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(fd, from, static_cast<size_t>(bytes), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    if (written == 0) return ENOSPC;  // no known system does this; an endless loop would be worse
    from += written;
    offset += written;
    bytes -= written;
  }
  return 0;
}

// A large file has two descriptors: aligned writes go past the page cache, the unaligned tail
// through it. SyncData covers both, since it is a property of the file.
class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd, int direct_fd)
      : path_(std::move(path)), fd_(fd), direct_fd_(direct_fd) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) close(fd_);
    if (direct_fd_ >= 0) close(direct_fd_);
  }

  absl::Status Preallocate(int64_t bytes) override {
    return bytes == 0 ? absl::OkStatus() : ReserveSpace(fd_, path_, bytes).status();
  }

  absl::Status WriteAt(int64_t offset, const void* data, int64_t bytes) override {
    const int64_t direct_bytes =
        direct_fd_ >= 0 && !direct_refused_ ? bytes - bytes % kDirectAlignment : 0;
    int64_t done = 0;
    if (direct_bytes > 0 && IsAligned(offset, data, direct_bytes)) {
      const int error = PwriteAll(direct_fd_, offset, data, direct_bytes);
      if (error != 0 && error != EINVAL) return ErrnoStatus("write", path_, error);
      // EINVAL: this disk wants another alignment, so the page cache takes all from here on.
      direct_refused_ = error == EINVAL;
      done = error == 0 ? direct_bytes : 0;
    }
    const int error =
        PwriteAll(fd_, offset + done, static_cast<const char*>(data) + done, bytes - done);
    return error == 0 ? absl::OkStatus() : ErrnoStatus("write", path_, error);
  }

  absl::Status SyncData() override {
    return fdatasync(fd_) == 0 ? absl::OkStatus() : ErrnoStatus("fdatasync", path_);
  }

  absl::Status Close() override {
    absl::Status status;
    for (int* fd : {&direct_fd_, &fd_}) {
      if (*fd >= 0 && close(*fd) != 0) status.Update(ErrnoStatus("close", path_));
      *fd = -1;
    }
    return status;
  }

 private:
  const std::string path_;
  int fd_;
  int direct_fd_;  // -1: the file system has no O_DIRECT, or the file is small
  std::atomic<bool> direct_refused_ = false;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(std::string path, UniqueFd fd, int64_t size)
      : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

  int64_t size() const override { return size_; }
  absl::Status ReadAt(int64_t offset, void* dst, int64_t bytes) const override {
    char* to = static_cast<char*>(dst);
    while (bytes > 0) {
      const ssize_t got = pread(fd_.get(), to, static_cast<size_t>(bytes), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoStatus("read", path_);
      if (got == 0) return OutOfRange("read '" + path_ + "': the file ends too early");
      to += got;
      offset += got;
      bytes -= got;
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const UniqueFd fd_;
  const int64_t size_;
};

class PosixAppendableFile final : public AppendableFile {
 public:
  PosixAppendableFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  absl::Status Append(absl::string_view text) override {
    const ssize_t written = write(fd_.get(), text.data(), text.size());
    if (written < 0) return ErrnoStatus("append to", path_);
    return written == static_cast<ssize_t>(text.size()) ? absl::OkStatus()
                                                        : ErrnoStatus("append to", path_, ENOSPC);
  }

 private:
  const std::string path_;
  const UniqueFd fd_;
};

class PosixFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> CreateNew(const std::string& path,
                                                          bool large) override {
    const int fd = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0) return ErrnoStatus("create", path);
    const int direct_fd = large ? open(path.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT) : -1;
    return std::make_unique<PosixWritableFile>(path, fd, direct_fd);
  }

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    ASSIGN_OR_RETURN(UniqueFd fd, OpenRegular(path, O_RDONLY));
    struct stat info {};
    if (fstat(fd.get(), &info) != 0) return ErrnoStatus("stat", path);
    return std::make_unique<PosixReadableFile>(path, std::move(fd), info.st_size);
  }

  absl::StatusOr<std::unique_ptr<AppendableFile>> OpenForAppend(const std::string& path) override {
    ASSIGN_OR_RETURN(UniqueFd fd, OpenRegular(path, O_CREAT | O_WRONLY | O_APPEND));
    return std::make_unique<PosixAppendableFile>(path, std::move(fd));
  }

  absl::Status MakeDirectory(const std::string& path) override {
    return mkdir(path.c_str(), 0755) == 0 ? absl::OkStatus() : ErrnoStatus("mkdir", path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    struct stat ours {
    }, theirs{};
    const bool is_there = lstat(from.c_str(), &ours) == 0;
    if (rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
    const int error = errno;
    // The time, too: the number of a file that is gone is soon another one's.
    const bool is_done = error == ENOENT && is_there && lstat(to.c_str(), &theirs) == 0 &&
                         ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino &&
                         ours.st_mtim.tv_sec == theirs.st_mtim.tv_sec &&
                         ours.st_mtim.tv_nsec == theirs.st_mtim.tv_nsec;
    return is_done ? absl::OkStatus() : ErrnoStatus("rename to", to, error);
  }
  absl::Status RemoveFile(const std::string& path) override {
    return unlink(path.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus("unlink", path);
  }
  absl::Status RemoveDirectory(const std::string& path) override {
    return rmdir(path.c_str()) == 0 ? absl::OkStatus() : ErrnoStatus("rmdir", path);
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid()) return ErrnoStatus("open directory", path);
    return fsync(fd.get()) == 0 ? absl::OkStatus() : ErrnoStatus("fsync directory", path);
  }

  absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) override {
    DIR* const directory = opendir(path.c_str());
    if (directory == nullptr) return ErrnoStatus("list", path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(directory)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    const int error = errno;
    closedir(directory);
    if (error != 0) return ErrnoStatus("list", path, error);
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override {
    struct statvfs info {};
    if (statvfs(path.c_str(), &info) != 0) return ErrnoStatus("statvfs", path);
    return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  }
};

}  // namespace

absl::StatusOr<bool> ReserveSpace(int fd, absl::string_view path, int64_t bytes,
                                  AllocateCall allocate) {
  if (allocate == nullptr) allocate = &::fallocate;
  int result = 0;
  do {
    result = allocate(fd, /*mode=*/0, /*offset=*/0, bytes);
  } while (result != 0 && errno == EINTR);
  if (result == 0) return true;
  if (errno == EOPNOTSUPP || errno == ENOSYS) return false;
  return ErrnoStatus("fallocate", path);
}

std::string JoinPath(absl::string_view directory, absl::string_view name) {
  return absl::StrCat(directory, "/", name);
}

std::string ParentPath(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

std::string BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == absl::string_view::npos ? path : path.substr(slash + 1));
}

absl::StatusOr<std::string> ReadSmallFile(FileSystem* fs, const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, fs->OpenForRead(path));
  if (file->size() > kMaxSmallFileBytes) {
    return DataLoss("'", path, "' has ", file->size(), " bytes; a file of this kind has at most ",
                    kMaxSmallFileBytes);
  }
  std::string content(static_cast<size_t>(file->size()), '\0');
  RETURN_IF_ERROR(file->ReadAt(0, content.data(), file->size()));
  return content;
}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(FileSystem* fs,
                                                               const std::string& path) {
  const std::string temporary = path + ".tmp";
  const absl::Status removed = fs->RemoveFile(temporary);
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs->CreateNew(temporary, /*large=*/false));
  return std::unique_ptr<AtomicFile>(new AtomicFile(fs, path, std::move(file)));
}

AtomicFile::~AtomicFile() {
  if (!is_renamed_) fs_->RemoveFile(path_ + ".tmp").IgnoreError();
}

absl::Status AtomicFile::Append(absl::string_view bytes) {
  buffer_.append(bytes.data(), bytes.size());
  return buffer_.size() >= kBufferBytes ? Flush() : absl::OkStatus();
}

absl::Status AtomicFile::Flush() {
  const auto bytes = std::ssize(buffer_);
  RETURN_IF_ERROR(file_->WriteAt(flushed_, buffer_.data(), bytes));
  flushed_ += bytes;
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit(bool is_durable) {
  if (!buffer_.empty()) RETURN_IF_ERROR(Flush());
  if (is_durable) RETURN_IF_ERROR(file_->SyncData());
  // Some file systems report a failed write only here.
  RETURN_IF_ERROR(file_->Close());
  RETURN_IF_ERROR(fs_->Rename(path_ + ".tmp", path_));
  is_renamed_ = true;
  return is_durable ? fs_->SyncDirectory(ParentPath(path_)) : absl::OkStatus();
}

absl::Status WriteFileAtomically(FileSystem* fs, const std::string& path, absl::string_view content,
                                 bool is_durable) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(fs, path));
  RETURN_IF_ERROR(file->file().WriteAt(0, content.data(), std::ssize(content)));
  return file->Commit(is_durable);
}

absl::Status RemoveDirectoryWithFiles(FileSystem* fs, const std::string& path) {
  if (fs->RemoveFile(path).ok()) return absl::OkStatus();  // refused for a directory
  const absl::StatusOr<std::vector<std::string>> names = fs->ListDirectory(path);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    const absl::Status removed = fs->RemoveFile(JoinPath(path, name));
    if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  }
  const absl::Status removed = fs->RemoveDirectory(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;  // another thread was quicker
}

FileSystem* FileSystem::Posix() {
  static PosixFileSystem* const posix = new PosixFileSystem;
  return posix;
}

}  // namespace anyorder
