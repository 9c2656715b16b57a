// run-dir/metrics.jsonl: one JSON object per finished step (FORMAT.md), for people, scripts and
// `anyorder status`.

#pragma once

#include <cstdint>
#include <deque>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/train/run/run_directory.h"

namespace anyorder {

// A figure of the heads (NamedSum) or of an evaluation, by its name in the file, "loss_ae".
struct NamedMean {
  std::string name;
  double value = 0;
};

// "6.1234"; "nan" for every NaN, which printf would give a sign.
std::string LossText(double loss);

// ", accuracy 0.8125" of each share of right answers among `means`, "" for none: a classifier's is
// what its user looks for.
std::string AccuracyText(const std::vector<NamedMean>& means);
// Whether a figure of this name is one.
bool IsAccuracy(absl::string_view name);

// Held-out loss after a step, in nats a target.
struct HeldOutMetrics {
  double loss = 0;
  double standard_error = 0;
  int64_t targets = 0;
  double ms = 0;  // wall time of the evaluation on rank 0
  // The start that made up for an evaluation that a stop had cut off; -1: it was the step's own.
  int64_t attempt = -1;
  // Named without "eval_": by split (FORMAT.md), by Batch's loss, and task_accuracy.
  std::vector<NamedMean> means;
};

struct StepMetrics {
  int64_t step = 0;  // steps finished, this one included
  int64_t attempt = 0;
  double loss = 0;  // nats a target, over all ranks and targets; without next-sentence labels
  double lr = 0;
  double grad_norm = 0;  // before clipping
  double targets = 0;    // total target weight
  int64_t tokens = 0;    // content tokens of the step
  bool skipped = false;  // something was not finite: weights and memory are as before
  std::string samples;   // data::StepDigest of what all lanes read
  double tokens_per_second = 0;
  // The rate of each rank's device, and the share that the step's arithmetic has of what the
  // devices could do at most (run/device.h); 0: no peak is known.
  double tokens_per_second_per_device = 0;
  double mfu = 0;
  // Rank 0's wall time of the step and its parts, in ms. On a device a step ends when its norm is
  // known: what is left of the update by then is in the next step's time.
  double step_ms = 0;
  double data_wait_ms = 0;
  double compute_ms = 0;    // forward and backward of this rank's microbatches
  double reduce_ms = 0;     // gradient reduce-scatter, waiting for slower ranks included
  double optimizer_ms = 0;  // update and all-gather of weights
  double ckpt_stall_ms = 0;
  std::string time;                        // RFC 3339, of the line itself; filled in by Append
  int64_t peak_rss_bytes = 0;              // of rank 0
  int64_t peak_device_bytes = 0;           // of its GPU, with all that others take; 0: none
  std::vector<NamedMean> means;            // what the heads report
  std::optional<HeldOutMetrics> held_out;  // where the step was followed by an evaluation
};

class MetricsLog {
 public:
  static absl::StatusOr<MetricsLog> Open(const std::string& path);
  // Writes the line behind those that could not be written before. After an error it is kept, and
  // the next call tries again.
  absl::Status Append(StepMetrics metrics);
  // Writes what is kept and begins, in a thread, to make all lines survive a power cut. Lines may
  // be appended meanwhile. REQUIRES: the log is not moved from here on.
  void BeginSync();
  // Waits for it, and says how it ended. An error of the disk stays: what the kernel dropped then
  // is not to be had back.
  absl::Status AwaitSync();
  absl::Status Sync() {
    BeginSync();
    return AwaitSync();
  }
  // The last step whose line is known to be durable; 0: none.
  int64_t durable_step() const { return durable_step_; }

 private:
  explicit MetricsLog(AppendFile file) : file_(std::move(file)) {}
  absl::Status WriteKept();

  AppendFile file_;
  std::deque<std::string> kept_;  // lines in the order of their steps
  int64_t last_step_ = 0;
  int64_t durable_step_ = 0;
  int64_t syncing_step_ = 0;
  absl::Status unwritten_;  // why BeginSync had nothing to sync
  absl::Status sync_fault_;
  std::future<absl::Status> syncing_;  // last: reads file_
};

// All whole lines, in file order. Empty if there is no such file; lines that do not parse are left
// out.
absl::StatusOr<std::vector<StepMetrics>> ReadMetrics(const std::string& path);

// metrics.jsonl as a stream: it may be larger than memory, and it may grow while it is watched.
class MetricsStream {
 public:
  explicit MetricsStream(std::string path) : path_(std::move(path)) {}

  // Gives the whole lines that were appended since the last call to `take`, in file order, as they
  // are and parsed; those that do not parse are left out. `start_over` is called first if the file
  // is no longer the one that was read (a restart rewrites it): all its lines come again.
  absl::Status Read(absl::FunctionRef<void()> start_over,
                    absl::FunctionRef<void(StepMetrics, absl::string_view line)> take);

 private:
  const std::string path_;
  uint64_t inode_ = 0;  // of the file that was read; 0: none yet
  int64_t offset_ = 0;  // of the first line that was not taken
};

// Puts an evaluation into the line of `step`, which a stop had cut it off from. No other process or
// MetricsLog may have the file open for writing.
absl::Status AddHeldOut(const std::string& path, int64_t step, const HeldOutMetrics& held_out);

// Before a run goes on from `step`: moves the lines of later steps, whose work was lost, from
// `path` to the end of `redone_path`, so that `path` keeps one line a step.
absl::Status SetAsideLaterSteps(const std::string& path, const std::string& redone_path,
                                int64_t step);

}  // namespace anyorder
