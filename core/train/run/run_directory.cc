#include "core/train/run/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "data/dataset/shard_format.h"

namespace anyorder {

absl::Status CheckIsRun(absl::string_view directory) {
  if (directory.empty()) return InvalidArgument("--run-dir is empty; name a directory");
  if (IsFile(RunDirectory(directory).config)) return absl::OkStatus();
  if (IsThere(absl::StrCat(directory, "/", data::kIndexFile))) {
    return InvalidArgument("'", directory,
                           "' is a dataset, not a run directory; `anyorder inspect` describes it");
  }
  return InvalidArgument("'", directory, "' is not a run directory: it ",
                         IsThere(std::string(directory)) ? "has no config.toml" : "does not exist",
                         "; 'anyorder launch --config FILE --run-dir DIR' starts a run");
}

absl::StatusOr<AppendFile> AppendFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenRegular(path, O_RDWR | O_CREAT | O_APPEND));
  AppendFile file(std::move(fd), path);
  ASSIGN_OR_RETURN(const int64_t cut, file.CutFragment());
  if (cut > 0)
    Log(absl::StrCat("'", path, "': cut off ", Counted(cut, "byte"),
                     " of a last line that was never complete"));
  if (::lseek(file.fd_.get(), 0, SEEK_END) == 0)
    RETURN_IF_ERROR(FileSystem::Posix()->SyncDirectory(ParentPath(path)));
  return file;
}

absl::Status AppendFile::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus("write", path_);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status AppendFile::AppendLine(absl::string_view line) {
  const off_t size = ::lseek(fd_.get(), 0, SEEK_END);
  char last = '\n';
  if (size < 0 || (size > 0 && ::pread(fd_.get(), &last, 1, size - 1) < 0))
    return ErrnoStatus("read", path_);
  return Append(absl::StrCat(last == '\n' ? "" : "\n", line, "\n"));
}

absl::StatusOr<int64_t> AppendFile::CutFragment() {
  off_t size = ::lseek(fd_.get(), 0, SEEK_END);
  const off_t whole_file = size;
  char last = 0;
  while (size > 0) {
    if (::pread(fd_.get(), &last, 1, size - 1) != 1) return ErrnoStatus("read", path_);
    if (last == '\n') break;
    --size;
  }
  if (size < whole_file && ::ftruncate(fd_.get(), size) != 0) return ErrnoStatus("truncate", path_);
  return whole_file - size;
}

absl::Status AppendFile::Sync() {
  return ::fdatasync(fd_.get()) == 0 ? absl::OkStatus() : ErrnoStatus("sync", path_);
}

}  // namespace anyorder
