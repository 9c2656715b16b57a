#include "launcher/process/shared_mark.h"

#include <sys/stat.h>

#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "core/base/file_system.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "shared-";
// Less than the launcher waits for a node's step (slurm_backend.cc).
constexpr absl::Duration kPatience = absl::Seconds(5);

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMark>> SharedMark::Write(const std::string& run_dir) {
  const std::string directory = run_dir + "/.launch";
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;  // what stays only lies there
    if (absl::StartsWith(it->path().filename().string(), kPrefix)) fs::remove(it->path(), ignored);
  }
  std::random_device random;
  const std::string path = absl::StrFormat("%s/%s%08x%08x", directory, kPrefix, random(), random());
  ANYORDER_RETURN_IF_ERROR(WriteFileAtomically(path, "\n"));
  return std::unique_ptr<SharedMark>(new SharedMark(path));
}

SharedMark::~SharedMark() {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

absl::Status SeeSharedMark(const std::string& path) {
  const absl::Time deadline = absl::Now() + kPatience;
  struct stat info {};
  while (::stat(path.c_str(), &info) != 0) {
    if (absl::Now() >= deadline) return ErrnoStatus("stat", path);
    absl::SleepFor(absl::Milliseconds(100));
  }
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
