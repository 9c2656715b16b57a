#include "launcher/process/private_files.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <system_error>

#include "core/base/status.h"

namespace anyorder::launcher {

namespace fs = std::filesystem;

void KeepFilesPrivate() {
  ::umask(077);
  // Within a job srun gives its tasks, and the files that it writes for them, the umask of the
  // job's submission.
  ::setenv("SLURM_UMASK", "0077", /*overwrite=*/1);
}

absl::Status CloseToOthers(const std::string& directory) {
  std::error_code error;
  fs::permissions(directory, fs::perms::group_all | fs::perms::others_all, fs::perm_options::remove,
                  error);
  if (!error) return absl::OkStatus();
  return Annotate(ErrnoStatus("change the mode of", directory, error.value()), "run.private");
}

}  // namespace anyorder::launcher
