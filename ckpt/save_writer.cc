#include "ckpt/save_writer.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "ckpt/json_values.h"
#include "ckpt/layout.h"
#include "ckpt/reader.h"
#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/utc_time.h"

namespace anyorder::ckpt {

namespace {

// The coordinator's looks.
constexpr absl::Duration kLongestPoll = absl::Milliseconds(500);
constexpr absl::Duration kLongestReadBackPoll = absl::Seconds(2);
// Nodes that wait look at one name, that of their own vote. The first look and each so many after
// it are at the names of all that can have happened: a vote that came after the decision against it
// stays, as does one whose coordinator ended before it heard of the save.
constexpr int kLooksToAllNames = 8;

std::vector<int> RanksOf(const SaveJob& job) {
  std::vector<int> ranks;
  for (const StagedFile& file : job.files) ranks.push_back(file.rank);
  return ranks;
}

double Rate(int64_t bytes, double seconds) {
  return seconds > 0 ? static_cast<double>(bytes) / seconds / 1e9 : 0;
}

void PrintLine(const SaveProgress& p, int64_t lag_steps) {
  if (p.state == SaveState::kCommitted) {
    Log(absl::StrFormat(
        "step %d COMMITTED as generation %d: %.1f MB, stall %.1f ms (%.1f GB/s), write %.2f GB/s, "
        "sync %.1f ms, %.3f s in all, lag %d steps, %d MiB free",
        p.id.step, p.id.generation, static_cast<double>(p.bytes) / 1e6, p.stall_ms,
        Rate(p.node_bytes, p.stall_ms / 1e3),
        Rate(p.node_bytes, p.times.write_seconds + p.times.sync_seconds),
        p.times.sync_seconds * 1e3, p.seconds, lag_steps, p.free_bytes >> 20));
  } else if (p.state == SaveState::kRecovered) {
    Log(absl::StrCat("step ", p.id.step, " RECOVERED as generation ", p.id.generation,
                     ": an earlier start had written it whole and was killed before the commit"));
  } else if (p.state == SaveState::kAbandoned || p.state == SaveState::kDamaged) {
    LogWarning(absl::StrCat("step ", p.id.step, " ", Name(p.state), ", generation ",
                            p.id.generation, ": ", p.reason, "; older checkpoints are untouched"));
  }
}

}  // namespace

SaveWriter::SaveWriter(CommitLog* log, const ServiceOptions& options,
                       std::function<absl::Status()> fence,
                       std::function<void(const SaveProgress&)> report)
    : log_(log),
      options_(options),
      fence_(std::move(fence)),
      report_(std::move(report)),
      committed_([this](CommittedSave save) { Verify(std::move(save)); }),
      saves_([this](QueuedSave save) { Write(std::move(save)); }) {}

void SaveWriter::Report(SaveProgress* progress, SaveState state, absl::Time began) {
  progress->state = state;
  progress->seconds = absl::ToDoubleSeconds(MonotonicNow() - began);
  report_(*progress);
}

void SaveWriter::Write(QueuedSave save) {
  SaveProgress progress{.id = save.job.id, .stall_ms = save.stall_ms};
  for (const StagedFile& file : save.job.files) progress.bytes += file.bytes;
  progress.node_bytes = progress.bytes;
  const std::vector<int> ranks = RanksOf(save.job);
  const absl::Status status = save.abandon_reason.empty() ? WriteAndDecide(&save, &progress)
                                                          : absl::AbortedError(save.abandon_reason);
  if (!status.ok()) {
    // Never retried: after a failed sync the kernel may have dropped the pages and would call the
    // next one a success. Nothing is touched once the run directory is another's, who may be
    // finishing this very save.
    if (!absl::IsCancelled(status) && !absl::IsAborted(fence_())) {
      log_->Abandon(save.job.id, options_.node, ranks, std::string(status.message()),
                    save.is_coordinator);
    }
    save.buffers.clear();
    progress.reason = std::string(status.message());
    Report(&progress, SaveState::kAbandoned, save.began);
    return;
  }
  const absl::StatusOr<int64_t> free = log_->FreeBytes();
  progress.free_bytes = free.ok() ? *free : 0;
  Report(&progress, SaveState::kCommitted, save.began);
  committed_.Enqueue({std::move(progress), ranks, save.is_coordinator});
}

absl::Status SaveWriter::WriteAndDecide(QueuedSave* save, SaveProgress* progress) {
  Report(progress, SaveState::kWriting, save->began);
  RETURN_IF_ERROR(log_->WriteAndVote(save->job, &progress->times));
  save->buffers.clear();  // the trainers may fill them again
  Report(progress, SaveState::kDurable, save->began);
  return AwaitDecision(*save, progress);
}

// One look of the coordinator.
absl::StatusOr<Manifest> SaveWriter::LookForVotes(const SaveIdentity& id, NodeRecords& votes,
                                                  std::string* ended) {
  absl::StatusOr<Manifest> manifest = log_->CollectVotes(id, votes);
  if (!absl::IsUnavailable(manifest.status())) return manifest;
  // A LEASE that cannot be read now is no reason to give up; the commit itself needs an answer.
  if (const absl::Status held = fence_(); absl::IsAborted(held)) return held;
  if (const std::optional<int> node = log_->EndedWithout(id.attempt, votes))
    *ended = absl::StrCat("the service of node ", *node, " ended and has not voted");
  return manifest;
}

// Look number `look` of another node, which learns of a lost lease from the lease thread (Cancel).
absl::Status SaveWriter::LookForDecision(const SaveIdentity& id, int look, std::string* ended) {
  if (look % kLooksToAllNames != 0 && log_->VoteStands(id, options_.node))
    return absl::UnavailableError("the coordinator has not decided yet");
  // The end first: what the coordinator decided, it decided before.
  if (log_->CoordinatorHasEnded(id.attempt))
    *ended = "the coordinator's service ended and has decided nothing";
  return log_->ReadOutcome(id);
}

absl::Status SaveWriter::AwaitDecision(const QueuedSave& save, SaveProgress* progress) {
  const SaveIdentity& id = save.job.id;
  const auto sleep = [this](absl::Duration time) { return saves_.Sleep(time); };
  NodeWait wait(options_.vote_limit, options_.ended_grace,
                save.is_coordinator ? kLongestPoll : LongestPauseOf(id.num_nodes));
  NodeRecords votes = log_->VotesOf(id);
  for (int look = 0;; ++look) {
    std::string ended;
    absl::Status undecided;
    if (save.is_coordinator) {
      const absl::StatusOr<Manifest> manifest = LookForVotes(id, votes, &ended);
      if (manifest.ok()) {
        progress->bytes = manifest->num_bytes();
        return log_->Commit(*manifest, fence_);
      }
      undecided = manifest.status();
    } else {
      undecided = LookForDecision(id, look, &ended);
    }
    if (!absl::IsUnavailable(undecided)) return undecided;
    RETURN_IF_ERROR(wait.Pause(undecided, ended, sleep));
  }
}

void SaveWriter::Verify(CommittedSave save) {
  SaveProgress& progress = save.progress;
  if (!options_.verify_after_commit) {
    if (save.is_coordinator) Retire(progress.id);
    return;
  }
  const absl::Time start = MonotonicNow();
  absl::Status found = ReadBack(save);
  if (save.is_coordinator && found.ok() && options_.num_nodes > 1) found = AwaitOthers(progress.id);
  if (absl::IsCancelled(found)) return;
  // Of the coordinator: all nodes' files. A node that says nothing leaves it open.
  if (absl::IsDeadlineExceeded(found)) {
    LogWarning(absl::StrCat("step ", progress.id.step, " was not read back by all nodes: ",
                            found.message(), "; older checkpoints stay"));
    return;
  }
  if (found.ok() && !save.is_coordinator) return;
  progress.verify_seconds = absl::ToDoubleSeconds(MonotonicNow() - start);
  progress.seconds = progress.verify_seconds;
  progress.reason = std::string(found.message());
  progress.state = found.ok() ? SaveState::kVerified : SaveState::kDamaged;
  report_(progress);
  if (found.ok()) return Retire(progress.id);
  // The older ones stay.
  if (save.is_coordinator && (IsDamage(found) || absl::IsAborted(found))) SetAside(progress.id);
}

// This node's files. Those who wait for the next one hurry it up.
absl::Status SaveWriter::ReadBack(const CommittedSave& save) {
  const SaveIdentity& id = save.progress.id;
  VerifyOptions options;
  options.pace = committed_.num_pending() > 1 ? VerifyPace::kFast : VerifyPace::kBackground;
  options.proceed = [this](int64_t, int64_t) { return !committed_.is_cancelled(); };
  for (const int rank : save.ranks) options.files.push_back(RankFileName(rank, id.world_size));
  const absl::StatusOr<Checkpoint> checkpoint =
      Checkpoint::Open(CheckpointPath(options_.run_dir, id.step), options_.fs);
  const absl::Status found = checkpoint.ok() ? checkpoint->Verify(options) : checkpoint.status();
  if (options_.num_nodes == 1 || !(found.ok() || IsDamage(found))) return found;
  const absl::Status recorded = log_->RecordReadBack(id, options_.node, found);
  if (!recorded.ok()) {
    LogWarning(absl::StrCat("the coordinator does not learn what became of step ", id.step, ": ",
                            recorded.message()));
  }
  return found;
}

absl::Status SaveWriter::AwaitOthers(const SaveIdentity& id) {
  const auto sleep = [this](absl::Duration time) { return committed_.Sleep(time); };
  NodeRecords records = log_->ReadBacksOf(id);
  NodeWait wait(options_.read_back_limit, options_.ended_grace, kLongestReadBackPoll);
  while (true) {
    const absl::Status all = records.Look();
    if (!absl::IsUnavailable(all)) return all;
    const std::optional<int> node = log_->EndedWithout(id.attempt, records);
    const std::string ended =
        node ? absl::StrCat("the service of node ", *node, " ended before it had read its files")
             : "";
    RETURN_IF_ERROR(wait.Pause(all, ended, sleep));
  }
}

// Under its name it would count as one of the newest that are kept, and a good one would be removed
// instead.
void SaveWriter::SetAside(const SaveIdentity& id) {
  if (!fence_().ok()) return;
  const std::string path = CheckpointPath(options_.run_dir, id.step);
  const absl::StatusOr<Checkpoint> bad = Checkpoint::Open(path, options_.fs);
  if (bad.ok() && bad->generation() != id.generation) return;  // the next owner's
  const absl::Status moved = Quarantine(path, bad.ok() ? id.generation : 0, options_.fs);
  if (!moved.ok()) LogWarning(absl::StrCat("it stays under its name: ", moved.message()));
}

void SaveWriter::Retire(const SaveIdentity& id) {
  absl::Status retired = fence_();
  if (retired.ok()) retired = log_->Retire(options_.keep_last, options_.keep_every, id.generation);
  if (!retired.ok()) LogWarning(absl::StrCat("old checkpoints stay: ", retired.message()));
}

absl::StatusOr<EventLog> EventLog::Open(FileSystem* fs, const std::string& run_dir, int node) {
  const std::string path = absl::StrFormat("%s/ckptd.node%02d.jsonl", run_dir, node);
  ASSIGN_OR_RETURN(std::unique_ptr<AppendableFile> file, fs->OpenForAppend(path));
  return EventLog(std::move(file));
}

void EventLog::Write(const SaveProgress& p, int64_t lag_steps) {
  Json json = {{"time", UtcTimeStamp()},        {"state", Name(p.state)},  {"step", p.id.step},
               {"generation", p.id.generation}, {"attempt", p.id.attempt}, {"bytes", p.bytes},
               {"seconds", p.seconds}};
  if (!p.reason.empty()) json["reason"] = p.reason;
  if (p.state == SaveState::kStaged || p.state == SaveState::kCommitted) {
    json["stall_ms"] = p.stall_ms;
    json["copy_gb_per_s"] = Rate(p.node_bytes, p.stall_ms / 1e3);
  }
  if (p.state == SaveState::kDurable || p.state == SaveState::kCommitted) {
    json["write_gb_per_s"] = Rate(p.node_bytes, p.times.write_seconds + p.times.sync_seconds);
    json["sync_ms"] = p.times.sync_seconds * 1e3;
  }
  if (p.state == SaveState::kCommitted) {
    json["lag_steps"] = lag_steps;
    json["free_bytes"] = p.free_bytes;
  }
  if (p.verify_seconds > 0) json["verify_seconds"] = p.verify_seconds;
  // A full disk must not stop the service; stderr still has the line below.
  file_->Append(DumpJson(json) + "\n").IgnoreError();
  PrintLine(p, lag_steps);
}

}  // namespace anyorder::ckpt
