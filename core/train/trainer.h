// A training run: the step loop and what it needs, on one rank of many.
//
// All ranks go through every member alike; a rank with a problem of its own carries it to the
// others in the step's reduction, so that none returns early alone.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

#include "core/objective/objective.h"
#include "core/train/evaluation/evaluator.h"
#include "core/train/health/step_clock.h"
#include "core/train/logging/reporter.h"
#include "core/train/plan/training_parts.h"
#include "core/train/run/anomaly_policy.h"
#include "core/train/run/best_evaluation.h"
#include "core/train/run/run_config.h"
#include "core/train/run/setup_progress.h"
#include "core/train/state/lane_restarts.h"
#include "core/train/state/resume.h"
#include "core/train/state/saver.h"
#include "core/train/state/snapshot_copier.h"
#include "data/dataset/dataset.h"
#include "data/sampling/loader.h"
#include "data/sampling/sampler.h"
#include "dist/collective_watch.h"
#include "dist/communicator.h"
#include "dist/device_transport.h"
#include "kernels/backend.h"
#include "kernels/backends/make_backend.h"

namespace anyorder {

struct TrainerOptions {
  std::string run_dir;
  std::string run_id;
  int64_t attempt = 0;
  ResumeMode resume = ResumeMode::kAuto;
  bool progress_on_terminal = false;
  // With several nodes: this rank's, their number, the ranks on this one, and its service's socket.
  // Empty: the default one.
  int node = 0;
  int num_nodes = 1;
  int local_ranks = 0;        // 0: all
  int64_t local_devices = 0;  // GPUs that these share out; 0: each has its own
  std::string service_socket;
  // What computes: kernels::MakeBackend for all devices. Called once, in the thread of Create.
  std::function<absl::StatusOr<std::unique_ptr<kernels::Backend>>(const kernels::BackendOptions&)>
      make_backend = kernels::MakeCpuBackend;
  // A phase before the first step is done that takes longer says how far it is.
  absl::Duration silence = absl::Seconds(5);
  // Once the first step of a start has taken longer, a stop signal does not wait for its end.
  absl::Duration first_step_patience = absl::Seconds(2);
  // Of the gradient's windows (dist::GradientReducerOptions): less for networks as small as a
  // slice.
  int64_t min_slice_elements = dist::kMinSliceElements;
};

enum class TrainEnd {
  // All steps are done, or evaluations have not become better for long enough (eval.patience); the
  // last checkpoint is committed.
  kFinished,
  // A signal asked for it; a checkpoint of where it stopped is committed or, after a second signal,
  // staged: the service commits it.
  kStopped,
};

class Trainer {
 public:
  // Collective. Opens the dataset, builds the network, finds where to begin and connects to the
  // checkpoint service. Errors are the same on all ranks, and in the ledger unless the number of
  // ranks does not fit: Cancelled after a stop signal, which is obeyed in each phase. Arguments are
  // borrowed; `watch` may be null.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const RunConfig& config,
                                                         const TrainerOptions& options,
                                                         dist::Communicator& communicator,
                                                         dist::CollectiveWatch* watch);

  // Collective. Trains to the last step, or until eval.patience or a stop signal ends it, then
  // waits for the last checkpoint. Errors are the same on all ranks and in the ledger: DataLoss for
  // damaged data; Unavailable if checkpoints come to nothing (config.checkpoint); Aborted if it
  // diverged ([anomaly]); Cancelled if a stop signal ends a long first step before there is
  // anything to save.
  absl::StatusOr<TrainEnd> Run();

 private:
  using enum TrainingParts::Scalar;

  Trainer(const RunConfig& config, const TrainerOptions& options, dist::Communicator& communicator,
          dist::CollectiveWatch* watch)
      : config_(config),
        options_(options),
        communicator_(communicator),
        watch_(watch),
        setup_(communicator.rank() == 0, options.silence, watch),
        anomalies_(config.anomaly),
        best_(config.eval) {}

  // Set-up, in this order. Those named Local need no other rank.
  absl::Status SetUp();
  absl::Status OpenLocalDevice(kernels::BackendOptions device);
  absl::Status ConnectDevices();
  absl::Status OpenLocalData();
  absl::Status CheckSharding() const;
  absl::Status FitLocalNetwork();
  absl::Status CheckLocalMemory(int64_t vocab_size) const;
  absl::StatusOr<std::string> LoadNewestGood();
  absl::Status InitializeLocalWeights();
  absl::StatusOr<std::string> AgreeOnCheckpoint();
  absl::Status SetAside(const ckpt::Checkpoint& checkpoint, const absl::Status& damage);
  absl::Status LoadOtherRunsWeights();
  absl::Status LoadBase();
  absl::Status RestoreLocalProgress(const ckpt::Checkpoint& checkpoint);
  // `read`, which calls its argument with the elements that it has read, on all ranks.
  absl::Status LoadTogether(int64_t step,
                            absl::FunctionRef<absl::Status(const TrainingState::PieceDone&)> read);
  absl::Status ConnectLocalService();
  absl::Status OpenLocalReport(const std::string& checkpoint);
  void StartLoader();
  void DescribeStart(const std::string& checkpoint, int num_threads) const;
  void RecordFailedSetUp(const absl::Status& why) const;

  absl::StatusOr<TrainEnd> TrainAndSave();
  // All steps are done, or no better evaluation is expected.
  bool IsDone() const { return step_ >= config_.train.steps || best_.IsOver(); }
  absl::StatusOr<bool> RunStep();  // whether to stop
  void SetStepPhase(bool waits_for_data);
  void ComputeMicrobatches(bool save_is_due, StepMetrics& metrics);
  // Called before each microbatch. In a start's first step, which may be long, it tells how far the
  // step is, and notes a stop signal as this rank's fault, so that the step comes to nothing.
  void WatchFirstStep(absl::Time started, int64_t num_leaves);
  std::vector<NamedMean> HeadMeans(absl::Span<const double> totals) const;
  absl::Status UpdateWeights(absl::Span<const double> totals, StepMetrics& metrics);
  // What became of the step that the optimizer was asked for last. Not OK ends
  // the run.
  absl::Status TakeOutcome(StepMetrics& metrics);
  // Ends a step that changed no weights: records it and keeps the memory finite. Not OK ends the
  // run.
  absl::Status RecordSkippedStep(Anomaly anomaly, const StepMetrics& metrics);
  NonfiniteFindings FindNonfinite();
  std::string DescribeStep(Anomaly anomaly, const StepMetrics& metrics,
                           const std::string& where) const;
  bool EvaluateIfDue(StepMetrics& metrics);
  bool LacksEvaluation() const;
  bool EvaluateIfMissed();
  void SaveOrSkip(bool all_can_save);
  // The last step, up to `step`, that changed the weights.
  int64_t LastTrainedStep(int64_t step) const { return step - anomalies_.state().skipped_in_a_row; }
  // Notes that the run diverged with `step` if `status` says so, and returns it.
  absl::Status NoteDivergence(int64_t step, absl::Status status);
  void Report(StepMetrics& metrics);
  void RecordEnd(const absl::StatusOr<TrainEnd>& end);
  std::string Metadata() const;
  // Remembers the first local problem for the next reduction.
  void Note(const absl::Status& status) {
    if (fault_.ok()) fault_ = status;
  }

  const RunConfig& config_;  // the caller's, which outlives the trainer
  const TrainerOptions options_;
  dist::Communicator& communicator_;
  dist::CollectiveWatch* const watch_;
  SetupProgress setup_;

  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<dist::DeviceTransport> transport_;
  std::unique_ptr<data::Dataset> dataset_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<data::Sampler> sampler_;
  TrainingParts parts_;
  TensorView gradient_;  // of the owned range, summed over all microbatches: the reducer's
  std::unique_ptr<SnapshotCopier> snapshot_copier_;  // null: the state is in host memory
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<Reporter> reporter_;  // rank 0 only
  std::unique_ptr<data::BatchLoader> loader_;
  std::unique_ptr<PeriodicEvaluator> held_out_;  // null: no evaluations
  std::string warm_start_;  // what the weights began as, where they were not drawn
  BaseCheckpoint base_;     // with adapters: whose weights they are trained beside

  double step_flops_ = 0;  // of all ranks (NeededFlops)
  double peak_flops_ = 0;  // of one rank's device; 0: not known
  int64_t peak_device_bytes_ = 0;

  int64_t step_ = 0;             // steps finished
  int64_t first_step_ = 0;       // of them before this start
  int64_t skipped_steps_ = 0;    // of them without an update
  int64_t diverged_after_ = -1;  // the last step that changed the weights of a run that diverged
  AnomalyPolicy anomalies_;
  BestEvaluation best_;
  LaneRestarts lane_restarts_;
  StepClock clock_;
  double stall_ms_ = 0;  // of the save since the step before, for the next line of the metrics
  absl::Status fault_;   // this rank's own problem, not yet told to the others
};

}  // namespace anyorder
