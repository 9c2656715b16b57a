#include "ckpt/lease.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

#include "ckpt/json_values.h"
#include "ckpt/layout.h"
#include "core/base/status.h"

namespace anyorder::ckpt {
namespace {

// Two claimants of one dead lease both rename theirs into place; after this long the earlier one
// sees that it lost.
constexpr absl::Duration kSettle = absl::Milliseconds(50);
// "LEASE.<attempt>.<process>.tmp"
constexpr char kClaimPrefix[] = "LEASE.";
constexpr char kClaimSuffix[] = ".tmp";

// Files of /proc, which are not the run's data and so do not go through FileSystem.
std::string ReadProcFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Field 22 of /proc/PID/stat, counted after the command, which may hold spaces; 0 if there is no
// such process or its files are hidden from us.
int64_t StartTimeOf(int64_t pid) {
  const std::string stat = ReadProcFile(absl::StrCat("/proc/", pid, "/stat"));
  const size_t command_end = stat.rfind(')');
  if (command_end == std::string::npos) return 0;
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(stat).substr(command_end + 1), ' ', absl::SkipEmpty());
  int64_t start = 0;
  // State is field 3 and the first here; a zombie has left all its work behind.
  if (fields.size() < 20 || fields[0] == "Z" || !absl::SimpleAtoi(fields[19], &start)) return 0;
  return start;
}

// Another user's process, in a /proc that hides those (hidepid): it is there, but nothing tells
// whether its number was given to someone else meanwhile.
bool IsHidden(int64_t pid) {
  return StartTimeOf(pid) == 0 && kill(static_cast<pid_t>(pid), 0) != 0 && errno == EPERM;
}

std::string ThisMachine() {
  std::string boot = ReadProcFile("/proc/sys/kernel/random/boot_id");
  if (!boot.empty() && boot.back() == '\n') boot.pop_back();
  std::array<char, 64> space{};
  const ssize_t length = readlink("/proc/self/ns/pid", space.data(), space.size() - 1);
  return absl::StrCat(boot, " ", length > 0 ? space.data() : "");
}

std::string SerializeOwner(const LeaseOwner& owner) {
  return SealJson({{"run_id", owner.run_id},
                   {"attempt", owner.attempt},
                   {"host", owner.host},
                   {"machine", owner.machine},
                   {"pid", owner.pid},
                   {"pid_start", owner.pid_start},
                   {"job", owner.job},
                   {"socket", owner.socket_path},
                   {"beat", owner.beat}});
}

absl::StatusOr<LeaseOwner> ParseOwner(absl::string_view text) {
  ANYORDER_ASSIGN_OR_RETURN(const ParsedJson json, OpenSealedJson(text));
  LeaseOwner owner;
  ANYORDER_ASSIGN_OR_RETURN(owner.run_id, GetString(json, "run_id"));
  ANYORDER_ASSIGN_OR_RETURN(owner.attempt, GetInt(json, "attempt"));
  ANYORDER_ASSIGN_OR_RETURN(owner.host, GetString(json, "host"));
  ANYORDER_ASSIGN_OR_RETURN(owner.machine, GetString(json, "machine"));
  ANYORDER_ASSIGN_OR_RETURN(owner.pid, GetInt(json, "pid"));
  ANYORDER_ASSIGN_OR_RETURN(owner.pid_start, GetInt(json, "pid_start"));
  ANYORDER_ASSIGN_OR_RETURN(owner.job, GetString(json, "job"));
  ANYORDER_ASSIGN_OR_RETURN(owner.socket_path, GetString(json, "socket"));
  ANYORDER_ASSIGN_OR_RETURN(owner.beat, GetInt(json, "beat"));
  return owner;
}

// OK once the lease may be taken: absent, its owner known dead, or its content unchanged for
// `lifetime` of a clock that nobody sets. A damaged file has no owner to ask and is watched like
// one on another machine.
absl::Status WaitUntilDead(FileSystem* fs, const std::string& run_dir, const LeaseOwner& me,
                           absl::Duration lifetime,
                           const std::function<bool(const LeaseOwner&)>& has_ended) {
  const std::string path = JoinPath(run_dir, kLeaseName);
  std::string first;
  const auto start = std::chrono::steady_clock::now();
  for (;; absl::SleepFor(lifetime / 20)) {
    const absl::StatusOr<std::string> text = ReadSmallFile(fs, path);
    if (absl::IsNotFound(text.status())) return absl::OkStatus();
    ANYORDER_RETURN_IF_ERROR(text.status());
    const absl::StatusOr<LeaseOwner> owner = ParseOwner(*text);
    const bool is_readable = owner.ok();
    if (is_readable && owner->run_id == me.run_id && owner->attempt >= me.attempt) {
      return AlreadyExists("'", run_dir, "' was claimed by a later start: ", owner->ToString(),
                           "; this one must not write");
    }
    if (is_readable && IsKnownDead(*owner)) return absl::OkStatus();
    const bool is_first_look = first.empty();
    if (is_first_look && is_readable && has_ended && has_ended(*owner)) return absl::OkStatus();
    const bool is_local = is_readable && owner->machine == me.machine && !IsHidden(owner->pid);
    if (first.empty()) first = *text;
    if (is_local || (is_readable && first != *text)) {
      return AlreadyExists("'", run_dir, "' is in use by ", owner->ToString(),
                           "; stop it first or take another run directory");
    }
    if (absl::FromChrono(std::chrono::steady_clock::now() - start) > lifetime)
      return absl::OkStatus();
  }
}

// A claimant that was killed while it wrote leaves its temporary file; later starts have other
// names.
void RemoveDeadClaims(FileSystem* fs, const std::string& run_dir, int64_t attempt) {
  const absl::StatusOr<std::vector<std::string>> names = fs->ListDirectory(run_dir);
  for (size_t i = 0; names.ok() && i < names->size(); ++i) {
    absl::string_view rest = (*names)[i];
    int64_t claimant = 0;
    if (absl::ConsumePrefix(&rest, kClaimPrefix) && absl::ConsumeSuffix(&rest, kClaimSuffix) &&
        absl::SimpleAtoi(rest.substr(0, rest.find('.')), &claimant) && claimant < attempt) {
      fs->RemoveFile(JoinPath(run_dir, (*names)[i])).IgnoreError();
    }
  }
}

}  // namespace

std::string LeaseOwner::ToString() const {
  return absl::StrCat("run '", run_id, "', attempt ", attempt, ", process ", pid, " on ", host,
                      job.empty() ? "" : absl::StrCat(" (job ", job, ")"));
}

bool LeaseOwner::IsSameProcess(const LeaseOwner& other) const {
  return run_id == other.run_id && attempt == other.attempt && machine == other.machine &&
         pid == other.pid && pid_start == other.pid_start;
}

LeaseOwner DescribeThisProcess(const std::string& run_id, int64_t attempt,
                               const std::string& socket_path) {
  LeaseOwner owner;
  owner.run_id = run_id;
  owner.attempt = attempt;
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  owner.host = host.data();
  owner.machine = ThisMachine();
  owner.pid = getpid();
  owner.pid_start = StartTimeOf(owner.pid);
  const char* const job = std::getenv("SLURM_JOB_ID");
  const char* const restarts = std::getenv("SLURM_RESTART_COUNT");  // unset in a job's first run
  const char* const cluster = std::getenv("SLURM_CLUSTER_NAME");
  owner.job = job == nullptr ? "" : job;
  if (job != nullptr && cluster != nullptr) absl::StrAppend(&owner.job, " of ", cluster);
  if (job != nullptr && restarts != nullptr) absl::StrAppend(&owner.job, " restart ", restarts);
  owner.socket_path = socket_path;
  return owner;
}

bool IsKnownDead(const LeaseOwner& owner) {
  return owner.machine == ThisMachine() && !IsHidden(owner.pid) &&
         StartTimeOf(owner.pid) != owner.pid_start;
}

absl::StatusOr<LeaseOwner> ReadLease(FileSystem* fs, const std::string& run_dir) {
  const std::string path = JoinPath(run_dir, kLeaseName);
  ANYORDER_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(fs, path));
  absl::StatusOr<LeaseOwner> owner = ParseOwner(text);
  if (!owner.ok()) return Annotate(owner.status(), absl::StrCat("'", path, "'"));
  return owner;
}

Lease::Lease(FileSystem* fs, std::string run_dir, LeaseOwner me)
    : fs_(fs), run_dir_(std::move(run_dir)), me_(std::move(me)) {}

Lease::~Lease() { Release().IgnoreError(); }

absl::StatusOr<std::unique_ptr<Lease>> Lease::Acquire(
    FileSystem* fs, const std::string& run_dir, const LeaseOwner& me, absl::Duration lifetime,
    const std::function<bool(const LeaseOwner&)>& has_ended) {
  ANYORDER_RETURN_IF_ERROR(WaitUntilDead(fs, run_dir, me, lifetime, has_ended));
  std::unique_ptr<Lease> lease(new Lease(fs, run_dir, me));
  absl::Status taken = lease->WriteLocked();
  if (taken.ok()) {
    absl::SleepFor(kSettle);
    taken = lease->CheckHeldLocked();
  }
  if (taken.ok()) {
    RemoveDeadClaims(fs, run_dir, me.attempt);
    return lease;
  }
  lease->released_ = true;  // not ours to remove
  if (!absl::IsAborted(taken)) return taken;
  return absl::AlreadyExistsError(taken.message());
}

absl::Status Lease::WriteLocked() {
  ++me_.beat;
  // A temporary name of our own: two claimants must not write one file.
  const std::string temporary =
      JoinPath(run_dir_, absl::StrCat(kClaimPrefix, me_.attempt, ".", me_.pid, kClaimSuffix));
  fs_->RemoveFile(temporary).IgnoreError();
  const absl::Status written = WriteAndRename(temporary);
  if (!written.ok()) fs_->RemoveFile(temporary).IgnoreError();
  return written;
}

absl::Status Lease::WriteAndRename(const std::string& temporary) {
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                            fs_->CreateNew(temporary, /*large=*/false));
  const std::string text = SerializeOwner(me_);
  ANYORDER_RETURN_IF_ERROR(file->WriteAt(0, text.data(), static_cast<int64_t>(text.size())));
  ANYORDER_RETURN_IF_ERROR(file->SyncData());
  ANYORDER_RETURN_IF_ERROR(file->Close());
  return fs_->Rename(temporary, JoinPath(run_dir_, kLeaseName));
}

absl::Status Lease::CheckHeldLocked() {
  const absl::StatusOr<LeaseOwner> owner = ReadLease(fs_, run_dir_);
  if (absl::IsNotFound(owner.status())) return Aborted("the lease on '", run_dir_, "' was removed");
  ANYORDER_RETURN_IF_ERROR(owner.status());
  if (owner->IsSameProcess(me_)) return absl::OkStatus();
  return Aborted("the lease on '", run_dir_, "' was taken by ", owner->ToString());
}

absl::Status Lease::CheckHeld() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return CheckHeldLocked();
}

absl::Status Lease::Renew() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ANYORDER_RETURN_IF_ERROR(CheckHeldLocked());
  return WriteLocked();
}

absl::Status Lease::Release() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (released_) return absl::OkStatus();
  released_ = true;
  ANYORDER_RETURN_IF_ERROR(CheckHeldLocked());
  return fs_->RemoveFile(JoinPath(run_dir_, kLeaseName));
}

}  // namespace anyorder::ckpt
