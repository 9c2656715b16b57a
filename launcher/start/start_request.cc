#include "launcher/start/start_request.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "ckpt/reader.h"
#include "core/base/log.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/config/adaptive_clusters.h"
#include "core/train/evaluation/evaluator.h"
#include "core/train/evaluation/task_data.h"
#include "core/train/plan/fitting_settings.h"
#include "core/train/plan/memory_plan.h"
#include "core/train/run/config_file.h"
#include "core/train/run/node_inventory.h"
#include "core/train/state/resume.h"
#include "core/train/state/saved_weights.h"
#include "data/dataset/dataset.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "data/sampling/sampler.h"
#include "launcher/run/imported_run.h"
#include "launcher/start/room.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

// InvalidArgument if `run_dir` is a file, or a directory of other things than a run: a mistyped
// path must not mix a run's files, of which checkpoints are deleted by age, with other files.
// What a batch system puts there before the run begins (names that begin with slurm or submit) may
// be there.
absl::Status CheckPlaceOfRun(const std::string& run_dir) {
  std::error_code error;
  const fs::file_status status = fs::status(run_dir, error);
  if (!fs::exists(status)) return absl::OkStatus();
  if (!fs::is_directory(status)) {
    return InvalidArgument("--run-dir '", run_dir,
                           "' is not a directory; name a run's, or one that is new or empty");
  }
  const RunDirectory paths(run_dir);
  for (const std::string& mark : {paths.config, paths.ledger, paths.launch})
    if (IsThere(mark)) return absl::OkStatus();
  fs::directory_iterator entries(run_dir, error);
  if (error) return ErrnoStatus("list", run_dir, error.value());
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "slurm") || absl::StartsWith(name, "submit")) continue;
    return InvalidArgument("--run-dir '", run_dir, "' holds '", name,
                           "' and no run; name a run's directory, or one that is new or empty");
  }
  return absl::OkStatus();
}

// FailedPrecondition if an earlier start of this run trained on another dataset.
absl::Status CheckSameDataset(const RunDirectory& paths, const data::DatasetIndex& index) {
  ASSIGN_OR_RETURN(const RunProgress progress, ReadRunProgress(paths));
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths));
  const std::string trained = Summarize(records).dataset_digest;
  if (!progress.is_settled() || trained.empty() || trained == index.dataset_digest)
    return absl::OkStatus();
  return FailedPrecondition("run '", paths.root, "' was trained on dataset ", trained,
                            ", but data.shards now holds dataset ", index.dataset_digest,
                            "; set data.shards to the old one, or start a new run directory");
}

// The configuration as it is asked for: file, imported model and --set put together. `frozen`: the
// run's, null for a new one.
absl::StatusOr<RunConfig> LoadRequested(const StartRequest& request, const RunConfig* frozen) {
  RunConfig base = RunConfig::ForNewRun();
  if (frozen != nullptr) {
    base.sampling.lane_cells = frozen->sampling.lane_cells;
    // A file for continued pretraining need not repeat what the weights say.
    if (ImportedRun(request.run_dir).exists()) base.model = frozen->model;
  }
  const std::string file =
      request.config.empty() ? RunDirectory(request.run_dir).config : request.config;
  ASSIGN_OR_RETURN(RunConfig config, LoadRunConfig(file, request.overrides, base));
  RETURN_IF_ERROR(MakeDirectoriesAbsolute(config));
  return config;
}

// Whether `began`, a checkpoint that was pinned, is `wanted` or one of the run `wanted`.
bool IsWithin(const std::string& wanted, const std::string& began) {
  return wanted == began || absl::StartsWith(began, wanted + "/");
}

// What a run has to do with other weights is settled when its ranks have loaded them: `started` is
// how it began, null for one that has not. Before its first checkpoint it must begin with the same
// ones again.
absl::Status CheckSameWarmStart(const RunDirectory& paths, const RunConfig* started,
                                bool has_committed, const std::string& wanted) {
  if (started == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths));
  const bool has_begun =
      std::any_of(records.begin(), records.end(),
                  [](const LedgerRecord& record) { return record.As<ledger::Train>() != nullptr; });
  ASSIGN_OR_RETURN(const RunProgress progress, ReadRunProgress(paths));
  if (!has_begun && progress.checkpoint_step < 0) return absl::OkStatus();
  const std::string& began = started->train.init_from;
  const bool goes_on = has_committed && (wanted.empty() || !began.empty());
  const bool begins_again = wanted.empty() == began.empty() && IsWithin(wanted, began);
  if (goes_on || begins_again) return absl::OkStatus();
  return InvalidArgument("train.init_from is ",
                         wanted.empty() ? "not set" : absl::StrCat("'", wanted, "'"), ", but run '",
                         paths.root, "' began with ",
                         began.empty() ? "weights of its own" : absl::StrCat("'", began, "'"),
                         "; leave the key as it was, or name a new --run-dir");
}

// Whether a run without a checkpoint can begin with the weights that it asks for, which are pinned:
// the one checkpoint that is the newest now, for all ranks and for starts after a crash.
absl::Status SettleWarmStart(const RunDirectory& paths, const RunConfig* started,
                             const data::DatasetIndex& dataset, RunConfig& config) {
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths));
  const bool has_committed = Summarize(records).committed_step >= 0;
  RETURN_IF_ERROR(CheckSameWarmStart(paths, started, has_committed, config.train.init_from));
  if (config.train.init_from.empty()) return absl::OkStatus();
  if (ImportedRun(paths.root).exists()) {
    return InvalidArgument("train.init_from is set, but '", paths.root,
                           "' was imported and has weights already; leave the key out");
  }
  if (has_committed) return absl::OkStatus();
  if (started != nullptr && IsWithin(config.train.init_from, started->train.init_from))
    config.train.init_from = started->train.init_from;
  ASSIGN_OR_RETURN(const WarmStart plan, PlanWarmStart(config.train.init_from, config, dataset));
  const std::string best = NoteOfBest(*plan.checkpoint);
  if (!best.empty() && config.train.init_from != plan.checkpoint->directory())
    Log(absl::StrCat("train.init_from: ", best));
  config.train.init_from = plan.checkpoint->directory();
  return absl::OkStatus();
}

// Of a run whose config.toml is gone: whether `config` goes on with what its newest checkpoint was
// saved by. The ranks would say so too late: the new file is written by then.
absl::Status CheckFitsCheckpoint(const RunDirectory& paths, RunConfig config,
                                 const data::DatasetIndex& dataset) {
  ASSIGN_OR_RETURN(const std::vector<ckpt::CheckpointInfo> checkpoints,
                   ckpt::ListCheckpoints(paths.root));
  const ckpt::CheckpointInfo* const newest = ckpt::NewestOf(checkpoints);
  if (newest == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint, ckpt::Checkpoint::Open(newest->directory));
  ASSIGN_OR_RETURN(TrainMetadata saved, ParseMetadata(checkpoint.metadata_json()));
  RETURN_IF_ERROR(AcceptRecordedSchedule(paths.root, config, &saved));
  return Annotate(CheckMetadata(saved, config, dataset),
                  absl::StrCat("'", paths.config, "' is missing, and '", newest->directory, "'"));
}

// Whether the objective can learn from this dataset: labelled examples of its task, or text.
absl::Status CheckKindOfData(const RunConfig& config, const data::Dataset& dataset) {
  return Annotate(CheckTaskData(config, dataset, TaskLabels::kRequired),
                  absl::StrCat("data.shards '", config.data.shards, "'"));
}

// Whether the text is long enough for the lanes, with a batch that would be right if it is not.
absl::Status CheckLength(const RunConfig& config, const data::Dataset& dataset, int64_t ranks) {
  const SampleKind kind = TraitsOf(config).sample_kind;
  const absl::Status made = data::Sampler::Create(dataset, config.sampling, kind,
                                                  static_cast<uint64_t>(config.train.seed),
                                                  config.train.global_batch_size)
                                .status();
  if (!absl::IsFailedPrecondition(made) || kind == SampleKind::kExamples)
    return Annotate(made, "data.shards");
  const int64_t most =
      data::Sampler::MostLanes(dataset, config.sampling, kind, config.train.global_batch_size);
  const std::string batch =
      SettingOptions(BatchThatFits(config, ranks, [most](const RunConfig& candidate) {
        return candidate.train.global_batch_size <= most;
      }));
  return FailedPrecondition("data.shards: ", made.message(), batch.empty() ? "" : ", or ", batch);
}

// It trains, but is as a rule a mistake of the first hour.
void WarnOfLessThanAStep(const RunConfig& config, const data::Dataset& dataset) {
  const int64_t step_tokens = config.train.global_batch_size * config.sampling.seq_len;
  if (dataset.examples() != nullptr || dataset.num_tokens() >= step_tokens) return;
  LogWarning(absl::StrCat("data.shards: the text has ", dataset.num_tokens(),
                          " tokens, and a step reads ", step_tokens,
                          ": every step sees all of it; prepare more text"));
}

// Here, not only in the ranks: a dataset that cannot be used is refused once, and nothing is
// written. Ranks open a shard when they read from it, so here, by one process, all shards of a
// usual dataset are looked at, and 4,096 of a huge one.
absl::StatusOr<data::DatasetIndex> CheckData(const RunDirectory& paths, const RunConfig& config,
                                             int64_t ranks) {
  RETURN_IF_ERROR(data::CheckIsDataset("data.shards", config.data.shards));
  if (config.eval.every > 0)
    RETURN_IF_ERROR(data::CheckIsDataset("eval.shards", config.eval.shards));
  ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> dataset,
                   data::Dataset::Open(config.data.shards));
  RETURN_IF_ERROR(CheckSameDataset(paths, dataset->index()));
  RETURN_IF_ERROR(dataset->CheckShards());
  RETURN_IF_ERROR(CheckKindOfData(config, *dataset));
  RETURN_IF_ERROR(
      CheckAdaptiveClusters(config.model, static_cast<int64_t>(dataset->index().vocab_size)));
  RETURN_IF_ERROR(CheckLength(config, *dataset, ranks));
  WarnOfLessThanAStep(config, *dataset);
  if (config.eval.every > 0) {
    ASSIGN_OR_RETURN(const std::unique_ptr<data::Dataset> held_out,
                     OpenHeldOutText(config, dataset->index()));
    RETURN_IF_ERROR(Annotate(held_out->CheckShards(), "eval.shards"));
  } else if (!config.eval.shards.empty()) {
    Log("eval.every is 0: eval.shards is not evaluated while training, only by `anyorder eval`");
  }
  return dataset->index();
}

absl::Status CheckNode(const std::string& name, const NodeFacts& node, int64_t ranks,
                       const RunConfig& config, int64_t vocab_size) {
  const bool on_cpu = config.train.device == kernels::DeviceChoice::kCpu;
  const bool is_known = on_cpu || (node.gpus > 0 && node.gpu_bytes > 0);
  if (!is_known || !config.ValidateWorldSize(ranks).ok()) return absl::OkStatus();
  const MachineRoom room{node.host_bytes, on_cpu ? 0 : node.gpu_bytes, node.gpus, node.ranks};
  return Annotate(
      CheckMemory(config, vocab_size, {.ranks = ranks, .ranks_per_node = node.ranks}, room),
      absl::StrCat("node ", name));
}

// Each of the hosts must have room; of nodes that the batch system chooses one that is known, with
// a GPU for each rank.
absl::Status CheckNodes(const StartRequest& request, NodeInventory known, const RunConfig& config,
                        int64_t vocab_size) {
  for (const HostSlots& host : FillSlots(request.slots, request.ranks)) {
    NodeFacts node = known[host.name];
    node.ranks = host.slots;
    RETURN_IF_ERROR(CheckNode(host.name, node, request.ranks, config, vocab_size));
  }
  const BatchNodes& batch = request.batch_nodes;
  absl::Status fault;
  for (auto& [name, node] : known) {
    if (batch.ranks == 0 || (!batch.partition.empty() && batch.partition != node.partition))
      continue;
    node.ranks = node.gpus = batch.ranks_per_node;
    fault = CheckNode(name, node, batch.ranks, config, vocab_size);
    if (fault.ok()) return fault;
  }
  return fault;
}

// What machine and disk can never hold is refused here, not by ranks that die of it again and
// again.
absl::Status CheckHasRoom(const StartRequest& request, const RunConfig& config,
                          int64_t vocab_size) {
  const MachineRoom machine = request.room ? request.room(config) : MachineRoom{};
  const Cluster cluster{.ranks = request.ranks, .ranks_per_node = machine.ranks};
  RETURN_IF_ERROR(CheckMemory(config, vocab_size, cluster, machine));
  const std::string inventory = RunDirectory(request.run_dir).nodes;
  const absl::StatusOr<NodeInventory> known = ReadNodes(inventory);
  if (!known.ok())
    LogWarning(absl::StrCat("what nodes have is unknown: ", known.status().message()));
  RETURN_IF_ERROR(
      Annotate(CheckNodes(request, known.value_or(NodeInventory()), config, vocab_size),
               absl::StrCat("'", inventory, "' (remove it if there are larger nodes)")));
  CheckpointRoom room;
  ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(config, vocab_size, cluster));
  room.checkpoint_bytes = plan.checkpoint_bytes;
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ckpt::ListSteps(request.run_dir));
  // An import, of weights alone, makes less room than a checkpoint needs.
  room.checkpoints = std::ssize(steps) - std::count(steps.begin(), steps.end(), 0);
  for (const int64_t step : steps) room.step = std::max(room.step, step);
  ASSIGN_OR_RETURN(room.free_bytes, FreeBytesAround(request.run_dir));
  std::string warning;
  RETURN_IF_ERROR(CheckCheckpointRoom(config, room, &warning));
  if (!warning.empty()) LogWarning(warning);
  return absl::OkStatus();
}

}  // namespace

bool HasDataset(const RunConfig& config) {
  return IsThere(config.data.shards + "/" + data::kIndexFile);
}

absl::StatusOr<RunConfig> ResolveStart(const StartRequest& request) {
  if (request.run_dir.empty()) return InvalidArgument("--run-dir is empty; name a directory");
  if (request.config.empty()) RETURN_IF_ERROR(CheckIsRun(request.run_dir));
  RETURN_IF_ERROR(CheckPlaceOfRun(request.run_dir));
  const RunDirectory paths(request.run_dir);
  RunConfig frozen;
  const RunConfig* const started = IsThere(paths.config) ? &frozen : nullptr;
  if (started != nullptr) {
    ASSIGN_OR_RETURN(frozen, LoadRunConfig(paths.config, {}));
  }
  ASSIGN_OR_RETURN(RunConfig config, LoadRequested(request, started));
  const absl::Status ranks_fit = config.ValidateWorldSize(request.ranks);
  RETURN_IF_ERROR(
      request.has_ranks_of_last_start
          ? Annotate(ranks_fit, "with the ranks of the last start (--ranks takes another number)")
          : ranks_fit);
  std::optional<data::DatasetIndex> dataset;
  if (!request.may_lack_dataset || HasDataset(config)) {
    ASSIGN_OR_RETURN(dataset, CheckData(paths, config, request.ranks));
    RETURN_IF_ERROR(CheckHasRoom(request, config, static_cast<int64_t>(dataset->vocab_size)));
    RETURN_IF_ERROR(SettleWarmStart(paths, started, *dataset, config));
  }
  if (started == nullptr) {
    if (dataset) RETURN_IF_ERROR(CheckFitsCheckpoint(paths, config, *dataset));
    return config;
  }
  ASSIGN_OR_RETURN(const RunProgress progress, ReadRunProgress(paths));
  if (!progress.is_settled() && ImportedRun(request.run_dir).exists()) {
    if (dataset) RETURN_IF_ERROR(CheckFirstStart(request.run_dir, frozen, config, *dataset));
  } else {
    RETURN_IF_ERROR(Annotate(
        CheckMayReplace(frozen, config, progress, request.allow_schedule_change, request.run_dir),
        paths.config));
  }
  return config;
}

absl::StatusOr<std::optional<ledger::Start>> LastStartWithoutSlurm(const RunDirectory& paths) {
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths));
  std::optional<ledger::Start> last;
  for (const LedgerRecord& record : records) {
    const auto* start = record.As<ledger::Start>();
    if (start != nullptr && start->slurm_job < 0 && start->ranks > 0) last = *start;
  }
  return last;
}

}  // namespace anyorder::launcher
