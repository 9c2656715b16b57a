#include "launcher/process/run_place.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/train/run/run_directory.h"

namespace anyorder::launcher {

namespace fs = std::filesystem;

absl::Status CheckPlaceOfRun(const std::string& run_dir) {
  std::error_code error;
  const fs::file_status status = fs::status(run_dir, error);
  if (!fs::exists(status)) return absl::OkStatus();
  if (!fs::is_directory(status)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--run-dir '", run_dir, "' is not a directory; name a run's, or one that is new or empty"));
  }
  const RunDirectory paths(run_dir);
  for (const std::string& mark : {paths.config, paths.ledger, paths.launch}) {
    if (fs::exists(mark, error)) return absl::OkStatus();
  }
  fs::directory_iterator entries(run_dir, error);
  if (error) return ErrnoStatus("list", run_dir, error.value());
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "slurm") || absl::StartsWith(name, "submit")) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--run-dir '", run_dir, "' holds '", name,
                     "' and no run; name a run's directory, or one that is new or empty"));
  }
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
