#include "launcher/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/utc_time.h"
#include "core/base/whole_file.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"
#include "launcher/inspect/status_report.h"

namespace anyorder::launcher {
namespace {

// A picture is rarely wider than this many pixels.
constexpr size_t kMaxBuckets = 1600;
constexpr size_t kMaxLostBuckets = 400;
constexpr size_t kMaxPoints = 1000;
// First and last ones; a run with more has one story many times.
constexpr size_t kMaxStarts = 400;
constexpr size_t kMaxEvents = 400;

// The first and last `limit` / 2 of `items`.
void KeepEnds(size_t limit, auto& items) {
  if (items.size() <= limit) return;
  const auto half = static_cast<int64_t>(limit / 2);
  items.erase(items.begin() + half, items.end() - half);
}

// The task's, or that of next sentences; NaN without either.
double AccuracyOf(const std::vector<NamedMean>& means) {
  const auto found = std::find_if(means.begin(), means.end(),
                                  [](const NamedMean& mean) { return IsAccuracy(mean.name); });
  return found == means.end() ? std::nan("") : found->value;
}

class RunReader {
 public:
  explicit RunReader(const std::string& run_dir) : paths_(run_dir) { run_.run_dir = run_dir; }

  absl::StatusOr<ReportRun> Read() {
    RETURN_IF_ERROR(ReadIdentity());
    RETURN_IF_ERROR(ReadSteps());
    for (const LedgerRecord& record : ledger_) TakeRecord(record);
    DescribeEnds();
    run_.wall = MeasureWallTime(ledger_, step_times_);
    run_.smoothed_loss = Smoothed(run_.buckets, kLossCurve);
    run_.num_commits = std::ssize(run_.commits);
    run_.commits = Thinned(run_.commits, kMaxPoints);
    run_.evaluations = Thinned(run_.evaluations, kMaxPoints);
    run_.num_starts = std::ssize(run_.starts);
    KeepEnds(kMaxStarts, run_.starts);
    for (ReportStart& start : run_.starts) {
      if (auto pace = ReadAttemptPace(run_.run_dir, start.attempt); pace.ok() && pace->ranks > 1)
        start.slowest = std::move(pace->slowest);
    }
    run_.num_events = std::ssize(run_.events);
    KeepEnds(kMaxEvents, run_.events);
    return std::move(run_);
  }

 private:
  double Seconds(absl::Time time) const { return absl::ToDoubleSeconds(time - run_.origin); }

  absl::Status ReadIdentity() {
    RETURN_IF_ERROR(CheckIsRun(run_.run_dir));
    run_.name = PlaceName(run_.run_dir);
    ASSIGN_OR_RETURN(run_.config, LoadRunConfig(paths_.config, {}));
    ASSIGN_OR_RETURN(run_.config_text, ReadWholeFile(paths_.config, kMaxSettingsBytes));
    ASSIGN_OR_RETURN(ledger_, ReadLedger(paths_));
    const auto first = std::find_if(ledger_.begin(), ledger_.end(), [](const LedgerRecord& record) {
      return record.As<ledger::Start>() != nullptr && ParseUtcTime(record.time);
    });
    if (first == ledger_.end()) {
      return InvalidArgument(
          "'", run_.run_dir,
          "' never started: its ledger has no start, so there is nothing to draw; "
          "'anyorder launch --run-dir DIR' starts it");
    }
    run_.origin = *ParseUtcTime(first->time);
    run_.run_id = Summarize(ledger_).run_id;
    run_.restarts = CountRestarts(ledger_);
    return absl::OkStatus();
  }

  absl::Status ReadSteps() {
    run_.last_loss = std::nan("");
    RETURN_IF_ERROR(ReadLines(paths_.metrics, /*is_redone=*/false, kMaxBuckets, run_.buckets));
    return ReadLines(paths_.redone, /*is_redone=*/true, kMaxLostBuckets, run_.lost);
  }

  absl::Status ReadLines(const std::string& path, bool is_redone, size_t limit,
                         std::vector<Bucket>& buckets) {
    Downsampler curves(limit);
    double time = 0;
    const auto take = [&](const StepMetrics& line, absl::string_view) {
      // Lines of older versions have no time of their own.
      const std::optional<absl::Time> written = ParseUtcTime(line.time);
      time = written ? Seconds(*written) : time + line.step_ms / 1e3;
      curves.Add(time, line.step, line.attempt,
                 {line.loss, line.lr, line.grad_norm, line.tokens_per_second, line.ckpt_stall_ms,
                  AccuracyOf(line.means)});
      step_times_.push_back(StepTimeOf(line, is_redone));
      int64_t& last_step = last_steps_.try_emplace(line.attempt, line.step).first->second;
      last_step = std::max(last_step, line.step);
      run_.seconds = std::max(run_.seconds, time);
      run_.peak_rss_bytes = std::max(run_.peak_rss_bytes, line.peak_rss_bytes);
      if (is_redone) {
        ++run_.redone_steps;
      } else {
        Total(line, time);
      }
    };
    RETURN_IF_ERROR(MetricsStream(path).Read([] {}, take));
    buckets = curves.buckets();
    return absl::OkStatus();
  }

  void Total(const StepMetrics& line, double time) {
    run_.step = line.step;
    run_.tokens += line.tokens;
    run_.skipped_steps += line.skipped ? 1 : 0;
    const double seconds = line.step_ms / 1e3;
    run_.training_seconds += seconds;
    if (line.skipped) run_.skipped_seconds += seconds;
    run_.device_tokens += line.tokens_per_second_per_device * seconds;
    run_.utilised_seconds += line.mfu * seconds;
    run_.last_loss = line.loss;
    run_.last_means = line.means;
    if (line.held_out)
      run_.evaluations.push_back({time, line.step, line.held_out->loss,
                                  line.held_out->standard_error, AccuracyOf(line.held_out->means)});
  }

  void TakeRecord(const LedgerRecord& record) {
    const std::optional<absl::Time> time_of_day = ParseUtcTime(record.time);
    if (!time_of_day) return;
    const double time = Seconds(*time_of_day);
    if (time >= 0) run_.seconds = std::max(run_.seconds, time);
    std::visit([this, time](const auto& event) { TakeEvent(event, time); }, record.event);
    if (run_.starts.empty() || run_.starts.back().attempt != record.attempt()) return;
    ReportStart& start = run_.starts.back();
    start.end = std::max(start.end, time);
    if (const auto* train = record.As<ledger::Train>()) {
      start.train_begin = time;
      start.from_step = train->step;
    } else if (const auto* stop = record.As<ledger::Stop>()) {
      start.exit_status = stop->exit_status;
      start.detail = stop->detail;
    } else if (const auto* exit = record.As<ledger::Exit>()) {
      start.exit_status = exit->exit_status;
      // Which signal came only the launcher knows.
      const bool is_stopped = exit->exit_status == kExitRequeue && !exit->detail.empty();
      if (start.detail.empty() || is_stopped) start.detail = exit->detail;
    }
  }

  // What an event says about the run as a whole.
  void TakeEvent(const auto& event, double /*time*/) {
    if constexpr (requires { event.config_digest; })
      if (!event.config_digest.empty()) run_.config_digest = event.config_digest;
    if constexpr (requires { event.dataset_digest; })
      if (!event.dataset_digest.empty()) run_.dataset_digest = event.dataset_digest;
  }
  void TakeEvent(const ledger::Start& begun, double time) {
    run_.starts.push_back({begun, /*begin=*/time, /*end=*/time});
  }
  void TakeEvent(const ledger::Commit& commit, double time) {
    run_.commits.push_back({time, commit.step, 0, 0});
  }
  void TakeEvent(const ledger::Skipped& skipped, double time) {
    std::vector<std::string> words = {skipped.reason};
    if (skipped.rank >= 0) words.push_back(absl::StrCat("first on rank ", skipped.rank));
    if (!skipped.detail.empty()) words.push_back(skipped.detail);
    run_.events.push_back(
        {time, skipped.step, skipped.attempt, skipped.kName, absl::StrJoin(words, ", ")});
  }
  void TakeEvent(const ledger::Rollback& rollback, double time) {
    run_.events.push_back({time, -1, rollback.attempt, rollback.kName,
                           absl::StrCat("steps ", rollback.first_step + 1, " to ",
                                        rollback.last_step, ", ", rollback.detail)});
  }
  void TakeEvent(const ledger::Straggler& straggler, double time) {
    run_.events.push_back(
        {time, straggler.step, straggler.attempt, straggler.kName,
         absl::StrCat(straggler.detail, ", until ",
                      straggler.last_step < 0 ? "the end of the start"
                                              : absl::StrCat("step ", straggler.last_step))});
  }
  void TakeEvent(const ledger::Lost& lost, double time) {
    run_.events.push_back({time, lost.step, lost.attempt, lost.kName, lost.detail});
  }
  void TakeEvent(const ledger::Schedule& schedule, double time) {
    run_.config_digest = schedule.config_digest;
    run_.events.push_back({time, -1, schedule.attempt, schedule.kName, schedule.detail});
  }

  void DescribeEnds() {
    std::map<int64_t, double> last_times;
    for (const std::vector<Bucket>* buckets : {&run_.buckets, &run_.lost})
      for (const Bucket& bucket : *buckets) {
        double& last = last_times[bucket.attempt];
        last = std::max(last, bucket.end);
      }
    for (size_t i = 0; i < run_.starts.size(); ++i) {
      ReportStart& start = run_.starts[i];
      const auto step = last_steps_.find(start.attempt);
      if (step != last_steps_.end()) start.last_step = step->second;
      const auto last = last_times.find(start.attempt);
      if (last != last_times.end()) start.end = std::max(start.end, last->second);
      if (i + 1 < run_.starts.size()) {
        start.end = std::min(start.end, std::max(start.begin, run_.starts[i + 1].begin));
        FindLostNodes(run_.starts[i + 1], start);
      }
    }
    const bool is_running = LiveOwner(run_.run_dir, {}).has_value();
    RunEnd end = FindRunEnd(ledger_, run_.step >= run_.config.train.steps);
    run_.state = is_running ? "running" : std::move(end.state);
    if (!is_running) run_.error = std::move(end.error);
    if (is_running) {
      run_.starts.back().is_running = true;
      run_.starts.back().end = Seconds(absl::Now());
      run_.seconds = std::max(run_.seconds, run_.starts.back().end);
    }
  }

  static void FindLostNodes(const ReportStart& next, ReportStart& start) {
    // Another allocation has other nodes, and that is no loss.
    if (next.nodes.empty() || next.slurm_job != start.slurm_job ||
        next.slurm_restart != start.slurm_restart || start.exit_status == kExitDone)
      return;
    for (const std::string& node : start.nodes)
      if (std::find(next.nodes.begin(), next.nodes.end(), node) == next.nodes.end())
        start.lost_nodes.push_back(node);
  }

  const RunDirectory paths_;
  ReportRun run_;
  std::vector<LedgerRecord> ledger_;
  std::vector<StepTime> step_times_;
  std::map<int64_t, int64_t> last_steps_;  // by attempt
};

}  // namespace

absl::StatusOr<ReportRun> ReadReportRun(const std::string& run_dir) {
  return RunReader(run_dir).Read();
}

std::string ExitWords(int64_t exit_status) {
  switch (exit_status) {
    case -1: return "no trace of its end: the launcher was killed, too";
    case kExitDone: return "done";
    case kExitUsage: return "refused: bad configuration (64)";
    case kExitData: return "bad data (65)";
    case kExitInternal: return "internal error (70)";
    case kExitIo: return "the machine failed (74)";
    case kExitRequeue: return "stopped on request, to be resumed (75)";
    case kExitDoNotRestart: return "stopped, will not be restarted (93)";
    case 128 + 9: return "killed (137)";
    case 128 + 15: return "terminated (143)";
    default: return absl::StrCat("exit status ", exit_status);
  }
}

}  // namespace anyorder::launcher
