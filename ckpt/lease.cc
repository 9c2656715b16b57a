#include "ckpt/lease.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "ckpt/json_values.h"
#include "ckpt/layout.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/whole_file.h"

namespace anyorder::ckpt {
namespace {

// Two claimants of one dead lease both rename theirs into place; after this long the earlier one
// sees that it lost.
constexpr absl::Duration kSettle = absl::Milliseconds(50);
// "LEASE.<attempt>.<process>.tmp"
constexpr char kClaimPrefix[] = "LEASE.";
constexpr char kClaimSuffix[] = ".tmp";
// The beat of an owner that has given the lease back.
constexpr int64_t kReleasedBeat = 0;

// Files of /proc, which are not the run's data and so do not go through FileSystem.
std::string ReadProcFile(const std::string& path) {
  return ReadWholeFile(path, kMaxSettingsBytes).value_or("");
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

void VisitOwner(auto& owner, auto&& visit) {
  visit("run_id", owner.run_id);
  visit("attempt", owner.attempt);
  visit("host", owner.host);
  visit("machine", owner.machine);
  visit("pid", owner.pid);
  visit("pid_start", owner.pid_start);
  visit("job", owner.job);
  visit("socket", owner.socket_path);
  visit("beat", owner.beat);
}

std::string SerializeOwner(const LeaseOwner& owner) {
  Json json;
  VisitOwner(owner, MemberWriter(json));
  return SealJson(json);
}

absl::StatusOr<LeaseOwner> ParseOwner(absl::string_view text) {
  ASSIGN_OR_RETURN(const ParsedJson json, OpenSealedJson(text));
  LeaseOwner owner;
  StrictReader reader(json);
  VisitOwner(owner, reader);
  RETURN_IF_ERROR(reader.status());
  return owner;
}

// A name of the owner's own: two must not write one file.
std::string ClaimPath(const std::string& run_dir, const LeaseOwner& owner) {
  return JoinPath(run_dir, absl::StrCat(kClaimPrefix, owner.attempt, ".", owner.pid, kClaimSuffix));
}

absl::Status WriteSynced(FileSystem* fs, const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs->CreateNew(path, /*large=*/false));
  RETURN_IF_ERROR(file->WriteAt(0, text.data(), static_cast<int64_t>(text.size())));
  RETURN_IF_ERROR(file->SyncData());
  return file->Close();
}

absl::Status RemoveIfThere(FileSystem* fs, const std::string& path) {
  const absl::Status removed = fs->RemoveFile(path);
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

// The text of LEASE; empty if there is none.
absl::StatusOr<std::string> ReadText(FileSystem* fs, const std::string& run_dir) {
  absl::StatusOr<std::string> text = ReadSmallFile(fs, JoinPath(run_dir, kLeaseName));
  return absl::IsNotFound(text.status()) ? std::string() : std::move(text);
}

// The text of LEASE once it may be taken: absent or released, its owner known dead, or unchanged
// for `lifetime` of our clock. A damaged file has no owner to ask and is watched like one on
// another machine.
absl::StatusOr<std::string> AwaitFree(FileSystem* fs, const std::string& run_dir,
                                      const LeaseOwner& me, absl::Duration lifetime,
                                      const std::function<bool(const LeaseOwner&)>& has_ended,
                                      Clock* clock) {
  const absl::Time start = clock->Now();
  std::string first;
  for (;; clock->Sleep(lifetime / 20)) {
    ASSIGN_OR_RETURN(const std::string text, ReadText(fs, run_dir));
    const absl::StatusOr<LeaseOwner> owner = ParseOwner(text);
    const bool is_readable = owner.ok();
    if (text.empty() || (is_readable && owner->beat == kReleasedBeat)) return text;
    if (is_readable && owner->run_id == me.run_id && owner->attempt >= me.attempt) {
      return AlreadyExists("'", run_dir, "' was claimed by a later start: ", owner->ToString(),
                           "; this one must not write");
    }
    if (is_readable && IsKnownDead(*owner)) return text;
    if (first.empty() && is_readable && has_ended && has_ended(*owner)) return text;
    const bool is_local = is_readable && owner->machine == me.machine && !IsHidden(owner->pid);
    if (first.empty()) first = text;
    if (is_local || (is_readable && first != text)) {
      return AlreadyExists("'", run_dir, "' is in use by ", owner->ToString(),
                           "; stop it first or take another run directory");
    }
    if (clock->Now() - start > lifetime) return text;
  }
}

// Called when LEASE names `me`. What another process prepared before that could still be renamed
// over it, however late: the owner's renewal, and other claims. The owner's temporary file is
// removed by its name, because network file systems may list it late.
absl::Status RemoveOtherClaims(FileSystem* fs, const std::string& run_dir, const LeaseOwner& me,
                               const std::string& replaced) {
  if (const absl::StatusOr<LeaseOwner> owner = ParseOwner(replaced); owner.ok())
    RETURN_IF_ERROR(RemoveIfThere(fs, ClaimPath(run_dir, *owner)));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs->ListDirectory(run_dir));
  for (const std::string& name : names) {
    absl::string_view rest = name;
    int64_t attempt = 0;
    const std::string path = JoinPath(run_dir, name);
    if (absl::ConsumePrefix(&rest, kClaimPrefix) && absl::ConsumeSuffix(&rest, kClaimSuffix) &&
        absl::SimpleAtoi(rest.substr(0, rest.find('.')), &attempt) &&
        path != ClaimPath(run_dir, me)) {
      RETURN_IF_ERROR(RemoveIfThere(fs, path));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string LeaseOwner::ToString() const {
  return absl::StrCat("run '", run_id, "', attempt ", attempt, ", process ", pid, " on ", host,
                      job.empty() ? "" : absl::StrCat(" (job ", job, ")"));
}

LeaseOwner DescribeThisProcess(const std::string& run_id, int64_t attempt,
                               const std::string& socket_path) {
  LeaseOwner owner;
  owner.run_id = run_id;
  owner.attempt = attempt;
  owner.host = HostName();
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
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(fs, path));
  absl::StatusOr<LeaseOwner> owner = ParseOwner(text);
  if (!owner.ok()) return Annotate(owner.status(), absl::StrCat("'", path, "'"));
  if (owner->beat == kReleasedBeat)
    return NotFound("'", path, "': ", owner->ToString(), " has released it");
  return owner;
}

Lease::Lease(FileSystem* fs, std::string run_dir, LeaseOwner me)
    : fs_(fs), run_dir_(std::move(run_dir)), owner_(me), me_(std::move(me)) {}

absl::StatusOr<std::unique_ptr<Lease>> Lease::Acquire(
    FileSystem* fs, const std::string& run_dir, const LeaseOwner& me, absl::Duration lifetime,
    const std::function<bool(const LeaseOwner&)>& has_ended, Clock* clock) {
  std::unique_ptr<Lease> lease(new Lease(fs, run_dir, me));
  std::string found;
  for (absl::Status taken = absl::UnknownError(""); !taken.ok();) {
    ASSIGN_OR_RETURN(found, AwaitFree(fs, run_dir, me, lifetime, has_ended, clock));
    const MutexLock lock(&lease->mutex_);
    lease->me_.beat = kReleasedBeat + 1;
    taken = lease->Replace([&]() -> absl::Status {
      ASSIGN_OR_RETURN(const std::string text, ReadText(fs, run_dir));
      return text == found ? absl::OkStatus() : Aborted("'", run_dir, "' has another owner");
    });
    lease->is_ours_ = taken.ok();
    if (!taken.ok() && !absl::IsAborted(taken)) return taken;  // else: look who was faster
  }
  RETURN_IF_ERROR(RemoveOtherClaims(fs, run_dir, me, found));
  clock->Sleep(kSettle);
  const absl::Status held = lease->CheckHeld();
  if (absl::IsAborted(held)) return absl::AlreadyExistsError(held.message());
  RETURN_IF_ERROR(held);
  return lease;
}

absl::Status Lease::Replace(const std::function<absl::Status()>& may_replace) {
  const std::string temporary = ClaimPath(run_dir_, me_);
  fs_->RemoveFile(temporary).IgnoreError();
  absl::Status status = WriteSynced(fs_, temporary, SerializeOwner(me_));
  if (status.ok()) status = may_replace();
  if (status.ok()) {
    status = fs_->Rename(temporary, JoinPath(run_dir_, kLeaseName));
    if (absl::IsNotFound(status)) status = Aborted("a claimant removed '", temporary, "'");
  }
  if (!status.ok()) fs_->RemoveFile(temporary).IgnoreError();
  return status;
}

absl::Status Lease::CheckHeld() {
  const absl::StatusOr<LeaseOwner> owner = ReadLease(fs_, run_dir_);
  if (absl::IsNotFound(owner.status()))
    return Aborted("the lease on '", run_dir_, "' is gone: ", owner.status().message());
  RETURN_IF_ERROR(owner.status());
  if (owner->IsSameProcess(owner_)) return absl::OkStatus();
  return Aborted("the lease on '", run_dir_, "' was taken by ", owner->ToString());
}

absl::Status Lease::Renew() {
  const MutexLock lock(&mutex_);
  if (!is_ours_) return Aborted("the lease on '", run_dir_, "' was released");
  ++me_.beat;
  const absl::Status renewed = Replace([this] { return CheckHeld(); });
  // A claimant that came too late may have removed the temporary file.
  return absl::IsAborted(renewed) ? CheckHeld() : renewed;
}

absl::Status Lease::Release() {
  const MutexLock lock(&mutex_);
  if (!is_ours_) return absl::OkStatus();
  is_ours_ = false;
  RETURN_IF_ERROR(CheckHeld());
  // Removing LEASE by its name could, late, remove the next owner's.
  me_.beat = kReleasedBeat;
  return Replace([this] { return CheckHeld(); });
}

}  // namespace anyorder::ckpt
