#include "launcher/start_request.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/train/config_file.h"
#include "core/train/held_out.h"
#include "core/train/ledger.h"
#include "core/train/run_directory.h"
#include "core/train/schedule_change.h"
#include "core/train/task_data.h"
#include "core/train/warm_start.h"
#include "data/dataset.h"
#include "data/dataset_index.h"
#include "data/shard_format.h"
#include "launcher/imported_run.h"
#include "launcher/run_place.h"

namespace anyorder::launcher {
namespace {

// FailedPrecondition if an earlier start of this run trained on another dataset.
absl::Status CheckSameDataset(const RunDirectory& paths, const data::DatasetIndex& index) {
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths.ledger));
  for (const LedgerRecord& record : records) {
    if (record.dataset_digest.empty() || record.dataset_digest == index.dataset_digest) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("run '",
                     paths.root,
                     "' was trained on dataset ",
                     record.dataset_digest,
                     ", but data.shards now holds dataset ",
                     index.dataset_digest,
                     "; set data.shards to the old one, or start a new run directory"));
  }
  return absl::OkStatus();
}

// The configuration as it is asked for: file, imported model and --set put together, with the directories of the data absolute, because
// ranks may start in another directory, and so may the next launch.
absl::StatusOr<RunConfig> LoadRequested(const StartRequest& request, bool has_config) {
  const RunDirectory paths(request.run_dir);
  RunConfig base;
  if (has_config && ImportedRun(request.run_dir).exists()) {
    // A file for continued pretraining need not repeat what the weights say.
    ANYORDER_ASSIGN_OR_RETURN(const RunConfig imported, LoadRunConfig(paths.config, {}));
    base.model = imported.model;
  }
  if (!request.config.empty())
    ANYORDER_RETURN_IF_ERROR(CheckConfigPath("--config", request.config));
  const std::string file = request.config.empty() ? paths.config : request.config;
  ANYORDER_ASSIGN_OR_RETURN(RunConfig config, LoadRunConfig(file, request.overrides, base));
  for (std::string* directory :
       {&config.data.shards, &config.eval.shards, &config.train.init_from}) {
    if (directory->empty()) continue;
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(*directory, error);
    if (!error) *directory = absolute.lexically_normal().string();
  }
  return config;
}

absl::Status CheckShardsPath(const std::string& key, const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(found) ||
      (error && found.type() == std::filesystem::file_type::none))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key,
                   " '",
                   path,
                   std::filesystem::exists(found) ? "' is no directory" : "' does not exist",
                   "; name a directory that `anyorder prep --output` wrote"));
}

// Whether a run that has not begun can begin with the weights that it asks for.
absl::Status CheckWarmStart(const RunDirectory& paths,
                            const RunConfig& config,
                            const data::DatasetIndex& dataset) {
  if (config.train.init_from.empty()) return absl::OkStatus();
  if (ImportedRun(paths.root).exists()) {
    return absl::InvalidArgumentError(
        absl::StrCat("train.init_from is set, but '",
                     paths.root,
                     "' was imported and has weights already; leave the key out"));
  }
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths.ledger));
  if (Summarize(records).committed_step >= 0) return absl::OkStatus();
  const ParameterLayout layout(config.model, static_cast<int64_t>(dataset.vocab_size));
  return PlanWarmStart(config.train.init_from, config, layout, dataset.tokenizer_digest).status();
}

// Here, not only in the ranks: a dataset that cannot be used is refused once, and nothing is written.
absl::StatusOr<data::DatasetIndex> CheckData(const RunDirectory& paths, const RunConfig& config) {
  ANYORDER_RETURN_IF_ERROR(CheckShardsPath("data.shards", config.data.shards));
  if (config.eval.every > 0)
    ANYORDER_RETURN_IF_ERROR(CheckShardsPath("eval.shards", config.eval.shards));
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                            data::Dataset::Open(config.data.shards));
  ANYORDER_RETURN_IF_ERROR(CheckSameDataset(paths, dataset->index()));
  ANYORDER_RETURN_IF_ERROR(CheckTaskData(config, *dataset, TaskLabels::kRequired));
  ANYORDER_RETURN_IF_ERROR(CheckWarmStart(paths, config, dataset->index()));
  if (config.eval.every > 0)
    ANYORDER_RETURN_IF_ERROR(OpenHeldOutText(config, dataset->index()).status());
  return dataset->index();
}

}  // namespace

absl::Status CheckConfigPath(const std::string& option, const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status found = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(found)) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, " '", path, "' is a directory; name a TOML file in it"));
  }
  if (found.type() != std::filesystem::file_type::not_found) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " '", path, "' does not exist; name a TOML file (see configs/)"));
}

bool HasDataset(const RunConfig& config) {
  std::error_code error;
  return std::filesystem::exists(config.data.shards + "/" + data::kIndexFile, error);
}

absl::StatusOr<RunConfig> ResolveStart(const StartRequest& request) {
  if (request.run_dir.empty())
    return absl::InvalidArgumentError("--run-dir is empty; name a directory");
  if (request.config.empty()) ANYORDER_RETURN_IF_ERROR(CheckIsRun(request.run_dir));
  ANYORDER_RETURN_IF_ERROR(CheckPlaceOfRun(request.run_dir));
  const RunDirectory paths(request.run_dir);
  std::error_code error;
  const bool has_config = std::filesystem::exists(paths.config, error);
  ANYORDER_ASSIGN_OR_RETURN(RunConfig config, LoadRequested(request, has_config));
  ANYORDER_RETURN_IF_ERROR(config.ValidateWorldSize(request.ranks));
  std::optional<data::DatasetIndex> dataset;
  if (!request.may_lack_dataset || HasDataset(config)) {
    ANYORDER_ASSIGN_OR_RETURN(dataset, CheckData(paths, config));
  }
  if (!has_config) return config;
  ANYORDER_ASSIGN_OR_RETURN(const RunConfig started, LoadRunConfig(paths.config, {}));
  ANYORDER_ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths.ledger));
  const bool is_first = Summarize(records).incarnations == 0;
  if (is_first && ImportedRun(request.run_dir).exists()) {
    if (dataset)
      ANYORDER_RETURN_IF_ERROR(CheckFirstStart(request.run_dir, started, config, *dataset));
  } else {
    ANYORDER_RETURN_IF_ERROR(
        Annotate(CheckMayGoOn(started, config, request.allow_schedule_change), paths.config));
  }
  return config;
}

}  // namespace anyorder::launcher
