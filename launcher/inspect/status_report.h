// `anyorder status`: what a run is doing now, from the files of its directory joined with what
// Slurm says about its jobs; in one screen, and the same as JSON (README.md lists the members).

#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "ckpt/lease.h"
#include "ckpt/reader.h"
#include "core/train/run/best_evaluation.h"
#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"
#include "launcher/slurm/slurm_commands.h"
#include "launcher/start/run_pace.h"

namespace anyorder::launcher {

// The newest checkpoint that opens.
struct LastCommit {
  int64_t step = 0;
  int64_t num_bytes = 0;
  absl::Duration age;
};

// The sums of all steps that count.
struct StepSums {
  std::optional<double> eval_loss;  // the last one
  std::vector<NamedMean> eval_means;
  int64_t eval_step = 0;
  int64_t skipped_steps = 0;
  int64_t trained_step = 0;  // the last that was not skipped
  absl::Duration training;
  absl::Duration evaluation;
};

// How a run that does not run has ended.
struct RunEnd {
  std::string state;  // finished, finished early (eval.patience), stopped, failed, diverged
  std::string error;  // of the last two: why, in a line
};

// `is_done`: it has trained all steps.
RunEnd FindRunEnd(const std::vector<LedgerRecord>& ledger, bool is_done);

struct StatusFacts : StepSums {
  absl::Time now;
  std::string run_dir;
  std::string run_id;
  std::string state;  // running, queued (a job of the run waits), or a RunEnd's
  std::string error;  // as in RunEnd
  std::string owner;  // the launcher that has the run, if it lives
  int64_t step = 0;
  int64_t steps = 0;  // 0: not known before the first start
  int64_t starts = 0;
  int64_t restarts = 0;  // starts after an end that left something to do
  int64_t ranks = -1;    // of the last start, like the next
  std::vector<std::string> nodes;
  std::optional<StepMetrics> last;
  int64_t redone_steps = 0;                // lost in a crash and recomputed
  absl::Duration wall;                     // from each start to the last that is known of it
  std::optional<absl::Duration> per_step;  // wall time of late; with all that comes between steps
  // The rate of late, of the time in steps; 0: not known.
  double tokens_per_second = 0;
  double tokens_per_second_per_device = 0;
  double mfu = 0;
  std::optional<absl::Duration> left;     // until the last step, while it runs
  std::optional<absl::Duration> silence;  // since the last step, while it runs
  std::optional<LastCommit> commit;
  std::vector<ckpt::CheckpointInfo> checkpoints;  // newest first
  BestEvaluationState best;                       // by eval.metric
  std::vector<LedgerRecord> ledger;
  std::optional<AttemptPace> pace;  // of the last start
  bool is_under_slurm = false;
  SlurmView slurm;  // of a run under Slurm

  bool is_finished() const { return state == "finished" || state == "finished early"; }
  // Nothing was trained from it: steps behind it, or its own, were skipped, and no other came.
  bool IsSuspect(int64_t checkpoint_step) const {
    return last && last->skipped && checkpoint_step >= trained_step && checkpoint_step > 0;
  }
  double Goodput() const {
    return wall > absl::ZeroDuration() ? absl::FDivDuration(training, wall) : 0;
  }
};

// The launcher that has the run directory, as far as anybody can tell. On another machine its
// process cannot be looked at, but Slurm knows whether the job it belongs to still runs.
std::optional<ckpt::LeaseOwner> LiveOwner(const std::string& run_dir, const SlurmView& slurm);

// Restarts among the starts of `ledger`: a launch of a run whose last start was done (exit status
// 0) is none.
int64_t CountRestarts(const std::vector<LedgerRecord>& ledger);

// Collects repeatedly, and reads of metrics.jsonl only what is new.
class StatusCollector {
 public:
  explicit StatusCollector(const std::string& run_dir);

  // InvalidArgument if the directory holds neither a run nor a batch script for one.
  absl::StatusOr<StatusFacts> Collect();

 private:
  absl::Status ReadSteps();
  void TakeStep(StepMetrics metrics);
  void TakeTime(const StepMetrics& metrics);
  void DescribeProgress(StatusFacts& facts) const;

  const std::string run_dir_;
  MetricsStream metrics_;
  MetricsStream redone_;
  StepSums sums_;
  std::deque<StepMetrics> recent_;  // the last lines of one start
  std::vector<EvaluatedStep> evaluations_;
  int64_t redone_steps_ = 0;
  std::map<int64_t, absl::Time> newest_lines_;  // by attempt, redone steps too
};

struct StatusOptions {
  std::string run_dir;
  bool json = false;
  std::optional<double> watch_seconds;  // look again after so long, until the run is done
  // What `inspect --verify` found: checkpoints of the run whose every byte was compared with its
  // checksum.
  std::optional<int64_t> verified_checkpoints;
};

// Prints to stdout. InvalidArgument if the directory holds no run.
absl::Status PrintStatus(const StatusOptions& options);

// The screen: at most 24 lines for a run on a few nodes. Control characters in names and messages
// are left out.
std::string StatusScreen(const StatusFacts& facts);

// The screen in one line, for logs.
std::string StatusLine(const StatusFacts& facts);

// The object of --json in one line.
std::string StatusJsonLine(const StatusFacts& facts);

// "1 d 3 h", "5 min 12 s", "4.2 s": two units at most.
std::string HumanDuration(absl::Duration duration);

// On a terminal the screen is drawn over the one before; elsewhere each refresh is one line, with
// `json` one JSON object a line. Ends when the run is finished, and at SIGINT and SIGTERM; both are
// OK. A run that stopped may be started again: it is watched on.
absl::Status WatchStatus(const std::string& run_dir, bool json, absl::Duration interval);

// The bytes that replace a drawing of `lines_before` lines by `screen` on a terminal of `rows` x
// `columns`. Lines that are too long are cut, and so is a screen that is too high: what scrolled
// out of sight could not be drawn over. `lines` is set to those drawn.
std::string Redraw(absl::string_view screen, int64_t rows, int64_t columns, int64_t lines_before,
                   int64_t* lines);

}  // namespace anyorder::launcher
