// Where a start of a run begins: at a checkpoint, or at step 0.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/network/tensors/parameters.h"
#include "core/train/run/anomaly_policy.h"
#include "core/train/run/best_evaluation.h"
#include "core/train/run/ledger.h"
#include "core/train/run/run_config.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/lane_restarts.h"
#include "data/dataset/dataset_index.h"
#include "dist/communicator.h"

namespace anyorder {

enum class ResumeMode {
  kAuto,      // from the newest good checkpoint; from step 0 only if the run never committed one
  kRequired,  // from the newest good checkpoint or not at all
  kNever,     // from step 0; refused where checkpoints are, because it would mix two runs
};

constexpr auto SpellingsOf(ResumeMode) { return std::array{"auto", "required", "never"}; }

// A quick look without reading payload, so that a start that cannot work writes nothing.
//   FailedPrecondition: required, but there is none;  AlreadyExists: never, but there are some;
//   DataLoss: the ledger knows of commits and no checkpoint is there.
absl::Status CheckResume(const std::string& run_dir, ResumeMode mode);

// Aborted if the run diverged (ledger::Stop) and `now`, whose schedule may have changed, would let
// the same happen again: neither what decides the result nor [anomaly] differs.
absl::Status CheckDivergence(const RunDirectory& paths, const RunConfig& now);

// The directory to load, "" for step 0. Its payload is not read: the ranks verify it as they load
// it (Trainer::LoadNewestGood), and set a damaged one aside. Those without a good manifest are set
// aside here, and after a divergence also those of the last trained step and later, with a warning:
// the run resumes from the newest older one, or begins again. Errors: those of CheckResume;
// DataLoss if none is left. One rank calls it and tells the others.
absl::StatusOr<std::string> ChooseCheckpoint(const std::string& run_dir, ResumeMode mode);

// How far a run has come, for what a start may still change of it.
struct RunProgress {
  int64_t checkpoint_step = -1;  // of the newest checkpoint, found or recorded; -1: none
  bool has_trained = false;      // a step, saved or not

  // Whether its configuration is settled. Weights that were imported are a checkpoint of step 0,
  // and settle the model's function only.
  bool is_settled() const { return has_trained || checkpoint_step > 0; }
};
absl::StatusOr<RunProgress> ReadRunProgress(const RunDirectory& paths);

// InvalidArgument if `config` ends before `step`, which the run has reached: its learning rates and
// its progress would be those of no schedule.
absl::Status CheckEndsAfter(const RunConfig& config, int64_t step, const std::string& run_dir);

// Another run's checkpoint, beside whose weights the adapters of a run are trained.
struct BaseCheckpoint {
  std::string directory;  // absolute, when the run began
  std::string run_id;
  int64_t step = 0;
  int64_t generation = 0;

  bool exists() const { return !run_id.empty(); }
};

// What a checkpoint records in addition to its tensors (FORMAT.md, "Checkpoint metadata").
struct TrainMetadata {
  int64_t step = 0;
  int64_t skipped_steps = 0;  // over the whole run
  AnomalyState anomaly;
  BestEvaluationState best_evaluation;
  int64_t keep_step = -1;  // whose checkpoint stays; -1: none
  std::vector<LaneRestart> lane_restarts;
  BaseCheckpoint base;  // of a run with adapters
  int world_size = 0;
  std::string device;  // DeviceName (device.h); "": a version that knew the CPU only
  std::string config_digest;
  std::string dataset_digest;
  std::string tokenizer_digest;
  std::string config_text;

  // Weights that were imported have met no dataset and no training settings yet: both digests are
  // empty.
  bool is_imported() const { return dataset_digest.empty() && config_digest.empty(); }
};
// A JSON array of each parameter's name, offset and shape: what the flat tensors consist of.
std::string ParameterTable(const ParameterLayout& layout);
// JSON, with the parameter table of `layout`.
std::string SerializeMetadata(const TrainMetadata& metadata, const ParameterLayout& layout);
absl::StatusOr<TrainMetadata> ParseMetadata(const std::string& json);
// InvalidArgument if it is more than a rank can hand to the checkpoint service with a save: the
// table of a model of more than ten thousand layers. Asked in set-up, since no save would come to
// anything.
absl::Status CheckMetadataSize(const std::string& metadata);

// FailedPrecondition naming what differs: another configuration, dataset or tokenizer. Imported
// weights take any dataset of their tokenizer, and any settings that leave the model's function as
// it is.
absl::Status CheckMetadata(const TrainMetadata& saved, const RunConfig& config,
                           const data::DatasetIndex& dataset);
// The part about the configuration.
absl::Status CheckMetadataConfig(const TrainMetadata& saved, const RunConfig& config);

// The steps that rollbacks of the run so far hold back. A rollback ends the run with a line in the
// ledger, which the next start finds. Collective: rank 0 reads,
// and all ranks get the same.
absl::StatusOr<std::vector<SkippedSteps>> AgreeOnRollbacks(const RunDirectory& paths,
                                                           dist::Communicator& communicator);

// Going on with a run under another schedule (train.steps; the optimizer's learning rate, warmup,
// decay, drop and ema_decay): such a run is no longer a pure function of one configuration, so it
// takes a flag (--allow-schedule-change) and a record in the ledger.
//
// Whether a start with `now` may replace `started` in a run that has come so far: CheckSameRun and
// CheckEndsAfter once the configuration is settled, CheckSameFunction where only weights are there,
// and anything before. `is_schedule_allowed` lets the schedule of a settled one differ; without it
// the error names the flag.
absl::Status CheckMayReplace(const RunConfig& started, const RunConfig& now,
                             const RunProgress& progress, bool is_schedule_allowed,
                             const std::string& run_dir);

// With the launcher's lease in hand: the record that the ledger must get before `now` replaces the
// frozen configuration, a Schedule or a Reconfigured; nothing where both train alike. Errors: those
// of CheckMayReplace, for another launch may have trained since that was asked.
absl::StatusOr<std::optional<ledger::Event>> ReplacementRecord(const RunDirectory& paths,
                                                               const RunConfig& now,
                                                               int64_t attempt,
                                                               bool is_schedule_allowed);

// A checkpoint of before the change counts as one of `config` if the ledger says that the change
// was allowed; a config.toml that was edited by hand is still refused.
absl::Status AcceptRecordedSchedule(const std::string& run_dir, const RunConfig& config,
                                    TrainMetadata* saved);

}  // namespace anyorder
