#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "ckpt/lease.h"
#include "core/base/file_system.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/utc_time.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "launcher/inspect/status_report.h"

namespace anyorder::launcher {
namespace {

constexpr size_t kRecentSteps = 200;
constexpr absl::Duration kSlurmPatience = absl::Seconds(3);

// Zero if the clock was set back since.
absl::Duration SinceThen(absl::Time then, absl::Time now) {
  return std::max(now - then, absl::ZeroDuration());
}

// From each start to the last record or line of metrics of it; of `running`, an attempt, up to now.
// `newest_lines`: by attempt. A start that was killed has lines after its last record.
absl::Duration WallTimeOf(const std::vector<LedgerRecord>& ledger,
                          const std::map<int64_t, absl::Time>& newest_lines, int64_t running,
                          absl::Time now) {
  absl::Duration wall;
  std::optional<absl::Time> last;
  int64_t attempt = 0;
  const auto advance_to = [&](absl::Time time) {
    if (last) wall += std::max(time - *last, absl::ZeroDuration());
    if (last) last = std::max(*last, time);
  };
  const auto end_start = [&] {
    const auto line = newest_lines.find(attempt);
    if (line != newest_lines.end()) advance_to(line->second);
  };
  for (const LedgerRecord& record : ledger) {
    const std::optional<absl::Time> time = ParseUtcTime(record.time);
    if (!time) continue;
    if (record.As<ledger::Start>() != nullptr) {
      end_start();
      last = *time;
      attempt = record.attempt();
    } else {
      advance_to(*time);
    }
  }
  end_start();
  // A launcher that prepares the next attempt has not begun it.
  if (attempt == running && !ledger.empty() && ledger.back().As<ledger::Exit>() == nullptr)
    advance_to(now);
  return wall;
}

std::optional<LastCommit> FindLastCommit(const StatusFacts& facts) {
  const ckpt::CheckpointInfo* const newest = ckpt::NewestOf(facts.checkpoints);
  if (newest == nullptr) return std::nullopt;
  LastCommit commit{newest->step, newest->num_bytes, absl::ZeroDuration()};
  for (auto record = facts.ledger.rbegin(); record != facts.ledger.rend(); ++record) {
    const auto* written = record->As<ledger::Commit>();
    if (written == nullptr || written->step != newest->step) continue;
    commit.age = SinceThen(ParseUtcTime(record->time).value_or(facts.now), facts.now);
    return commit;
  }
  // The service committed it when no rank was left to write it down.
  std::error_code error;
  const auto modified = std::filesystem::last_write_time(newest->directory, error);
  if (!error) {
    const absl::Duration age =
        absl::FromChrono(std::filesystem::file_time_type::clock::now() - modified);
    commit.age = std::max(age, absl::ZeroDuration());
  }
  return commit;
}

// The step in which a run gives up has a record in the ledger and no line of metrics.
void CountLastSkippedStep(StatusFacts& facts) {
  facts.skipped_steps += std::any_of(facts.ledger.begin(), facts.ledger.end(),
                                     [step = facts.step](const LedgerRecord& record) {
                                       const auto* skipped = record.As<ledger::Skipped>();
                                       return skipped != nullptr && skipped->step > step;
                                     });
}

bool IsQueued(const SlurmView& slurm) {
  return std::any_of(slurm.jobs.begin(), slurm.jobs.end(),
                     [](const SlurmJob& job) { return job.IsQueued(); });
}

}  // namespace

std::optional<ckpt::LeaseOwner> LiveOwner(const std::string& run_dir, const SlurmView& slurm) {
  const auto owner = ckpt::ReadLease(FileSystem::Posix(), RunDirectory(run_dir).launch);
  if (!owner.ok() || ckpt::IsKnownDead(*owner)) return std::nullopt;
  for (const SlurmJob& job : slurm.jobs)
    if (absl::StrCat(job.id) == owner->job && !job.IsRunning()) return std::nullopt;
  for (const int64_t id : slurm.forgotten)
    if (absl::StrCat(id) == owner->job) return std::nullopt;
  return *owner;
}

RunEnd FindRunEnd(const std::vector<LedgerRecord>& ledger, bool is_done) {
  // Of the last start: what the ranks said and what the launcher saw.
  const ledger::Stop* stop = nullptr;
  const ledger::Exit* exit = nullptr;
  bool has_started = false;
  for (const LedgerRecord& record : ledger) {
    if (record.As<ledger::Start>() != nullptr) {
      has_started = true;
      stop = nullptr;
      exit = nullptr;
    } else if (const auto* stopped = record.As<ledger::Stop>()) {
      stop = stopped;
    } else if (const auto* ended = record.As<ledger::Exit>()) {
      exit = ended;
    }
  }
  const int64_t status = exit != nullptr   ? exit->exit_status
                         : stop != nullptr ? stop->exit_status
                                           : -1;
  if (stop != nullptr && stop->has_diverged()) return {"diverged", stop->detail};
  if (stop != nullptr && stop->is_early() && status == kExitDone) return {"finished early", ""};
  if (status < 0 && has_started && !is_done) {
    return {"stopped",
            "the last start has no recorded end: its launcher was killed, or its machine failed"};
  }
  // With all steps done the last evaluation, or the last commit, may be what the stop cut off.
  const bool was_stopped = stop != nullptr && stop->exit_status == kExitRequeue;
  if (status < 0 || status == kExitDone || status == kExitRequeue)
    return {is_done && !was_stopped ? "finished" : "stopped", ""};
  if (stop != nullptr && !stop->detail.empty()) return {"failed", stop->detail};
  if (exit != nullptr && !exit->detail.empty()) return {"failed", exit->detail};
  return {"failed", absl::StrCat("the ranks ended with status ", status, "; see train.log")};
}

int64_t CountRestarts(const std::vector<LedgerRecord>& ledger) {
  int64_t restarts = 0;
  bool has_started = false;
  bool is_done = false;
  for (const LedgerRecord& record : ledger) {
    if (record.As<ledger::Start>() != nullptr) {
      if (has_started && !is_done) ++restarts;
      has_started = true;
      is_done = false;
    } else if (const auto* exit = record.As<ledger::Exit>()) {
      is_done = exit->exit_status == kExitDone;
    }
  }
  return restarts;
}

StatusCollector::StatusCollector(const std::string& run_dir)
    : run_dir_(run_dir),
      metrics_(RunDirectory(run_dir).metrics),
      redone_(RunDirectory(run_dir).redone) {}

void StatusCollector::TakeTime(const StepMetrics& metrics) {
  const std::optional<absl::Time> time = ParseUtcTime(metrics.time);
  if (!time) return;
  absl::Time& newest = newest_lines_.try_emplace(metrics.attempt, *time).first->second;
  newest = std::max(newest, *time);
}

void StatusCollector::TakeStep(StepMetrics metrics) {
  TakeTime(metrics);
  if (!metrics.skipped) sums_.training += absl::Milliseconds(metrics.step_ms);
  if (metrics.held_out) {
    sums_.evaluation += absl::Milliseconds(metrics.held_out->ms);
    sums_.eval_loss = metrics.held_out->loss;
    sums_.eval_means = metrics.held_out->means;
    sums_.eval_step = metrics.step;
    evaluations_.push_back({metrics.step, *metrics.held_out});
  }
  sums_.skipped_steps += metrics.skipped ? 1 : 0;
  if (!metrics.skipped) sums_.trained_step = metrics.step;
  // The pace of a start says nothing about the next one, which may have other ranks.
  if (!recent_.empty() && recent_.back().attempt != metrics.attempt) recent_.clear();
  recent_.push_back(std::move(metrics));
  if (recent_.size() > kRecentSteps) recent_.pop_front();
}

absl::Status StatusCollector::ReadSteps() {
  const auto start_over = [this] {
    sums_ = {};
    evaluations_.clear();
    recent_.clear();
  };
  const auto take = [this](StepMetrics metrics, absl::string_view) {
    TakeStep(std::move(metrics));
  };
  RETURN_IF_ERROR(metrics_.Read(start_over, take));
  return redone_.Read([this] { redone_steps_ = 0; },
                      [this](const StepMetrics& metrics, absl::string_view) {
                        TakeTime(metrics);
                        ++redone_steps_;
                      });
}

void StatusCollector::DescribeProgress(StatusFacts& facts) const {
  static_cast<StepSums&>(facts) = sums_;
  facts.redone_steps = redone_steps_;
  if (recent_.empty()) return;
  const StepMetrics& first = recent_.front();
  const StepMetrics& last = recent_.back();
  facts.last = last;
  facts.step = last.step;
  const std::optional<absl::Time> from = ParseUtcTime(first.time);
  const std::optional<absl::Time> to = ParseUtcTime(last.time);
  // Where the clock was set back meanwhile, the last step has to do.
  if (from && to && *to > *from && last.step > first.step) {
    facts.per_step = (*to - *from) / (last.step - first.step);
  } else if (last.step_ms > 0) {
    facts.per_step = absl::Milliseconds(last.step_ms);
  }
  if (to) facts.silence = SinceThen(*to, facts.now);
  double seconds = 0;
  double tokens = 0;
  double device_tokens = 0;
  double utilisation = 0;
  for (const StepMetrics& step : recent_) {
    seconds += step.step_ms / 1e3;
    tokens += step.tokens_per_second * step.step_ms / 1e3;
    device_tokens += step.tokens_per_second_per_device * step.step_ms / 1e3;
    utilisation += step.mfu * step.step_ms / 1e3;
  }
  if (seconds <= 0) return;
  facts.tokens_per_second = tokens / seconds;
  facts.tokens_per_second_per_device = device_tokens / seconds;
  facts.mfu = utilisation / seconds;
}

absl::StatusOr<StatusFacts> StatusCollector::Collect() {
  const RunDirectory paths(run_dir_);
  StatusFacts facts;
  facts.run_dir = run_dir_;
  ASSIGN_OR_RETURN(facts.ledger, ReadLedger(paths));
  const std::vector<int64_t> jobs = SlurmJobsOf(run_dir_, facts.ledger);
  const absl::Status is_run = CheckIsRun(run_dir_);
  // A job that waits for its first start has a batch script and no configuration yet.
  if (!is_run.ok() && !IsThere(run_dir_ + "/slurm/train.sbatch")) return is_run;
  RunConfig config;
  if (is_run.ok()) {
    ASSIGN_OR_RETURN(config, LoadRunConfig(paths.config, {}));
    facts.steps = config.train.steps;
  }
  facts.is_under_slurm = !jobs.empty();
  if (facts.is_under_slurm) facts.slurm = AskSlurm(jobs, kSlurmPatience);
  RETURN_IF_ERROR(ReadSteps());
  facts.best = FindBest(config.eval, evaluations_);
  ASSIGN_OR_RETURN(facts.checkpoints, ckpt::ListCheckpoints(run_dir_));
  facts.now = absl::Now();
  DescribeProgress(facts);
  const LedgerSummary summary = Summarize(facts.ledger);
  facts.run_id = summary.run_id;
  facts.starts = summary.attempts;
  facts.restarts = CountRestarts(facts.ledger);
  // A launcher that has not written it yet, or not in full, is no fault of the run.
  if (auto pace = ReadAttemptPace(run_dir_, facts.starts); pace.ok()) facts.pace = *std::move(pace);
  for (const LedgerRecord& record : facts.ledger) {
    const auto* start = record.As<ledger::Start>();
    if (start == nullptr) continue;
    facts.ranks = start->ranks;
    facts.nodes = start->nodes;
  }
  const std::optional<ckpt::LeaseOwner> owner = LiveOwner(run_dir_, facts.slurm);
  facts.wall = WallTimeOf(facts.ledger, newest_lines_, owner ? owner->attempt : -1, facts.now);
  facts.commit = FindLastCommit(facts);
  if (owner) {
    facts.owner = owner->ToString();
    facts.state = "running";
    if (facts.per_step)
      facts.left = *facts.per_step * std::max<int64_t>(0, facts.steps - facts.step);
  } else {
    facts.silence.reset();
    RunEnd end = FindRunEnd(facts.ledger, facts.steps > 0 && facts.step >= facts.steps);
    facts.state = std::move(end.state);
    facts.error = std::move(end.error);
    if (facts.state == "diverged") CountLastSkippedStep(facts);
    if (!facts.is_finished() && IsQueued(facts.slurm)) facts.state = "queued";
  }
  return facts;
}

}  // namespace anyorder::launcher
