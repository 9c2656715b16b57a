#include "launcher/inspect/run_history.h"

#include <algorithm>
#include <map>
#include <optional>

#include "core/base/status.h"
#include "core/base/utc_time.h"
#include "core/base/whole_file.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_directory.h"

namespace anyorder::launcher {
namespace {

// All that is known of one start, in the order of time.
struct Traces {
  int64_t attempt = 0;
  int64_t ranks = 0;
  std::optional<absl::Time> start;
  std::optional<absl::Time> train;
  std::optional<absl::Time> stop;
  std::optional<absl::Time> last;  // record of the ledger
  int64_t stop_status = -1;
  int64_t exit_status = -1;
  std::vector<const StepTime*> lines;
  const StepTime* made_up = nullptr;  // whose evaluation this start did before its first step
};

bool WasRequested(int64_t exit_status) {
  return exit_status == kExitDone || exit_status == kExitRequeue;
}

std::vector<Traces> CollectTraces(const std::vector<LedgerRecord>& ledger,
                                  const std::vector<StepTime>& steps) {
  std::map<int64_t, Traces> by_attempt;
  for (const LedgerRecord& record : ledger) {
    const std::optional<absl::Time> time = ParseUtcTime(record.time);
    if (record.attempt() < 0 || !time) continue;
    Traces& traces = by_attempt[record.attempt()];
    traces.last = std::max(traces.last.value_or(*time), *time);
    if (const auto* start = record.As<ledger::Start>()) {
      traces.start = time;
      traces.ranks = start->ranks;
    } else if (record.As<ledger::Train>() != nullptr) {
      traces.train = time;
    } else if (const auto* stop = record.As<ledger::Stop>()) {
      traces.stop = time;
      traces.stop_status = stop->exit_status;
    } else if (const auto* exit = record.As<ledger::Exit>()) {
      traces.exit_status = exit->exit_status;
    }
  }
  for (const StepTime& line : steps) {
    by_attempt[line.attempt].lines.push_back(&line);
    if (line.evaluation_attempt != line.attempt)
      by_attempt[line.evaluation_attempt].made_up = &line;
  }
  std::vector<Traces> result;
  for (auto& [attempt, traces] : by_attempt) {
    if (!traces.start) continue;  // only the audit has something to say about it
    traces.attempt = attempt;
    std::stable_sort(traces.lines.begin(), traces.lines.end(),
                     [](const StepTime* a, const StepTime* b) { return a->step < b->step; });
    result.push_back(std::move(traces));
  }
  return result;
}

// Of the evaluation that came between the step and its line.
absl::Duration OwnEvaluation(const StepTime& line) {
  return absl::Milliseconds(line.evaluation_attempt == line.attempt ? line.evaluation_ms : 0);
}

void AddStep(const StepTime& line, TimeShares& shares) {
  const absl::Duration step = absl::Milliseconds(line.step_ms);
  const absl::Duration evaluation = OwnEvaluation(line);
  if (line.is_redone) {
    shares[kRedone] += step + evaluation;
    return;
  }
  const absl::Duration wait = absl::Milliseconds(line.data_wait_ms);
  const absl::Duration reduce = absl::Milliseconds(line.reduce_ms);
  const absl::Duration stall = absl::Milliseconds(line.ckpt_stall_ms);
  shares[kDataWait] += wait;
  shares[kCommunication] += reduce;
  shares[kCheckpointStall] += stall;
  shares[kTrain] += step - wait - reduce - stall;
  shares[kEvaluation] += evaluation;
}

// Lines of one start are written one after the other: a larger step back is of the clock.
constexpr absl::Duration kClockSetBack = absl::Seconds(1);

// Fills the spans of one start one after the other; `cursor` is where the last one ended. Times are
// of the clock as it was when the run began: `set_back` is by how much it was set back since.
class SpanFiller {
 public:
  SpanFiller(absl::Time begin, absl::Duration& set_back) : cursor_(begin), set_back_(set_back) {}

  void FillUntil(absl::Time end, TimeClass time_class) {
    end += set_back_;
    if (end <= cursor_) return;
    shares_[time_class] += end - cursor_;
    cursor_ = end;
  }

  void FillMadeUpEvaluation(const StepTime& line) {
    const absl::Duration time = absl::Milliseconds(line.evaluation_ms);
    shares_[line.is_redone ? kRedone : kEvaluation] += time;
    cursor_ += time;
  }

  // What the durations leave of the span before the first step is preparation, and after each step
  // bookkeeping. Clocks of two kinds and whole milliseconds let single differences fall below zero,
  // but not their sum.
  void FillSteps(const std::vector<const StepTime*>& lines, TimeClass preparation) {
    absl::Duration rest;
    for (const StepTime* line : lines) {
      AddStep(*line, shares_);
      const absl::Duration known = absl::Milliseconds(line->step_ms) + OwnEvaluation(*line);
      absl::Time time =
          line->time == absl::InfinitePast() ? cursor_ + known : line->time + set_back_;
      if (time < cursor_ - kClockSetBack) {
        set_back_ += cursor_ + known - time;
        time = cursor_ + known;
      }
      absl::Duration& excess = line == lines.front() ? shares_[preparation] : rest;
      excess += time - cursor_ - known;
      cursor_ = time;
    }
    shares_[kBookkeeping] += std::max(rest, absl::ZeroDuration());
  }

  absl::Time cursor() const { return cursor_; }
  const TimeShares& shares() const { return shares_; }

 private:
  absl::Time cursor_;
  absl::Duration& set_back_;
  TimeShares shares_{};
};

}  // namespace

absl::StatusOr<RunHistory> ReadRunHistory(const std::string& run_dir) {
  RETURN_IF_ERROR(CheckIsRun(run_dir));
  const RunDirectory paths(run_dir);
  RunHistory history;
  ASSIGN_OR_RETURN(history.config, LoadRunConfig(paths.config, {}));
  ASSIGN_OR_RETURN(history.ledger, ReadLedger(paths));
  ASSIGN_OR_RETURN(history.metrics, ReadMetrics(paths.metrics));
  ASSIGN_OR_RETURN(history.redone, ReadMetrics(paths.redone));
  for (const std::string& path :
       {paths.ledger, paths.launcher_ledger, paths.metrics, paths.redone}) {
    const absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxTextBytes);
    if (text.ok() && !text->empty() && text->back() != '\n') history.torn.push_back(path);
  }
  return history;
}

absl::Duration WallTime::Sum() const {
  absl::Duration sum;
  for (const absl::Duration share : shares) sum += share;
  return sum;
}

bool WallTime::AddsUp() const { return absl::AbsDuration(Sum() - wall) <= wall / 100; }

StepTime StepTimeOf(const StepMetrics& metrics, bool is_redone) {
  const HeldOutMetrics none;
  const HeldOutMetrics& held_out = metrics.held_out ? *metrics.held_out : none;
  return {metrics.step,
          metrics.attempt,
          ParseUtcTime(metrics.time).value_or(absl::InfinitePast()),
          metrics.step_ms,
          metrics.data_wait_ms,
          metrics.reduce_ms,
          metrics.ckpt_stall_ms,
          held_out.ms,
          held_out.attempt >= 0 ? held_out.attempt : metrics.attempt,
          is_redone};
}

WallTime MeasureWallTime(const RunHistory& history) {
  std::vector<StepTime> steps;
  for (const StepMetrics& line : history.metrics) steps.push_back(StepTimeOf(line, false));
  for (const StepMetrics& line : history.redone) steps.push_back(StepTimeOf(line, true));
  return MeasureWallTime(history.ledger, steps);
}

WallTime MeasureWallTime(const std::vector<LedgerRecord>& ledger,
                         const std::vector<StepTime>& steps) {
  const std::vector<Traces> all = CollectTraces(ledger, steps);
  WallTime result;
  const Traces* previous = nullptr;
  absl::Time end;
  absl::Duration set_back;
  for (const Traces& traces : all) {
    const absl::Time begin = previous == nullptr ? *traces.start : end;
    const TimeClass preparation = previous == nullptr ? kStart : kRestart;
    SpanFiller filler(begin, set_back);
    const bool was_requested = previous != nullptr && WasRequested(previous->exit_status);
    filler.FillUntil(*traces.start, was_requested ? kStopped : kRestart);
    if (traces.train) filler.FillUntil(*traces.train, preparation);
    if (traces.made_up != nullptr) filler.FillMadeUpEvaluation(*traces.made_up);
    filler.FillSteps(traces.lines, preparation);
    // One that ended in its set-up has trained nothing that is to be done again.
    if (traces.stop && !traces.train) filler.FillUntil(*traces.stop, preparation);
    if (traces.stop)
      filler.FillUntil(*traces.stop, WasRequested(traces.stop_status) ? kCheckpointStall : kRedone);
    // A killed start has left nothing but its `exit`, if the launcher lived.
    const bool is_clean = traces.stop && WasRequested(traces.stop_status);
    if (traces.last) filler.FillUntil(*traces.last, is_clean ? kBookkeeping : kRestart);
    end = filler.cursor();
    result.attempts.push_back({traces.attempt, traces.ranks, end - begin, filler.shares()});
    for (int i = 0; i < kNumTimeClasses; ++i) result.shares[i] += filler.shares()[i];
    previous = &traces;
  }
  // By the times of day alone: the sum of the shares is what is checked against it.
  if (previous != nullptr) result.wall = end - *all.front().start;
  return result;
}

}  // namespace anyorder::launcher
