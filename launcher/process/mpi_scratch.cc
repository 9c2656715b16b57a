#include "launcher/process/mpi_scratch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "data/dataset/digest.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

constexpr char kSharedMemory[] = "/dev/shm";

// An empty directory that only we can use. Others may write to its parent, so what is there is not
// trusted.
absl::Status MakeAnew(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid())) {
    return absl::PermissionDeniedError(
        absl::StrCat("'", path, "' must be a directory that this user owns; have it removed"));
  }
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return ErrnoStatus("remove", path, error.value());
  return ::mkdir(path.c_str(), 0700) == 0 ? absl::OkStatus() : ErrnoStatus("mkdir", path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MpiScratch>> MpiScratch::Create(const std::string& run_dir) {
  std::error_code error;
  const fs::path root = fs::canonical(run_dir, error);
  if (error) return ErrnoStatus("resolve", run_dir, error.value());
  const fs::path temporary = fs::temp_directory_path(error);
  if (error) return ErrnoStatus("find", "the temporary directory (TMPDIR)", error.value());
  const std::string name = absl::StrCat("anyorder-", ::geteuid(), "-",
                                        data::DigestOf(root.string()).Hex().substr(0, 16));

  std::unique_ptr<MpiScratch> scratch(new MpiScratch);
  ANYORDER_RETURN_IF_ERROR(MakeAnew((temporary / name).string()));
  scratch->session_ = (temporary / name).string();
  if (::access(kSharedMemory, W_OK) == 0) {
    const std::string segments = absl::StrCat(kSharedMemory, "/", name);
    ANYORDER_RETURN_IF_ERROR(MakeAnew(segments));
    scratch->segments_ = segments;
  }
  return scratch;
}

MpiScratch::~MpiScratch() {
  std::error_code ignored;  // the next start removes what is left
  for (const std::string& path : {session_, segments_}) {
    if (!path.empty()) fs::remove_all(path, ignored);
  }
}

std::vector<std::string> MpiScratch::Environment() const {
  std::vector<std::string> environment = {"OMPI_MCA_orte_tmpdir_base=" + session_};
  if (!segments_.empty())
    environment.push_back("OMPI_MCA_btl_vader_backing_directory=" + segments_);
  return environment;
}

}  // namespace anyorder::launcher
