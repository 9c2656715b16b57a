#include "launcher/run/saved_step.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/log.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/train/run/best_evaluation.h"
#include "core/train/run/config_file.h"
#include "core/train/run/ledger.h"
#include "core/train/run/run_directory.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"

namespace anyorder::launcher {
namespace {

// Damage of any part counts, also of tensors that the caller does not read, as it does when the
// newest good one is looked for.
absl::StatusOr<ckpt::Checkpoint> OpenWhole(const std::string& directory) {
  absl::StatusOr<ckpt::Checkpoint> checkpoint = ckpt::Checkpoint::Open(directory);
  absl::Status status = checkpoint.status();
  if (absl::IsNotFound(status) && IsThere(directory)) status = DataLoss(status.message());
  if (status.ok()) status = checkpoint->Verify();
  if (status.ok()) return checkpoint;
  if (absl::IsNotFound(status)) {
    return InvalidArgument(
        "--step: ", status.message(),
        "; `anyorder status` lists the run's, or leave --step out for the newest valid one");
  }
  if (!absl::IsDataLoss(status)) return status;
  return DataLoss(status.message(),
                  "; name another step, or leave --step out for the newest valid one");
}

absl::StatusOr<ckpt::Checkpoint> OpenNewest(const std::string& run_dir) {
  const absl::StatusOr<std::string> directory =
      ckpt::FindNewestGood(run_dir, /*quarantine_bad=*/false);
  if (absl::IsNotFound(directory.status())) return FailedPrecondition(directory.status().message());
  RETURN_IF_ERROR(directory.status());
  return ckpt::Checkpoint::Open(*directory);
}

// The best evaluation of which there is a checkpoint.
absl::StatusOr<int64_t> FindBestStep(const std::string& run_dir) {
  const RunDirectory paths(run_dir);
  ASSIGN_OR_RETURN(const RunConfig config, LoadRunConfig(paths.config, {}));
  ASSIGN_OR_RETURN(std::vector<EvaluatedStep> evaluations, ReadEvaluations(paths.metrics));
  ASSIGN_OR_RETURN(const std::vector<ckpt::CheckpointInfo> infos, ckpt::ListCheckpoints(run_dir));
  const BestEvaluationState of_all = FindBest(config.eval, evaluations);
  const auto is_gone = [&infos](const EvaluatedStep& evaluation) {
    return std::none_of(infos.begin(), infos.end(), [&](const ckpt::CheckpointInfo& info) {
      return info.opens && info.step == evaluation.step;
    });
  };
  std::erase_if(evaluations, is_gone);
  const BestEvaluationState best = FindBest(config.eval, evaluations);
  if (best.step < 0) {
    return InvalidArgument("--step best: no checkpoint of '", run_dir,
                           "' has an evaluation; a run with eval.every and checkpoint.keep_best = "
                           "true keeps its best one; name another step, or leave --step out for "
                           "the newest valid one");
  }
  if (best.step != of_all.step) {
    LogWarning(absl::StrCat("the best ", of_all.metric, " is ", LossText(of_all.value),
                            " after step ", of_all.step, ", whose checkpoint is not there; taking ",
                            LossText(best.value), " after step ", best.step,
                            " (checkpoint.keep_best = true keeps the best)"));
  }
  return best.step;
}

// Where the weights of `step` led the run nowhere; "" if that is not known of them.
std::string DivergenceOf(const std::string& run_dir, int64_t step) {
  const absl::StatusOr<std::vector<LedgerRecord>> records = ReadLedger(RunDirectory(run_dir));
  const ledger::Stop* const stop = records.ok() ? FindDivergedStop(*records) : nullptr;
  if (stop == nullptr || step < stop->trained_step || step == 0) return "";
  return absl::StrCat(
      "the run diverged after step ", stop->trained_step, ": the weights of step ", step,
      " are those that it diverged with; an earlier checkpoint may be better (--step)");
}

}  // namespace

absl::StatusOr<RunConfig> LoadConfigOfRun(const std::string& run_dir) {
  RETURN_IF_ERROR(CheckIsRun(run_dir));
  ASSIGN_OR_RETURN(const RunConfig config, LoadRunConfig(RunDirectory(run_dir).config, {}));
  if (config.run.is_private) KeepFilesPrivate();
  return config;
}

absl::StatusOr<ckpt::Checkpoint> OpenSavedStep(const std::string& run_dir, int64_t step) {
  if (step == kBestStep) {
    ASSIGN_OR_RETURN(step, FindBestStep(run_dir));
  }
  absl::StatusOr<ckpt::Checkpoint> checkpoint =
      step >= 0 ? OpenWhole(ckpt::CheckpointPath(run_dir, step)) : OpenNewest(run_dir);
  if (!checkpoint.ok()) return checkpoint;
  const std::string best = step < 0 ? NoteOfBest(*checkpoint) : "";
  if (!best.empty()) Log(best);
  const std::string divergence = DivergenceOf(run_dir, checkpoint->step());
  if (!divergence.empty()) LogWarning(divergence);
  return checkpoint;
}

void LogWeights(const ckpt::Checkpoint& checkpoint, WeightChoice choice) {
  if (!HasAverage(checkpoint)) return;
  Log(choice == WeightChoice::kAverage
          ? "using the average of the weights (optimizer.ema_decay; --raw-weights for themselves)"
          : "using the weights themselves, not their average (--raw-weights)");
}

absl::StatusOr<data::DatasetIndex> ReadTrainingData(const std::string& shards,
                                                    absl::string_view wanted,
                                                    absl::string_view instead) {
  absl::StatusOr<data::DatasetIndex> index = data::ReadDatasetIndex(shards);
  if (index.ok()) return index;
  const std::string fault =
      absl::StrCat(wanted, " (data.shards): ", index.status().message(), "; ", instead);
  return absl::IsNotFound(index.status()) ? FailedPrecondition(fault)
                                          : absl::Status(index.status().code(), fault);
}

}  // namespace anyorder::launcher
