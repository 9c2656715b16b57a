// Rank 0's written account of a run: metrics, TensorBoard, ledger, live progress.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "ckpt/client.h"
#include "core/base/terminal.h"
#include "core/train/logging/tensorboard_writer.h"
#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"
#include "core/train/run/run_config.h"
#include "core/train/run/run_directory.h"

namespace anyorder {

// How long a run needs from a stop signal to its end: what a scheduler must leave it (`sbatch
// --signal`, a grace period).
class StopBudget {
 public:
  // Wall time of a finished step, its stall for a save included.
  void AddStep(double ms) { step_seconds_.push_back(ms / 1000); }
  // From the first rank's copy to COMMITTED: copy, write, vote and commit, and saves before it in
  // the queue.
  void AddCommit(double seconds) { commit_seconds_.push_back(seconds); }

  // 1.5 x the 99th percentile of (step + commit), plus kEndSeconds. 0 before the first commit.
  double Seconds() const;

  // For what no checkpoint depends on: MPI, the service and the launcher ending.
  static constexpr double kEndSeconds = 5;

 private:
  std::vector<double> step_seconds_;
  std::vector<double> commit_seconds_;
};

// The live line of a training run: step, loss, tokens a second, time to go.
class Progress {
 public:
  // `on_terminal`: one line that is redrawn; otherwise a line of the first step, of each step that
  // `log_every` divides, and of the last.
  Progress(int64_t first_step, int64_t total_steps, bool on_terminal, int64_t log_every);

  // Writes to stderr when it is time to.
  void Update(const StepMetrics& metrics);
  // Ends a redrawn line, so that other output starts on a fresh one.
  void Finish() { line_.Finish(); }

  // "step 120/400  loss 6.1234  5210 tokens/s  ETA 1m20s"; tokens a second over the steps since the
  // line before.
  std::string Line(const StepMetrics& metrics, absl::Duration elapsed) const;

 private:
  bool IsDue(int64_t step, absl::Time now) const;

  const int64_t first_step_;
  const int64_t total_steps_;
  const bool on_terminal_;
  const int64_t log_every_;
  const absl::Time started_;
  absl::Time last_shown_ = absl::InfinitePast();
  // Since then.
  int64_t tokens_ = 0;
  double ms_ = 0;
  RedrawnLine line_;
};

class Reporter {
 public:
  struct Start {
    std::string run_id;
    int64_t attempt = 0;
    int ranks = 0;
    int64_t step = 0;          // steps that are already trained
    int64_t trained_step = 0;  // the last of them that changed the weights
    std::string checkpoint;    // where they came from; "" for a fresh start
    std::string dataset_digest;
    bool on_terminal = false;
  };

  static absl::StatusOr<std::unique_ptr<Reporter>> Open(const std::string& run_dir,
                                                        const RunConfig& config,
                                                        const Start& start);

  // Metrics that cannot be written are kept, with a warning, until they can; what only people look
  // at (TensorBoard) is given up with a warning.
  void Step(const StepMetrics& metrics);
  // The evaluation after step `step`, from which this start goes on: a stop had cut it off. Before
  // the first Step.
  absl::Status MissedEvaluation(int64_t step, HeldOutMetrics held_out);
  // Before a checkpoint of the last step is staged what it vouches for is made durable: begun
  // before the copy, which takes as long, and awaited after it.
  void BeginSync() { metrics_.BeginSync(); }
  absl::Status AwaitSync() { return metrics_.AwaitSync(); }
  absl::Status Sync() { return metrics_.Sync(); }
  // Something that is not a matter of course: in the ledger, and as a warning if there is one.
  absl::Status Incident(ledger::Event event, const std::string& warning);
  // Writes down commits.
  absl::Status Saves(const std::vector<ckpt::SaveEvent>& events);
  // The end of this start, whatever its reason: `stop` with step, exit status and detail.
  absl::Status Stop(ledger::Stop stop);

 private:
  Reporter(const std::string& run_dir, const RunConfig& config, const Start& start,
           MetricsLog metrics, Ledger ledger);
  void ReportHeldOut(int64_t step, const HeldOutMetrics& held_out);
  void WriteTensorboard(int64_t step, const Scalars& scalars);
  absl::Status Record(const ledger::Event& event) {
    if (ledger_fault_.ok()) ledger_fault_ = ledger_.Append(event);
    return ledger_fault_;
  }
  absl::Status RecordTrained();

  const RunDirectory paths_;
  const Start start_;
  const std::string metric_;  // eval.metric
  MetricsLog metrics_;
  bool metrics_are_kept_ = false;                 // since the last line could not be written
  std::optional<TensorboardWriter> tensorboard_;  // nothing after its first failure
  Ledger ledger_;
  absl::Status ledger_fault_;  // of the first record that is missing: no later one may follow it
  Progress progress_;
  StopBudget stop_budget_;                    // of this start
  int64_t trained_step_ = 0;                  // the last that changed the weights
  std::map<int64_t, int64_t> skipped_after_;  // by step that was skipped: trained_step_ then
  int64_t recorded_step_ = 0;                 // the ledger's `trained` records reach to here
};

}  // namespace anyorder
