#include "launcher/process/node_place.h"

#include <CLI/CLI.hpp>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <random>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "core/base/crc32c.h"
#include "core/base/file_system.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "launcher/process/command_line.h"

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
  return PermissionDenied(
      "'", path, "' must be a directory with mode 0700 that this user owns; have it removed");
}

constexpr char kPrefix[] = "shared-";
// Less than the launcher waits for a node's step (slurm_backend.cc).
constexpr absl::Duration kPatience = absl::Seconds(5);

// OK once the file is seen, for which a few seconds are given; otherwise why not.
absl::Status SeeSharedMark(const std::string& path) {
  const absl::Time deadline = MonotonicNow() + kPatience;
  struct stat info {};
  while (::stat(path.c_str(), &info) != 0) {
    if (MonotonicNow() >= deadline) return ErrnoStatus("stat", path);
    absl::SleepFor(absl::Milliseconds(100));
  }
  return absl::OkStatus();
}

// Removes what earlier starts of the run left on this node, and says that the node runs steps.
absl::Status CleanNode(const std::string& run_dir, const std::string& mark) {
  const char* const name = ::getenv("SLURMD_NODENAME");
  if (name == nullptr) {
    return absl::InvalidArgumentError(
        "clean-node is a step that `anyorder launch --backend slurm` starts");
  }
  ANYORDER_RETURN_IF_ERROR(RemoveScratch(ScratchOnNode(run_dir, name)));
  const absl::Status seen = SeeSharedMark(mark);
  if (!seen.ok()) {
    std::cout << kOtherDirectoryAnswer << name << " " << seen.message() << std::endl;
    return absl::OkStatus();
  }
  std::cout << kCleanNodeAnswer << name << std::endl;
  return absl::OkStatus();
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
  if (found == all.end())
    return InvalidArgument("this process runs on node ", name, ", which is not in --nodes ", nodes);
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
      return PermissionDenied("'", path,
                              "' must be a directory that this user owns; have it removed");
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

absl::StatusOr<std::string> WriteSharedMark(const std::string& run_dir) {
  const std::string directory = run_dir + "/.launch";
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;  // what stays only lies there
    if (absl::StartsWith(it->path().filename().string(), kPrefix)) fs::remove(it->path(), ignored);
  }
  std::random_device random;
  const std::string path = absl::StrFormat("%s/%s%08x%08x", directory, kPrefix, random(), random());
  ANYORDER_RETURN_IF_ERROR(WriteFileAtomically(path, "\n"));
  return path;
}

Subcommand DeclareCleanNode(CLI::App& front) {
  struct Line {
    std::string run_dir, mark;
  };
  const auto line = std::make_shared<Line>();
  CLI::App* command =
      AddCommand(front, "clean-node", "A step of launch --backend slurm.", {})->group("");
  AddPath(command, "--run-dir", line->run_dir, "as in launch")->required();
  AddPath(command, "--mark", line->mark, "a file that the launcher wrote into the run directory")
      ->required();
  return {command, [line] { return Report(CleanNode(line->run_dir, line->mark)); }};
}

}  // namespace anyorder::launcher
