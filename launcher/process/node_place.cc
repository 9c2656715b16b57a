#include "launcher/process/node_place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "core/base/crc32c.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

constexpr char kSharedMemory[] = "/dev/shm";

std::string Hash(const std::string& text) {
  return absl::StrFormat("%08x", Crc32c(text.data(), static_cast<int64_t>(text.size())));
}

absl::Status MakePrivate(const std::string& path) {
  if (path.empty() || ::mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
  if (errno != EEXIST) return ErrnoStatus("mkdir", path);
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
      (info.st_mode & 077) == 0) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "'", path, "' must be a directory with mode 0700 that this user owns; have it removed"));
}

}  // namespace

absl::StatusOr<NodePlace> FindNodePlace(const std::string& nodes,
                                        const EnvironmentLookup& environment) {
  const char* const name = environment("SLURMD_NODENAME");
  if (name == nullptr) {
    return absl::InvalidArgumentError(
        "--nodes needs SLURMD_NODENAME, which Slurm sets in its steps; leave --nodes out "
        "elsewhere");
  }
  const std::vector<std::string> all = absl::StrSplit(nodes, ',', absl::SkipEmpty());
  const auto found = std::find(all.begin(), all.end(), name);
  if (found == all.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("this process runs on node ", name, ", which is not in --nodes ", nodes));
  }
  return NodePlace{name, static_cast<int>(found - all.begin()), static_cast<int>(all.size())};
}

NodeScratch ScratchOnNode(const std::string& run_dir, const std::string& node,
                          const std::string& parent) {
  const std::string name =
      absl::StrCat("/anyorder-", ::geteuid(), "-", Hash(run_dir), ".", Hash(node));
  NodeScratch scratch;
  scratch.files = parent + name;
  if (::access(kSharedMemory, W_OK) == 0) scratch.shared_memory = kSharedMemory + name;
  return scratch;
}

std::vector<std::string> MpiEnvironment(const NodeScratch& scratch) {
  std::vector<std::string> environment = {"OMPI_MCA_orte_tmpdir_base=" + scratch.files};
  if (!scratch.shared_memory.empty())
    environment.push_back("OMPI_MCA_btl_vader_backing_directory=" + scratch.shared_memory);
  return environment;
}

absl::Status MakeScratch(const NodeScratch& scratch) {
  ANYORDER_RETURN_IF_ERROR(MakePrivate(scratch.files));
  return MakePrivate(scratch.shared_memory);
}

absl::Status RemoveScratch(const NodeScratch& scratch) {
  for (const std::string& path : {scratch.files, scratch.shared_memory}) {
    struct stat info {};
    if (path.empty() || ::lstat(path.c_str(), &info) != 0) continue;
    if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid()) {
      return absl::PermissionDeniedError(
          absl::StrCat("'", path, "' must be a directory that this user owns; have it removed"));
    }
    std::error_code error;
    fs::remove_all(path, error);
    if (error) return ErrnoStatus("remove", path, error.value());
  }
  return absl::OkStatus();
}

std::string ServiceSocket(const NodeScratch& scratch, int64_t attempt) {
  return absl::StrCat(scratch.files, "/ckptd-", attempt, ".sock");
}

std::string ReadyFile(const std::string& run_dir, int64_t attempt, int index) {
  return absl::StrCat(run_dir, "/.launch/ready-", attempt, ".", index);
}

}  // namespace anyorder::launcher
