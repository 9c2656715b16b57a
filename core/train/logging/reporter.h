// Rank 0's written account of a run: metrics, TensorBoard, ledger, live progress, loss curve.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "ckpt/client.h"
#include "core/train/logging/progress.h"
#include "core/train/logging/tensorboard_writer.h"
#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"
#include "core/train/run/run_config.h"
#include "core/train/run/run_directory.h"
#include "core/train/run/stop_budget.h"

namespace anyorder {

class Reporter {
 public:
  struct Start {
    std::string run_id;
    int64_t attempt = 0;
    int ranks = 0;
    int64_t step = 0;        // steps that are already trained
    std::string checkpoint;  // where they came from; "" for a fresh start
    std::string dataset_digest;
    bool on_terminal = false;
  };

  static absl::StatusOr<std::unique_ptr<Reporter>> Open(const std::string& run_dir,
                                                        const RunConfig& config,
                                                        const Start& start);

  absl::Status Step(const StepMetrics& metrics);
  // Something that is not a matter of course: in the ledger, and as a warning.
  absl::Status Incident(ledger::Event event, const std::string& warning);
  // Writes down commits, and the loss curve with them.
  absl::Status Saves(const std::vector<ckpt::SaveEvent>& events, int64_t step);
  // The end of this start, whatever its reason: `stop` with step, exit status and detail.
  absl::Status Stop(ledger::Stop stop);

 private:
  Reporter(const std::string& run_dir, const RunConfig& config, const Start& start,
           MetricsLog metrics, TensorboardWriter tensorboard, Ledger ledger);
  absl::Status ReportHeldOut(int64_t step, const HeldOutMetrics& held_out);
  absl::Status RecordTrained(int64_t step);
  absl::Status DrawLoss();

  const RunDirectory paths_;
  const Start start_;
  const std::string title_;
  MetricsLog metrics_;
  TensorboardWriter tensorboard_;
  Ledger ledger_;
  Progress progress_;
  StopBudget stop_budget_;            // of this start
  std::vector<StepMetrics> history_;  // the whole run's, for the curve
  int64_t recorded_step_ = 0;         // the ledger's `trained` records reach to here
};

}  // namespace anyorder
