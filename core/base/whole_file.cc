#include "core/base/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"

#include "core/base/status.h"

namespace anyorder {
namespace {

namespace fs = std::filesystem;

// REQUIRES: both are canonical, and the directory ends in a slash.
bool IsInside(const fs::path& file, const std::string& directory) {
  const fs::path blobs = file.parent_path(), model = blobs.parent_path();
  return absl::StartsWith(file.string(), directory) ||
         (blobs.filename() == "blobs" && absl::StartsWith(model.filename().string(), "models--") &&
          absl::StartsWith(directory, (model / "snapshots/").string()));
}

absl::StatusOr<std::string> ReadAll(const UniqueFd& fd, const std::string& path,
                                    int64_t max_bytes) {
  std::string bytes;
  char block[1 << 16];
  ssize_t got = 0;
  while ((got = ::read(fd.get(), block, sizeof block)) > 0) {
    bytes.append(block, static_cast<size_t>(got));
    if (std::ssize(bytes) <= max_bytes) continue;
    return DataLoss("read '", path, "': more than ", max_bytes,
                    " bytes, the most that a file of this kind may have");
  }
  if (got < 0) return ErrnoStatus("read", path);
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd.valid() ? ReadAll(fd, path, max_bytes) : ErrnoStatus("open", path);
}

absl::StatusOr<UniqueFd> OpenRegular(const std::string& path, int flags) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644));
  // Another machine has a lease on it (fcntl(2)), whose end is waited for.
  if (!fd.valid() && errno == EWOULDBLOCK)
    fd = UniqueFd(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  struct stat info {};
  const bool is_other = fd.valid() ? ::fstat(fd.get(), &info) == 0 && !S_ISREG(info.st_mode)
                                   : errno == ENOTDIR || errno == ELOOP || errno == ENXIO;
  if (is_other) return DataLoss("open '", path, "': not a regular file in a directory");
  if (!fd.valid()) return ErrnoStatus("open", path);
  return fd;
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegular(path, O_RDONLY));
  return ReadAll(fd, path, max_bytes);
}

absl::Status CheckFileInside(const std::string& directory, const std::string& name) {
  const fs::path path = fs::path(directory) / name;
  std::error_code error, ignored;
  const std::string root =
      (fs::canonical(directory.empty() ? "." : directory, error) / "").string();
  const fs::path file = error ? path : fs::canonical(path, error);
  if (error && !fs::is_symlink(path, ignored))
    return ErrnoStatus("open", path.string(), error.value());
  if (error || !IsInside(file, root)) {
    const fs::path target = error ? fs::read_symlink(path, ignored) : file;
    return FailedPrecondition("'", path.string(), "' leads to '", target.string(), "', ",
                              error ? "which cannot be read" : "which is not in its directory",
                              "; put the file itself there if it is meant (cp -L)");
  }
  if (fs::is_regular_file(file, ignored)) return absl::OkStatus();
  return FailedPrecondition("'", path.string(), "' is not a plain file; remove it");
}

absl::StatusOr<std::string> ReadFileInside(const std::string& directory, const std::string& name,
                                           int64_t max_bytes) {
  RETURN_IF_ERROR(CheckFileInside(directory, name));
  return ReadWholeFile((fs::path(directory) / name).string(), max_bytes);
}

}  // namespace anyorder
