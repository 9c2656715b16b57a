#include "core/train/state/resume.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "ckpt/json_values.h"
#include "ckpt/protocol.h"
#include "ckpt/reader.h"
#include "core/base/json_members.h"
#include "core/base/log.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/optim/schedule.h"
#include "core/train/run/config_file.h"

namespace anyorder {

namespace {

using OrderedJson = nlohmann::ordered_json;

absl::Status NothingToResume(const std::string& run_dir) {
  return FailedPrecondition(
      "'", run_dir, "' has no committed checkpoint to resume from; start it with --resume auto");
}

absl::Status CheckpointsLost(const std::string& run_dir, int64_t step) {
  return DataLoss(
      "the ledger of '", run_dir, "' says that step ", step,
      " was committed, but no checkpoint is there; restore it, or use another run directory");
}

void VisitAnomaly(auto& state, auto&& visit) {
  visit("trained_steps", state.trained_steps);
  visit("loss_mean", state.loss.mean);
  visit("loss_deviation", state.loss.deviation);
  visit("grad_norm_mean", state.grad_norm.mean);
  visit("grad_norm_deviation", state.grad_norm.deviation);
  visit("skipped_in_a_row", state.skipped_in_a_row);
}

void VisitBest(auto& state, auto&& visit) {
  visit("metric", state.metric);
  visit("step", state.step);
  visit("value", state.value);
  visit("num_later", state.num_later);
  visit("last_step", state.last_step);
}

void VisitBase(auto& base, auto&& visit) {
  visit("directory", base.directory);
  visit("run_id", base.run_id);
  visit("step", base.step);
  visit("generation", base.generation);
}

// `visit_anomalies` is called where they stand.
void VisitMetadata(auto& metadata, auto&& visit, auto visit_anomalies) {
  visit("step", metadata.step);
  visit("skipped_steps", metadata.skipped_steps);
  visit_anomalies();
  visit("world_size", metadata.world_size);
  visit("device", metadata.device);
  visit("config_digest", metadata.config_digest);
  visit("dataset_digest", metadata.dataset_digest);
  visit("tokenizer_digest", metadata.tokenizer_digest);
  visit("config", metadata.config_text);
}

std::vector<LaneRestart> ParseLaneRestarts(const OrderedJson& json) {
  std::vector<LaneRestart> restarts;
  const OrderedJson* const all = FindMember(json, "lane_restarts", &OrderedJson::is_array);
  if (all == nullptr) return restarts;
  for (const OrderedJson& one : *all) {
    if (one.size() == 2 && Holds<std::vector<int64_t>>(one))
      restarts.push_back({one[0].get<int64_t>(), one[1].get<int64_t>()});
  }
  return restarts;
}

OrderedJson TableJson(const ParameterLayout& layout) {
  OrderedJson table = OrderedJson::array();
  for (const ParameterInfo& info : layout.parameters()) {
    table.push_back(
        {{"name", info.name}, {"offset", info.offset}, {"shape", ckpt::ShapeToJson(info.shape)}});
  }
  return table;
}

// The weights of `trained_step` were no good, and neither is a checkpoint that has them; the steps
// of those come again. Imported weights, of step 0, stay whatever became of them.
absl::Status SetAsideDiverged(const std::string& run_dir, int64_t trained_step, ResumeMode mode) {
  ASSIGN_OR_RETURN(const std::vector<ckpt::CheckpointInfo> all, ckpt::ListCheckpoints(run_dir));
  const auto is_good = [trained_step](const ckpt::CheckpointInfo& checkpoint) {
    return checkpoint.step < std::max<int64_t>(trained_step, 1);
  };
  const bool has_good = std::any_of(all.begin(), all.end(), is_good);
  if (!has_good && mode == ResumeMode::kRequired) return NothingToResume(run_dir);
  for (const ckpt::CheckpointInfo& checkpoint : all) {
    if (is_good(checkpoint)) continue;
    LogWarning(absl::StrCat("the run diverged after step ", trained_step,
                            "; its checkpoint of step ", checkpoint.step, " is set aside"));
    RETURN_IF_ERROR(ckpt::Quarantine(checkpoint.directory, checkpoint.generation));
  }
  if (!has_good) LogWarning("there is no checkpoint from before; starting at step 0 again");
  return absl::OkStatus();
}

// "train.steps = 300 -> train.steps = 400" of each key that differs.
std::string DifferingLines(const RunConfig& started, const RunConfig& now) {
  const std::vector<std::string> before = started.IdentityLines();
  const std::vector<std::string> after = now.IdentityLines();
  std::string change;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == after[i]) continue;
    absl::StrAppend(&change, change.empty() ? "" : ", ", before[i], " -> ", after[i]);
  }
  return change;
}

// CheckSameRun, but for the keys of the schedule. ema_decay is one of them: a run that is told to
// keep an average begins it with the weights that it resumes from. train.global_batch_size is none:
// the data position and the recurrence memory are kept by lane.
absl::Status CheckSameButSchedule(const RunConfig& started, const RunConfig& now) {
  RunConfig rest = now;
  rest.train.steps = started.train.steps;
  rest.optimizer.learning_rate = started.optimizer.learning_rate;
  rest.optimizer.min_learning_rate_ratio = started.optimizer.min_learning_rate_ratio;
  rest.optimizer.warmup_steps = started.optimizer.warmup_steps;
  rest.optimizer.decay = started.optimizer.decay;
  rest.optimizer.decay_power = started.optimizer.decay_power;
  rest.optimizer.drop_step = started.optimizer.drop_step;
  rest.optimizer.drop_ratio = started.optimizer.drop_ratio;
  rest.optimizer.decay_steps = started.optimizer.decay_steps;
  rest.optimizer.ema_decay = started.optimizer.ema_decay;
  return CheckSameRun(started, rest);
}

}  // namespace

absl::Status CheckResume(const std::string& run_dir, ResumeMode mode) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> found, ckpt::ListSteps(run_dir));
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(RunDirectory(run_dir)));
  const int64_t committed = Summarize(records).committed_step;
  if (mode == ResumeMode::kNever && (!found.empty() || committed >= 0)) {
    return AlreadyExists("'", run_dir,
                         "' already has checkpoints and --resume never would mix two runs; "
                         "use --resume auto or another run directory");
  }
  if (!found.empty() || mode == ResumeMode::kNever) return absl::OkStatus();
  // After a divergence a start that died before it trained may have set all aside.
  if (committed >= 0 && FindDivergedStop(records) == nullptr)
    return CheckpointsLost(run_dir, committed);
  return mode == ResumeMode::kRequired ? NothingToResume(run_dir) : absl::OkStatus();
}

absl::Status CheckDivergence(const RunDirectory& paths, const RunConfig& now) {
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths));
  const ledger::Stop* const end = FindDivergedStop(records);
  // A later start that never trained has not tried its settings yet.
  if (end == nullptr || Summarize(records).attempts > end->attempt) return absl::OkStatus();
  ASSIGN_OR_RETURN(const RunConfig started, LoadRunConfig(paths.config, {}));
  RunConfig same_policy = now;
  same_policy.anomaly = started.anomaly;
  if (!CheckSameRun(started, now).ok() || same_policy.ToText() != now.ToText())
    return absl::OkStatus();
  return Aborted("the run diverged after step ", end->trained_step,
                 ", and with the same settings it would do so again; resume it from its newest "
                 "good checkpoint with a lower rate (--allow-schedule-change --set "
                 "optimizer.learning_rate=X, it was ",
                 now.optimizer.learning_rate, "), or with another [anomaly]");
}

absl::StatusOr<std::string> ChooseCheckpoint(const std::string& run_dir, ResumeMode mode) {
  RETURN_IF_ERROR(CheckResume(run_dir, mode));
  if (mode == ResumeMode::kNever) return std::string();
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(RunDirectory(run_dir)));
  const ledger::Stop* const diverged = FindDivergedStop(records);
  if (diverged != nullptr) RETURN_IF_ERROR(SetAsideDiverged(run_dir, diverged->trained_step, mode));
  if (diverged != nullptr || Summarize(records).has_begun_again) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> left, ckpt::ListSteps(run_dir));
    if (left.empty()) return std::string();
  }
  absl::StatusOr<std::string> newest = ckpt::FindNewest(run_dir, /*quarantine_bad=*/true);
  if (!absl::IsNotFound(newest.status())) return newest;
  return mode == ResumeMode::kRequired ? absl::StatusOr<std::string>(NothingToResume(run_dir))
                                       : std::string();
}

std::string ParameterTable(const ParameterLayout& layout) { return DumpJson(TableJson(layout)); }

std::string SerializeMetadata(const TrainMetadata& metadata, const ParameterLayout& layout) {
  OrderedJson json;
  VisitMetadata(metadata, MemberWriter(json), [&] {
    // Decimal digits that read back as the same bits.
    VisitAnomaly(metadata.anomaly, MemberWriter(json["anomaly"]));
    json["unproven"] = metadata.anomaly.skipped_in_a_row > 0;
  });
  if (!metadata.best_evaluation.metric.empty())
    VisitBest(metadata.best_evaluation, MemberWriter(json["best_evaluation"]));
  if (metadata.keep_step >= 0) json["keep_step"] = metadata.keep_step;
  if (metadata.base.exists()) VisitBase(metadata.base, MemberWriter(json["base"]));
  OrderedJson& restarts = json["lane_restarts"] = OrderedJson::array();
  for (const LaneRestart& restart : metadata.lane_restarts)
    restarts.push_back({restart.lane, restart.step});
  json["parameters"] = TableJson(layout);
  return DumpJson(json);
}

absl::Status CheckMetadataSize(const std::string& metadata) {
  // The message also carries checksums of the rank's chunks.
  constexpr size_t kRest = size_t{1} << 20;
  const size_t bytes = DumpJson(OrderedJson(metadata)).size();
  if (bytes + kRest <= ckpt::kMaxMessageBytes) return absl::OkStatus();
  return InvalidArgument("the table of the model's parameters takes ", bytes >> 20,
                         " MiB in a checkpoint, where ", (ckpt::kMaxMessageBytes - kRest) >> 20,
                         " MiB fit; lower model.num_layers");
}

absl::StatusOr<TrainMetadata> ParseMetadata(const std::string& text) {
  const auto json = TryParseJson<OrderedJson>(text);
  if (!json.is_object())
    return FailedPrecondition("the checkpoint was not written by anyorder-train");
  TrainMetadata metadata;
  VisitMetadata(metadata, MemberReader(json), [&] {
    if (const OrderedJson* const anomaly = FindMember(json, "anomaly"))
      VisitAnomaly(metadata.anomaly, MemberReader(*anomaly));
  });
  // A member of another type than it was written with makes these none at all.
  if (const OrderedJson* const best = FindMember(json, "best_evaluation")) {
    MemberReader reader(*best);
    VisitBest(metadata.best_evaluation, reader);
    if (!reader.bad().empty()) metadata.best_evaluation = {};
  }
  if (const OrderedJson* const base = FindMember(json, "base")) {
    MemberReader reader(*base);
    VisitBase(metadata.base, reader);
    if (!reader.bad().empty()) metadata.base = {};
  }
  metadata.lane_restarts = ParseLaneRestarts(json);
  return metadata;
}

absl::Status CheckMetadata(const TrainMetadata& saved, const RunConfig& config,
                           const data::DatasetIndex& dataset) {
  const bool is_imported = saved.is_imported();
  // Of imported weights the tokenizer's file is known, not what was declared besides.
  const bool is_of_file = is_imported && saved.tokenizer_digest == dataset.tokenizer.digest;
  if (saved.tokenizer_digest != dataset.tokenizer_digest && !is_of_file) {
    return FailedPrecondition(
        is_imported ? "the imported weights need tokenizer (and cleaning) "
                    : "the checkpoint was trained with tokenizer (and cleaning) ",
        saved.tokenizer_digest, " but ", config.data.shards, " was made with ",
        dataset.tokenizer_digest,
        is_imported ? "; make the dataset with the run's own: anyorder prep --vocab "
                      "RUN-DIR/spiece.model, or --tokenizer RUN-DIR/import"
                    : "; point data.shards at the run's own dataset");
  }
  if (!is_imported && saved.dataset_digest != dataset.dataset_digest) {
    return FailedPrecondition("the checkpoint was trained on dataset ", saved.dataset_digest,
                              " but ", config.data.shards, " is ", dataset.dataset_digest,
                              "; point data.shards at the run's own dataset");
  }
  return CheckMetadataConfig(saved, config);
}

absl::Status CheckMetadataConfig(const TrainMetadata& saved, const RunConfig& config) {
  if (saved.config_digest == config.IdentityDigest()) return absl::OkStatus();
  const absl::StatusOr<RunConfig> started = ParseRunConfig(saved.config_text, "checkpoint");
  absl::Status difference = started.status();
  if (started.ok()) {
    difference =
        saved.is_imported() ? CheckSameFunction(*started, config) : CheckSameRun(*started, config);
  }
  if (saved.is_imported() && difference.ok()) return absl::OkStatus();
  return FailedPrecondition("the checkpoint belongs to another configuration: ",
                            difference.message());
}

absl::StatusOr<std::vector<SkippedSteps>> AgreeOnRollbacks(const RunDirectory& paths,
                                                           dist::Communicator& communicator) {
  absl::StatusOr<std::vector<LedgerRecord>> records = std::vector<LedgerRecord>();
  if (communicator.rank() == 0) records = ReadLedger(paths);
  RETURN_IF_ERROR(communicator.AllAgree(records.status()));
  std::vector<SkippedSteps> steps;
  for (const LedgerRecord& record : *records) {
    if (const auto* rollback = record.As<ledger::Rollback>())
      steps.push_back({rollback->first_step, rollback->last_step});
  }
  return communicator.AllGatherElements(steps);
}

absl::StatusOr<RunProgress> ReadRunProgress(const RunDirectory& paths) {
  RunProgress progress;
  ASSIGN_OR_RETURN(const auto found, ckpt::ListCheckpoints(paths.root));
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(paths));
  const ckpt::CheckpointInfo* const newest = ckpt::NewestOf(found);
  progress.checkpoint_step =
      std::max(newest == nullptr ? -1 : newest->step, Summarize(records).committed_step);
  progress.has_trained = std::any_of(
      records.begin(), records.end(),
      [](const LedgerRecord& record) { return record.As<ledger::Trained>() != nullptr; });
  // Steps of a start that was killed are in no record yet; a damaged checkpoint had some.
  if (!found.empty() && found.front().step > 0) progress.has_trained = true;
  for (const std::string& lines : {paths.metrics, paths.redone}) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(lines, error);
    if (!error && bytes > 0) progress.has_trained = true;
  }
  return progress;
}

absl::Status CheckEndsAfter(const RunConfig& config, int64_t step, const std::string& run_dir) {
  if (config.train.steps >= step) return absl::OkStatus();
  return InvalidArgument("train.steps is ", config.train.steps, ", but run '", run_dir,
                         "' has trained ", step, " steps already; name at least ", step,
                         ", or another --run-dir for a shorter run");
}

absl::Status CheckMayReplace(const RunConfig& started, const RunConfig& now,
                             const RunProgress& progress, bool is_schedule_allowed,
                             const std::string& run_dir) {
  if (!progress.is_settled())
    return progress.checkpoint_step < 0 ? absl::OkStatus() : CheckSameFunction(started, now);
  if (const absl::Status same = CheckSameRun(started, now); !same.ok()) {
    const absl::Status rest = CheckSameButSchedule(started, now);
    if (rest.ok() && !is_schedule_allowed)
      return InvalidArgument(same.message(),
                             ", or change the schedule of this one with --allow-schedule-change");
    if (!rest.ok()) return is_schedule_allowed ? rest : same;
  }
  return CheckEndsAfter(now, progress.checkpoint_step, run_dir);
}

absl::StatusOr<std::optional<ledger::Event>> ReplacementRecord(const RunDirectory& paths,
                                                               const RunConfig& now,
                                                               int64_t attempt,
                                                               bool is_schedule_allowed) {
  if (!IsThere(paths.config)) return std::nullopt;
  ASSIGN_OR_RETURN(const RunConfig started, LoadRunConfig(paths.config, {}));
  ASSIGN_OR_RETURN(const RunProgress progress, ReadRunProgress(paths));
  RETURN_IF_ERROR(CheckMayReplace(started, now, progress, is_schedule_allowed, paths.root));
  std::string change = DifferingLines(started, now);
  if (change.empty()) return std::nullopt;
  if (progress.is_settled()) {
    const int64_t done = std::max<int64_t>(0, progress.checkpoint_step);
    const auto rate = [done](const RunConfig& config) {
      return LearningRate(config.optimizer, config.train.steps, done);
    };
    absl::StrAppend(&change, "; learning rate of step ", done + 1, ": ", rate(started), " -> ",
                    rate(now));
    return ledger::Event(ledger::Schedule{attempt, now.IdentityDigest(), change});
  }
  return ledger::Event(ledger::Reconfigured{attempt, now.IdentityDigest(), change});
}

absl::Status AcceptRecordedSchedule(const std::string& run_dir, const RunConfig& config,
                                    TrainMetadata* saved) {
  const std::string digest = config.IdentityDigest();
  if (saved->config_digest == digest) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<LedgerRecord> records, ReadLedger(RunDirectory(run_dir)));
  const bool is_recorded =
      std::any_of(records.begin(), records.end(), [&](const LedgerRecord& record) {
        const auto* schedule = record.As<ledger::Schedule>();
        return schedule != nullptr && schedule->config_digest == digest;
      });
  if (!is_recorded) return absl::OkStatus();
  const absl::StatusOr<RunConfig> started = ParseRunConfig(saved->config_text, "checkpoint");
  if (started.ok() && CheckSameButSchedule(*started, config).ok()) saved->config_digest = digest;
  return absl::OkStatus();  // what differs otherwise is CheckMetadata's to say
}

}  // namespace anyorder
