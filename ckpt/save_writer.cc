#include "ckpt/save_writer.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "ckpt/json_values.h"
#include "ckpt/reader.h"
#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/base/utc_time.h"

namespace anyorder::ckpt {

namespace {

// Polling the votes: quick while a commit takes milliseconds, gentle on a shared file system later.
constexpr absl::Duration kFirstPoll = absl::Milliseconds(2);
constexpr absl::Duration kLongestPoll = absl::Milliseconds(500);

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
      thread_([this] { Loop(); }) {}

SaveWriter::~SaveWriter() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SaveWriter::Enqueue(QueuedSave save) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(save));
  }
  changed_.notify_all();
}

int SaveWriter::num_pending() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(queue_.size()) + (is_busy_ ? 1 : 0);
}

void SaveWriter::Cancel() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
    queue_.clear();
  }
  changed_.notify_all();
}

void SaveWriter::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    QueuedSave save = std::move(queue_.front());
    queue_.pop_front();
    is_busy_ = true;
    lock.unlock();
    Run(std::move(save));
    lock.lock();
    is_busy_ = false;
  }
}

void SaveWriter::Report(SaveProgress* progress, SaveState state, absl::Time began) {
  progress->state = state;
  progress->seconds = absl::ToDoubleSeconds(MonotonicNow() - began);
  report_(*progress);
}

void SaveWriter::Run(QueuedSave save) {
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
  if (save.is_coordinator) VerifyAndRetire(std::move(progress));
}

absl::Status SaveWriter::WriteAndDecide(QueuedSave* save, SaveProgress* progress) {
  Report(progress, SaveState::kWriting, save->began);
  ANYORDER_RETURN_IF_ERROR(log_->WriteAndVote(save->job, &progress->times));
  save->buffers.clear();  // the trainers may fill them again
  Report(progress, SaveState::kDurable, save->began);
  return AwaitDecision(*save, progress);
}

absl::Status SaveWriter::AwaitDecision(const QueuedSave& save, SaveProgress* progress) {
  const absl::Time deadline = MonotonicNow() + options_.vote_limit;
  absl::Time ended = absl::InfiniteFuture();
  for (absl::Duration pause = kFirstPoll;; pause = std::min(pause * 2, kLongestPoll)) {
    absl::Status undecided;
    if (save.is_coordinator) {
      const absl::StatusOr<Manifest> manifest = log_->CollectVotes(save.job.id);
      if (manifest.ok()) {
        progress->bytes = manifest->num_bytes();
        return log_->Commit(*manifest, fence_);
      }
      undecided = manifest.status();
    } else {
      undecided = log_->ReadOutcome(save.job.id);
      if (undecided.ok()) return undecided;
    }
    if (!absl::IsUnavailable(undecided)) return undecided;
    ANYORDER_RETURN_IF_ERROR(fence_());
    if (const std::optional<int> node = log_->EndedWithoutVote(save.job.id)) {
      ended = std::min(ended, MonotonicNow());
      if (MonotonicNow() - ended > options_.ended_grace)
        return DeadlineExceeded("the service of node ", *node, " ended and has not voted");
    }
    if (MonotonicNow() > deadline) {
      return DeadlineExceeded(undecided.message(), " after ",
                              absl::FormatDuration(options_.vote_limit));
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (changed_.wait_for(lock, absl::ToChronoMilliseconds(pause), [this] { return cancelled_; }))
      return absl::CancelledError("the service lost the run directory");
  }
}

void SaveWriter::VerifyAndRetire(SaveProgress progress) {
  const absl::Time start = MonotonicNow();
  if (options_.verify_after_commit) {
    const std::string path = CheckpointPath(options_.run_dir, progress.id.step);
    const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(path, options_.fs);
    const absl::Status verified = checkpoint.ok()
                                      ? checkpoint->Verify({.pace = VerifyPace::kBackground})
                                      : checkpoint.status();
    progress.verify_seconds = absl::ToDoubleSeconds(MonotonicNow() - start);
    progress.reason = std::string(verified.message());
    Report(&progress, verified.ok() ? SaveState::kVerified : SaveState::kDamaged, start);
    if (!verified.ok()) {
      // Aside, or it would count as one of the newest that are kept, and a good one would be
      // removed instead.
      if (IsDamage(verified) && fence_().ok()) {
        const absl::Status moved = Quarantine(path, options_.fs);
        if (!moved.ok()) LogWarning(absl::StrCat("it stays under its name: ", moved.message()));
      }
      return;  // keep the older ones
    }
  }
  absl::Status retired = fence_();
  if (retired.ok())
    retired = log_->Retire(options_.keep_last, options_.keep_every, progress.id.generation);
  if (!retired.ok()) LogWarning(absl::StrCat("old checkpoints stay: ", retired.message()));
}

absl::StatusOr<EventLog> EventLog::Open(FileSystem* fs, const std::string& run_dir, int node) {
  const std::string path = absl::StrFormat("%s/ckptd.node%02d.jsonl", run_dir, node);
  ANYORDER_ASSIGN_OR_RETURN(std::unique_ptr<AppendableFile> file, fs->OpenForAppend(path));
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
