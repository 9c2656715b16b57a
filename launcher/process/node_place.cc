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
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"
#include "launcher/process/command_line.h"
#include "launcher/process/host_names.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

constexpr char kSharedMemory[] = "/dev/shm";
constexpr char kScratchPrefix[] = "anyorder-";

std::string ScratchRecord(const std::string& run_dir, const std::string& node) {
  return absl::StrCat(run_dir, "/.launch/scratch.", node);
}

// Where others can rename or remove what is ours no check lasts.
void WarnIfOthersRule(const std::string& parent) {
  struct stat info {};
  if (::stat(parent.c_str(), &info) != 0) return;  // mkdtemp says it better
  const bool is_trusted = info.st_uid == 0 || info.st_uid == ::geteuid();
  if (is_trusted && ((info.st_mode & 022) == 0 || (info.st_mode & S_ISVTX) != 0)) return;
  LogWarning(absl::StrFormat(
      "other users may replace files in '%s' (owner %d, mode %o); have it owned by root with mode "
      "1777, or set TMPDIR to a directory of your own",
      parent, info.st_uid, info.st_mode & 07777));
}

absl::StatusOr<std::string> MakePrivate(const std::string& parent) {
  WarnIfOthersRule(parent);
  std::string path = absl::StrCat(parent, "/", kScratchPrefix, "XXXXXX");
  if (::mkdtemp(path.data()) == nullptr) return ErrnoStatus("mkdir", path);
  return path;
}

// Whether MakePrivate made it: a name in a record may belong to somebody else by now.
bool IsPrivate(const std::string& path) {
  struct stat info {};
  return IsScratchName(path) && ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == ::geteuid() && (info.st_mode & 077) == 0;
}

absl::StatusOr<NodeScratch> ReadScratch(const std::string& record) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(record, kMaxSettingsBytes));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  NodeScratch scratch;
  scratch.files = lines[0];
  if (lines.size() > 1) scratch.shared_memory = lines[1];
  return scratch;
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
absl::Status CleanNode(const std::string& run_dir, const std::string& mark,
                       const std::string& nodes) {
  ASSIGN_OR_RETURN(const NodePlace place, FindNodePlace(nodes));
  // Where the run directory is another one, there is nothing to remove.
  const absl::Status seen = SeeSharedMark(mark);
  if (!seen.ok()) {
    std::cout << kOtherDirectoryAnswer << place.name << " " << seen.message() << std::endl;
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(RemoveScratch(run_dir, place.name));
  std::cout << kCleanNodeAnswer << place.name << std::endl;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NodePlace> FindNodePlace(const std::string& nodes) {
  const std::vector<std::string> all = absl::StrSplit(nodes, ',', absl::SkipEmpty());
  const char* const given = ::getenv("SLURMD_NODENAME");
  const auto found = given != nullptr ? std::find(all.begin(), all.end(), given)
                                      : std::find_if(all.begin(), all.end(), IsThisHost);
  if (found == all.end()) {
    return InvalidArgument("this process runs on node ", given != nullptr ? given : HostName(),
                           ", which is not in --nodes ", nodes);
  }
  return NodePlace{*found, static_cast<int>(found - all.begin()), static_cast<int>(all.size())};
}

NodeAnswers ReadNodeAnswers(absl::string_view output) {
  NodeAnswers answers;
  for (const absl::string_view line : absl::StrSplit(output, '\n')) {
    absl::string_view name = line;
    if (absl::ConsumePrefix(&name, kCleanNodeAnswer)) {
      answers.nodes.insert(std::string(name));
    } else if (absl::ConsumePrefix(&name, kOtherDirectoryAnswer)) {
      answers.elsewhere = std::string(name);
    } else if (!line.empty()) {
      LogWarning(line);
    }
  }
  return answers;
}

absl::Status NotShared(const std::string& run_dir, const std::string& elsewhere) {
  const std::pair<std::string, std::string> node =
      absl::StrSplit(elsewhere, absl::MaxSplits(' ', 1));
  return InvalidArgument("run directory '", run_dir, "' is not the same on node ", node.first, " (",
                         node.second,
                         "); put it on a file system that all nodes share, at the same path");
}

bool IsScratchName(const std::string& path) {
  return absl::StartsWith(BaseName(path), kScratchPrefix);
}

absl::StatusOr<NodeScratch> MakeScratch(const std::string& run_dir, const std::string& node,
                                        const std::string& parent) {
  NodeScratch scratch;
  ASSIGN_OR_RETURN(scratch.files, MakePrivate(parent));
  absl::Cleanup remove = [&scratch] { RemoveScratch(scratch).IgnoreError(); };
  if (::access(kSharedMemory, W_OK) == 0) {
    ASSIGN_OR_RETURN(scratch.shared_memory, MakePrivate(kSharedMemory));
  }
  RETURN_IF_ERROR(
      WriteFileAtomically(ScratchRecord(run_dir, node),
                          absl::StrCat(scratch.files, "\n", scratch.shared_memory, "\n")));
  std::move(remove).Cancel();
  return scratch;
}

absl::Duration NameCacheTime(int64_t f_type) {
  for (const int64_t local :
       {0xEF53L /* ext */, 0x58465342L /* xfs */, 0x9123683EL /* btrfs */, 0x2FC12FC1L /* zfs */,
        0x01021994L /* tmpfs */, 0x794C7630L /* overlayfs */, 0xF2F52010L /* f2fs */}) {
    if (f_type == local) return absl::Seconds(2);
  }
  return absl::Minutes(1);
}

absl::StatusOr<NodeScratch> FindScratch(const std::string& run_dir, const std::string& node) {
  const std::string record = ScratchRecord(run_dir, node);
  absl::StatusOr<NodeScratch> scratch = ReadScratch(record);
  if (absl::IsNotFound(scratch.status())) {
    return InvalidArgument("'", record, "' is missing: no checkpoint service of this run began on ",
                           node, "; start services and ranks by `anyorder launch`");
  }
  RETURN_IF_ERROR(scratch.status());
  for (const std::string& path : {scratch->files, scratch->shared_memory}) {
    if (IsPrivate(path) || (path.empty() && !scratch->files.empty())) continue;
    return PermissionDenied("'", path, "', which '", record,
                            "' names, is no private directory of this user; start the run again");
  }
  return scratch;
}

absl::Status RemoveScratch(const std::string& run_dir, const std::string& node) {
  const std::string record = ScratchRecord(run_dir, node);
  const absl::StatusOr<NodeScratch> scratch = ReadScratch(record);
  if (absl::IsNotFound(scratch.status())) return absl::OkStatus();
  RETURN_IF_ERROR(scratch.status());
  RETURN_IF_ERROR(RemoveScratch(*scratch));
  const absl::Status removed = FileSystem::Posix()->RemoveFile(record);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;  // NFS may ask twice
}

absl::Status RemoveScratch(const NodeScratch& scratch) {
  for (const std::string& path : {scratch.files, scratch.shared_memory}) {
    if (!IsPrivate(path)) continue;
    std::error_code error;
    fs::remove_all(path, error);
    if (error) return ErrnoStatus("remove", path, error.value());
  }
  return absl::OkStatus();
}

std::string ServiceSocket(const NodeScratch& scratch, int64_t attempt) {
  return absl::StrCat(scratch.files, "/ckptd-", attempt, ".sock");
}

absl::StatusOr<std::string> WriteSharedMark(const std::string& run_dir) {
  const std::string directory = run_dir + "/.launch";
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    if (absl::StartsWith(it->path().filename().string(), kPrefix)) ::unlink(it->path().c_str());
  std::random_device random;
  const std::string path = absl::StrFormat("%s/%s%08x%08x", directory, kPrefix, random(), random());
  RETURN_IF_ERROR(WriteFileAtomically(path, "\n"));
  return path;
}

Subcommand DeclareCleanNode(CLI::App& front) {
  struct Line {
    std::string run_dir, mark, nodes;
  };
  const auto line = std::make_shared<Line>();
  CLI::App* command =
      AddCommand(front, "clean-node", "A step of launch on several machines.", {})->group("");
  AddPath(command, "--run-dir", line->run_dir, "as in launch")->required();
  AddPath(command, "--mark", line->mark, "a file that the launcher wrote into the run directory")
      ->required();
  command->add_option("--nodes", line->nodes, "names of the machines, with commas")->required();
  return {command, [line] { return Report(CleanNode(line->run_dir, line->mark, line->nodes)); }};
}

}  // namespace anyorder::launcher
