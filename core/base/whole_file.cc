#include "core/base/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"

#include "core/base/status.h"
#include "core/base/unique_fd.h"

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

}  // namespace

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus("open", path);
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
