#include <signal.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "ckpt/client.h"
#include "ckpt/layout.h"
#include "ckpt/reader.h"
#include "ckpt/service.h"
#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/mutex.h"
#include "core/base/status.h"

namespace anyorder::ckpt {

namespace {

// Of a step that is read whole before the service listens: one line each few seconds while bytes
// come, by which the launcher sees that waiting is worth it. Thread-safe.
class RecoveryLog {
 public:
  RecoveryLog(int64_t step, const std::function<absl::Status()>& fence)
      : step_(step), fence_(fence) {}

  // False once another owner has the run.
  bool Report(int64_t done, int64_t total) {
    const MutexLock lock(&mutex_);
    most_ = std::max(most_, done);
    if (is_fenced_ || MonotonicNow() - reported_ < kReportPeriod) return !is_fenced_;
    reported_ = MonotonicNow();
    is_fenced_ = absl::IsAborted(fence_());
    Log(absl::StrFormat("recovering step %d: %.1f of %.1f GB are read", step_,
                        static_cast<double>(most_) / 1e9, static_cast<double>(total) / 1e9));
    return !is_fenced_;
  }

 private:
  static constexpr absl::Duration kReportPeriod = absl::Seconds(10);

  const int64_t step_;
  const std::function<absl::Status()>& fence_;
  Mutex mutex_;
  int64_t most_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_fenced_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time reported_ ABSL_GUARDED_BY(mutex_) = MonotonicNow();
};

absl::Status AwaitLeaseOfNode0(const ServiceOptions& o) {
  const absl::Status undecided =
      Unavailable("the service of node 0 did not take the lease on '", o.run_dir, "'");
  const auto sleep = [](absl::Duration time) {
    absl::SleepFor(time);
    return true;
  };
  NodeWait wait(o.predecessor_limit + o.lease_lifetime, absl::ZeroDuration(),
                LongestPauseOf(o.num_nodes));
  while (true) {
    const absl::StatusOr<LeaseOwner> owner = ReadLease(o.fs, o.run_dir);
    if (owner.ok() && owner->run_id == o.run_id && owner->attempt == o.attempt)
      return absl::OkStatus();
    RETURN_IF_ERROR(wait.Pause(undecided, /*ended=*/"", sleep));
  }
}

// If an earlier start's service still runs on this machine but its trainers are gone, asks it to
// finish and waits, so that a restart right after a kill finds the last staged checkpoint
// committed.
absl::Status RetirePredecessor(const ServiceOptions& o) {
  const absl::Time deadline = MonotonicNow() + o.predecessor_limit;
  bool has_asked = false;
  while (MonotonicNow() < deadline) {
    const absl::StatusOr<LeaseOwner> owner = ReadLease(o.fs, o.run_dir);
    if (!owner.ok() || owner->run_id != o.run_id || owner->attempt >= o.attempt ||
        owner->machine != DescribeThisProcess("", 0, "").machine || IsKnownDead(*owner)) {
      return absl::OkStatus();  // nobody to ask; Lease::Acquire judges the rest
    }
    if (!has_asked) {
      // One that is stopped would answer nobody and keep its lease for ever.
      ::kill(static_cast<pid_t>(owner->pid), SIGCONT);
      const absl::Status asked =
          ShutDownService(owner->socket_path, owner->run_id, owner->attempt, /*only_if_idle=*/true);
      if (absl::IsFailedPrecondition(asked)) {
        return AlreadyExists("'", o.run_dir, "' is in use by ", owner->ToString(), ": ",
                             asked.message());
      }
      has_asked = asked.ok();
      if (has_asked) Log(absl::StrCat("waiting for the saves of ", owner->ToString()));
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Manifest> CommitLog::ReadVoted(const std::string& directory,
                                              const std::string& run_id, int64_t generation) {
  const std::string path = JoinPath(directory, VoteName(0));
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(fs_, path));
  ASSIGN_OR_RETURN(const Vote vote, ParseVote(text, path));
  if (vote.id.run_id != run_id || vote.id.generation != generation)
    return DataLoss("'", path, "' is the vote of another save");
  RETURN_IF_ERROR(CheckUndecided(directory));
  NodeRecords votes = VotesIn(directory, vote.id.num_nodes);
  const absl::Status all = votes.Look();
  // What is missing now stays missing. A disk that does not answer is Unavailable, too.
  if (absl::IsUnavailable(all) && !votes.missing().empty() && !votes.IsThere(votes.missing()[0]))
    return NotFound("'", directory, "': ", all.message());
  RETURN_IF_ERROR(all);
  return MergeVotesOf(vote.id, votes);
}

absl::StatusOr<OldSaves> CommitLog::ClaimOldSaves(int64_t attempt) {
  const std::string parent = CheckpointsPath(run_dir_);
  ASSIGN_OR_RETURN(const std::vector<std::string> names, fs_->ListDirectory(parent));
  OldSaves saves;
  for (const std::string& name : names) {
    const std::optional<TemporarySave> save = ParseTemporaryName(name);
    if (!save || save->generation >= attempt * kGenerationsPerAttempt || save->attempt > attempt)
      continue;
    const std::string claimed =
        JoinPath(parent, ClaimedName(save->step, save->generation, attempt));
    if (name != BaseName(claimed)) {
      const absl::Status moved = fs_->Rename(JoinPath(parent, name), claimed);
      // Its service has given it up or committed it; or has made the directory again, too late.
      if (absl::IsNotFound(moved) || absl::IsAlreadyExists(moved)) continue;
      RETURN_IF_ERROR(moved);
    }
    saves.emplace(save->generation, claimed);
  }
  return saves;
}

absl::StatusOr<std::optional<SaveIdentity>> CommitLog::RecoverVoted(
    const OldSaves& saves, const std::string& run_id, const std::function<absl::Status()>& fence) {
  if (saves.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(const int64_t committed, NewestCommitted());
  for (const auto& [generation, claimed] : saves) {
    if (ParseTemporaryName(BaseName(claimed))->step <= committed) continue;
    const absl::StatusOr<Manifest> voted = ReadVoted(claimed, run_id, generation);
    // Whether the save is at fault, or a disk that cannot be read now.
    if (absl::IsAborted(voted.status()) || IsDamage(voted.status())) continue;
    RETURN_IF_ERROR(voted.status());
    RETURN_IF_ERROR(
        WriteFileAtomically(fs_, JoinPath(claimed, kManifestName), SerializeManifest(*voted)));
    const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(claimed, fs_);
    RecoveryLog log(voted->id.step, fence);
    const absl::Status whole = checkpoint.ok()
                                   ? checkpoint->Verify({.proceed =
                                                             [&log](int64_t done, int64_t total) {
                                                               return log.Report(done, total);
                                                             }})
                                   : checkpoint.status();
    if (!whole.ok() && !IsDamage(whole)) return whole;
    if (!whole.ok()) {
      LogWarning(absl::StrCat("step ", voted->id.step,
                              " was voted for but is not whole: ", whole.message()));
      continue;
    }
    RETURN_IF_ERROR(Publish(claimed, voted->id, fence));
    return voted->id;
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<Lease>> TakeOrAwaitLease(const ServiceOptions& o) {
  if (o.node != 0) {
    RETURN_IF_ERROR(AwaitLeaseOfNode0(o));
    return std::unique_ptr<Lease>();
  }
  RETURN_IF_ERROR(RetirePredecessor(o));
  return Lease::Acquire(o.fs, o.run_dir, DescribeThisProcess(o.run_id, o.attempt, o.socket_path),
                        o.lease_lifetime, [&o](const LeaseOwner& owner) {
                          return owner.run_id == o.run_id && owner.attempt <= o.ended_attempt;
                        });
}

absl::Status TidyUpAfterDeadStarts(const ServiceOptions& o,
                                   const std::function<absl::Status()>& fence,
                                   CommitLog* commit_log, EventLog* event_log) {
  const absl::StatusOr<OldSaves> saves = commit_log->ClaimOldSaves(o.attempt);
  RETURN_IF_ERROR(Annotate(saves.status(),
                           "a save of an earlier start, which its service could still commit, "
                           "cannot be moved; mend the file system and start again"));
  const auto recovered = commit_log->RecoverVoted(*saves, o.run_id, fence);
  if (recovered.ok() && recovered->has_value())
    event_log->Write({.id = **recovered, .state = SaveState::kRecovered}, 0);
  const absl::Status tidy =
      recovered.ok() ? commit_log->RemoveLeftovers(o.attempt) : recovered.status();
  if (absl::IsAborted(tidy)) return tidy;
  if (!tidy.ok()) LogWarning(absl::StrCat("leftovers of earlier starts stay: ", tidy.message()));
  return absl::OkStatus();
}

}  // namespace anyorder::ckpt
