#include "launcher/inference/saved_model.h"

#include "absl/strings/str_cat.h"

#include "ckpt/reader.h"
#include "core/base/machine_memory.h"
#include "core/base/status.h"
#include "core/train/evaluation/task_data.h"
#include "core/train/state/resume.h"
#include "launcher/run/saved_step.h"

namespace anyorder::launcher {
namespace {

// Labels are numbers to the network: whether the data mean the same by them as what the run learned
// from, if that is still there.
absl::Status CheckLabels(const SavedModel& model, const TrainMetadata& saved) {
  const std::string& shards = model.config.data.shards;
  const absl::StatusOr<data::DatasetIndex> training = data::ReadDatasetIndex(shards);
  if (!training.ok() || training->dataset_digest != saved.dataset_digest) return absl::OkStatus();
  return CheckSameClasses(model.config, model.data->index(),
                          absl::StrCat("'", model.data_path, "'"), *training,
                          absl::StrCat("the run's data.shards '", shards, "'"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeRunBackend(const SavedModelOptions& options,
                                                                 const RunConfig& config) {
  kernels::BackendOptions backend;
  backend.num_threads = options.threads > 0 ? static_cast<int>(options.threads) : UsableCores();
  backend.device = options.device;
  backend.gemm_table = absl::StrCat(options.run_dir, "/gemm_algorithm_cache.txt");
  backend.writes_gemm_table = false;
  backend.dtype = ToDType(config.model.dtype);
  return kernels::MakeBackend(backend);
}

absl::StatusOr<SavedModel> OpenSavedModel(const SavedModelOptions& options, const RunConfig& config,
                                          const std::string& data_path) {
  SavedModel model;
  model.config = config;
  model.data_path = data_path;
  ASSIGN_OR_RETURN(model.data, data::Dataset::Open(data_path));
  if (!options.takes_text || model.data->examples() != nullptr)
    RETURN_IF_ERROR(Annotate(CheckTaskData(config, *model.data, TaskLabels::kMayLack),
                             absl::StrCat("'", data_path, "'")));
  ASSIGN_OR_RETURN(model.backend, MakeRunBackend(options, config));
  ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint, OpenSavedStep(options.run_dir, options.step));
  ASSIGN_OR_RETURN(TrainMetadata saved, ParseMetadata(checkpoint.metadata_json()));
  RETURN_IF_ERROR(AcceptRecordedSchedule(options.run_dir, config, &saved));
  RETURN_IF_ERROR(CheckFitsText(saved, config, model.data->index()));
  RETURN_IF_ERROR(CheckLabels(model, saved));
  model.step = saved.step;
  model.is_training_data = saved.dataset_digest == model.data->index().dataset_digest;
  const ParameterLayout layout(config.model, static_cast<int64_t>(model.data->index().vocab_size));
  const WeightChoice choice = options.weights();
  LogWeights(checkpoint, choice);
  if (HasAverage(checkpoint)) model.weights_used = choice == WeightChoice::kAverage ? "ema" : "raw";
  ASSIGN_OR_RETURN(model.weights, LoadWeights(checkpoint, config, layout, *model.backend, choice));
  return model;
}

}  // namespace anyorder::launcher
