// How a Trainer comes to be: everything before the first step (trainer.h).

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/counted.h"
#include "core/base/log.h"
#include "core/base/machine_memory.h"
#include "core/base/status.h"
#include "core/train/evaluation/task_data.h"
#include "core/train/plan/memory_plan.h"
#include "core/train/plan/run_cost.h"
#include "core/train/run/device.h"
#include "core/train/run/ledger.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"
#include "core/train/state/saved_weights.h"
#include "core/train/state/training_state.h"
#include "core/train/trainer.h"
#include "dist/nccl_transport.h"

namespace anyorder {
namespace {

// Settings that train, but are as a rule a mistake of the first hour.
void WarnOfNewRun(const RunConfig& config) {
  const int64_t warmup = config.optimizer.warmup_steps;
  if (warmup >= config.train.steps) {
    LogWarning(absl::StrCat("optimizer.warmup_steps is ", warmup, " of ", config.train.steps,
                            " steps: the learning rate only rises; usual is a tenth of the steps "
                            "or less (--set optimizer.warmup_steps=N)"));
  }
  if (config.model.task.has_head() && config.train.init_from.empty()) {
    LogWarning(
        "train.init_from is not set: the classifier begins with random weights, not with those of "
        "a pretrained run (--set train.init_from=RUN)");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const RunConfig& config,
                                                         const TrainerOptions& options,
                                                         dist::Communicator& communicator,
                                                         dist::CollectiveWatch* watch) {
  RETURN_IF_ERROR(config.ValidateWorldSize(communicator.world_size()));
  std::unique_ptr<Trainer> trainer(new Trainer(config, options, communicator, watch));
  const absl::Status status = trainer->SetUp();
  if (status.ok()) return trainer;
  trainer->RecordFailedSetUp(status);
  return status;
}

absl::Status Trainer::SetUp() {
  const kernels::BackendOptions device =
      RankBackendOptions(config_, options_.run_dir, communicator_);
  RETURN_IF_ERROR(communicator_.AllAgree(OpenLocalDevice(device)));
  RETURN_IF_ERROR(CheckSameDevices(*backend_, communicator_));
  RETURN_IF_ERROR(ConnectDevices());
  RETURN_IF_ERROR(communicator_.AllAgree(OpenLocalData()));
  // Nodes may see different files under one path. What no result depends on decides who talks when.
  RETURN_IF_ERROR(communicator_.AllSame(
      absl::StrCat(DigestOf(config_.ToText()).Hex(), " ", dataset_->index().dataset_digest),
      "has another configuration or dataset", "all nodes must see the same files"));
  RETURN_IF_ERROR(CheckSharding());
  RETURN_IF_ERROR(communicator_.AllAgree(FitLocalNetwork()));
  ASSIGN_OR_RETURN(held_out_, PeriodicEvaluator::Create(config_, dataset_->index(), communicator_,
                                                        *parts_.network, *backend_));
  ASSIGN_OR_RETURN(const std::string checkpoint, LoadNewestGood());
  if (config_.lora.is_on()) RETURN_IF_ERROR(LoadBase());
  ASSIGN_OR_RETURN(std::vector<SkippedSteps> rollbacks,
                   AgreeOnRollbacks(RunDirectory(options_.run_dir), communicator_));
  anomalies_.ScheduleSkip(std::move(rollbacks));
  parts_.state->GatherWeights();
  RETURN_IF_ERROR(communicator_.AllAgree(ConnectLocalService()));
  if (!checkpoint.empty()) saver_->set_loaded_step(step_);
  RETURN_IF_ERROR(communicator_.AllAgree(OpenLocalReport(checkpoint)));
  StartLoader();
  DescribeStart(checkpoint, device.num_threads);
  return absl::OkStatus();
}

// The same on all ranks.
absl::Status Trainer::CheckSharding() const {
  if (config_.dist.shard_weights != dist::WeightSharding::kNode || options_.num_nodes <= 1 ||
      communicator_.nodes().has_two_levels())
    return absl::OkStatus();
  return InvalidArgument(
      "dist.shard_weights is \"node\", but no node has several ranks that follow each other, which "
      "could share its weights; set it to \"all\" or \"none\"");
}

void Trainer::StartLoader() {
  loader_ = std::make_unique<data::BatchLoader>(
      *sampler_, *objective_,
      data::LoaderOptions{parts_.reducer->leaves(), config_.train.micro_batch_size, step_,
                          config_.train.prefetch_steps,
                          [this](bool is_waiting) { SetStepPhase(is_waiting); }});
}

void Trainer::DescribeStart(const std::string& checkpoint, int num_threads) const {
  if (communicator_.rank() != 0) return;
  const int ranks = communicator_.world_size();
  const dist::RankGroups& nodes = communicator_.nodes();
  const std::string levels = options_.num_nodes == 1 ? ""
                             : nodes.has_two_levels()
                                 ? absl::StrCat(" in two levels (", nodes.count(), " nodes)")
                                 : " in one level";
  const std::string gradients =
      ranks > 1 ? absl::StrCat(", gradients by ", transport_->name(), levels) : "";
  Log(absl::StrCat(
      Counted(ranks, "rank"), ", ", Counted(num_threads, "thread"), " each, ", backend_->name(),
      gradients, ", ", parts_.network->layout().num_elements(),
      config_.lora.is_on()
          ? absl::StrCat(" trained parameters and ", parts_.network->layout().num_frozen_elements(),
                         " frozen ones of ", base_.directory)
          : " parameters",
      "; ", checkpoint.empty() ? "starting at" : "resuming after", " step ", step_, " of ",
      config_.train.steps,
      !IsDone() ? ""
      : step_ < config_.train.steps
          ? absl::StrCat("; the run has finished early: ", best_.Description(),
                         " (to go on: --set eval.patience=N)")
          : "; the run is finished already (for more steps: --set train.steps=N "
            "--allow-schedule-change)"));
  const data::DatasetIndex& data = dataset_->index();
  const int64_t streams =
      config_.train.global_batch_size / (config_.sampling.bidirectional ? 2 : 1);
  Log(absl::StrCat("dataset: '", config_.data.shards, "', ",
                   data.examples ? Counted(data.examples->num_examples, "example")
                                 : Counted(data.num_tokens, "token"),
                   ", vocabulary ", data.vocab_size,
                   data.examples ? ""
                                 : absl::StrCat("; an epoch reads ",
                                                streams * sampler_->tokens_per_lane(), " tokens")));
  if (config_.sampling.pack_examples)
    Log(absl::StrCat("examples are packed into ", Counted(sampler_->num_examples(), "sequence")));
  WarnOfCutExamples(config_, *dataset_, config_.data.shards);
  if (held_out_ != nullptr) {
    const Coverage coverage = held_out_->coverage();
    Log(absl::StrCat("eval.shards: an evaluation scores ", coverage.scored, " of ", coverage.of,
                     " ", coverage.unit, " (eval.batches)"));
  }
  if (config_.optimizer.keeps_average()) {
    Log(absl::StrCat("keeping an average of the weights (optimizer.ema_decay ",
                     config_.optimizer.ema_decay, ")",
                     held_out_ == nullptr ? ""
                     : config_.evaluates_average()
                         ? "; evaluations use it"
                         : "; evaluations use the weights themselves (eval.use_ema false)"));
  }
  if (sampler_->num_cut_answers() > 0) {
    LogWarning(absl::StrCat(
        "questions whose answer no window of ", config_.sampling.seq_len,
        " tokens holds whole: ", sampler_->num_cut_answers(),
        ". They are left out; in data with unanswerable questions they count as such. Make "
        "sampling.seq_len larger or sampling.passage_stride smaller"));
  }
  if (config_.dist.reduction == Reduction::kFast)
    LogWarning("dist.reduction \"fast\" is no longer there: gradients are summed as with \"tree\"");
  if (checkpoint.empty()) WarnOfNewRun(config_);
}

// The launcher starts a run again whose ranks the machine failed. Two ends are final: out of memory
// before any start has trained (it never fitted), and our own bugs.
void Trainer::RecordFailedSetUp(const absl::Status& why) const {
  if (communicator_.rank() != 0) return;
  const RunDirectory paths(options_.run_dir);
  const absl::StatusOr<RunProgress> progress = ReadRunProgress(paths);
  const bool never_fit = absl::IsResourceExhausted(why) && progress.ok() && !progress->has_trained;
  ledger::Stop stop;
  stop.attempt = options_.attempt;
  if (reporter_ != nullptr) stop.step = step_;  // the ledger says that this start trains from there
  stop.exit_status = ExitStatusFor(why);
  stop.detail = std::string(why.message());
  if (never_fit || stop.exit_status == kExitInternal) stop.may_restart = 0;
  absl::StatusOr<Ledger> ledger = Ledger::Open(paths.ledger);
  const absl::Status recorded = ledger.ok() ? ledger->Append(stop) : ledger.status();
  if (!recorded.ok()) LogWarning(absl::StrCat("the ledger lacks this end: ", recorded.message()));
}

absl::Status Trainer::OpenLocalDevice(kernels::BackendOptions device) {
  RETURN_IF_ERROR(setup_.Begin("set-up of the device"));
  device.allocated = [this](int64_t bytes) {
    // The loader starts last; from then on a stop signal is for the step to see.
    return loader_ == nullptr ? setup_.Advance(bytes >> 20, 0, "MiB of memory set up")
                              : absl::OkStatus();
  };
  device.dtype = ToDType(config_.model.dtype);
  ASSIGN_OR_RETURN(backend_, options_.make_backend(device));
  return config_.ValidateDevice(backend_->is_host_memory());
}

absl::Status Trainer::ConnectDevices() {
  dist::TransportOptions transport;
  transport.kind = config_.dist.transport;
  transport.nccl.watch = watch_;
  transport.nccl.work_limit = absl::Seconds(config_.dist.collective_timeout_seconds);
  ASSIGN_OR_RETURN(transport_, dist::MakeTransport(communicator_, *backend_, transport));
  return absl::OkStatus();
}

absl::Status Trainer::OpenLocalData() {
  RETURN_IF_ERROR(setup_.Begin("opening the dataset"));
  ASSIGN_OR_RETURN(dataset_, data::Dataset::Open(config_.data.shards));
  ASSIGN_OR_RETURN(objective_, MakeObjective(config_));
  RETURN_IF_ERROR(CheckTaskData(config_, *dataset_, TaskLabels::kRequired));
  ASSIGN_OR_RETURN(sampler_,
                   data::Sampler::Create(*dataset_, config_.sampling, objective_->sample_kind(),
                                         static_cast<uint64_t>(config_.train.seed),
                                         config_.train.global_batch_size));
  return absl::OkStatus();
}

// Whether the rank's machine and device can hold what it takes: the launcher may know other ones,
// or none. Of memory that others use the allocations tell.
absl::Status Trainer::FitLocalNetwork() {
  RETURN_IF_ERROR(setup_.Begin("set-up of the network"));
  const auto vocab_size = static_cast<int64_t>(dataset_->index().vocab_size);
  RETURN_IF_ERROR(CheckLocalMemory(vocab_size));
  peak_flops_ = config_.train.device_peak_tflops > 0
                    ? 1e12 * config_.train.device_peak_tflops
                    : DevicePeakFlops(DeviceName(*backend_), ToDType(config_.model.dtype));
  if (peak_flops_ > 0) step_flops_ = NeededFlops(config_, vocab_size).value_or(0);
  return parts_.SetUp({config_, *objective_, vocab_size, communicator_, *backend_, *transport_,
                       options_.min_slice_elements},
                      [this] { return fault_.ok(); });
}

absl::Status Trainer::CheckLocalMemory(int64_t vocab_size) const {
  const int64_t local_ranks =
      options_.local_ranks > 0 ? options_.local_ranks : communicator_.world_size();
  const kernels::Backend::DeviceBytes device = backend_->device_bytes();
  Cluster cluster{.ranks = communicator_.world_size(), .ranks_per_node = local_ranks};
  cluster.device.library_workspace_bytes = device.library_workspace;
  RunConfig config = config_;
  if (!transport_->is_asynchronous()) config.dist.transport = dist::TransportKind::kMpi;
  return CheckMemory(config, vocab_size, cluster,
                     {.host_bytes = MachineMemoryBytes(),
                      .device_bytes = device.total,
                      .devices = options_.local_devices > 0 ? options_.local_devices : local_ranks,
                      .ranks = local_ranks});
}

// Loading is verifying: each rank checks the bytes that it reads, which together are all, and one
// that finds damage sends everyone to the next older checkpoint.
absl::StatusOr<std::string> Trainer::LoadNewestGood() {
  absl::Status damage;
  while (true) {
    const absl::StatusOr<std::string> directory = AgreeOnCheckpoint();
    if (!directory.ok() && !damage.ok()) {
      return absl::Status(
          directory.status().code(),
          absl::StrCat(directory.status().message(), "; the last one tried: ", damage.message()));
    }
    RETURN_IF_ERROR(directory.status());
    if (directory->empty()) {
      RETURN_IF_ERROR(communicator_.AllAgree(InitializeLocalWeights()));
      if (!config_.train.init_from.empty()) RETURN_IF_ERROR(LoadOtherRunsWeights());
      return directory;
    }
    ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint,
                     communicator_.AllAgree(ckpt::Checkpoint::Open(*directory)));
    RETURN_IF_ERROR(communicator_.AllAgree(RestoreLocalProgress(checkpoint)));
    damage = LoadTogether(checkpoint.step(), [&](const auto& progress) {
      return parts_.state->Load(checkpoint, progress);
    });
    if (damage.ok()) return directory;
    if (!ckpt::IsDamage(damage)) return damage;
    RETURN_IF_ERROR(SetAside(checkpoint, damage));
  }
}

absl::Status Trainer::LoadTogether(
    int64_t step, absl::FunctionRef<absl::Status(const TrainingState::PieceDone&)> read) {
  absl::Status status = setup_.Begin(absl::StrCat("loading the checkpoint of step ", step));
  if (status.ok())
    status = read([this](int64_t elements) { return setup_.Advance(elements, 0, "numbers read"); });
  return communicator_.AllAgree(status);
}

absl::Status Trainer::InitializeLocalWeights() {
  RETURN_IF_ERROR(setup_.Begin("initialising the weights"));
  const int64_t owned = parts_.state->optimizer().owned().size();
  return parts_.state->Initialize(
      [this, owned](int64_t elements) { return setup_.Advance(elements, owned, "parameters"); });
}

// Rank 0 looks; the others take its word, so that all begin at the same step.
absl::StatusOr<std::string> Trainer::AgreeOnCheckpoint() {
  absl::StatusOr<std::string> mine = std::string();
  if (communicator_.rank() == 0) mine = ChooseCheckpoint(options_.run_dir, options_.resume);
  ASSIGN_OR_RETURN(const std::string chosen, communicator_.AllAgree(std::move(mine)));
  return communicator_.AllGatherStrings(chosen)[0];
}

// A damaged checkpoint, for all ranks.
absl::Status Trainer::SetAside(const ckpt::Checkpoint& checkpoint, const absl::Status& damage) {
  absl::Status moved;
  if (communicator_.rank() == 0) {
    LogWarning(absl::StrCat("'", checkpoint.directory(), "' is damaged: ", damage.message()));
    moved = Annotate(ckpt::Quarantine(checkpoint.directory(), checkpoint.generation()),
                     damage.message());
  }
  return communicator_.AllAgree(moved);
}

// What the checkpoint says besides its tensors.
absl::Status Trainer::RestoreLocalProgress(const ckpt::Checkpoint& checkpoint) {
  ASSIGN_OR_RETURN(TrainMetadata saved, ParseMetadata(checkpoint.metadata_json()));
  RETURN_IF_ERROR(AcceptRecordedSchedule(options_.run_dir, config_, &saved));
  RETURN_IF_ERROR(
      Annotate(CheckMetadata(saved, config_, dataset_->index()), checkpoint.directory()));
  if (const std::string change = DeviceChange(saved.device, DeviceName(*backend_));
      !change.empty() && communicator_.rank() == 0 && !saved.is_imported())
    LogWarning(change);
  RETURN_IF_ERROR(CheckEndsAfter(config_, saved.step, options_.run_dir));
  step_ = first_step_ = saved.step;
  base_ = saved.base;
  skipped_steps_ = saved.skipped_steps;
  anomalies_.Restore(saved.anomaly);
  best_.Restore(saved.best_evaluation);
  lane_restarts_.Restore(saved.lane_restarts);
  parts_.state->optimizer().set_updates(step_ - skipped_steps_);
  return absl::OkStatus();
}

// Over the initial weights, of which only those remain that the other run does not have. There is
// no older checkpoint to fall back to: which one it is was settled when the run began.
absl::Status Trainer::LoadOtherRunsWeights() {
  ASSIGN_OR_RETURN(
      const WarmStart start,
      communicator_.AllAgree(PlanWarmStart(config_.train.init_from, config_, dataset_->index())));
  const dist::Range owned = parts_.state->optimizer().owned();
  const absl::Status loaded = LoadTogether(start.checkpoint->step(), [&](const auto& progress) {
    const auto read = [&](int64_t begin, int64_t end, void* data) -> absl::Status {
      RETURN_IF_ERROR(progress(end - begin));
      return ReadTransferred(start.weights, start.plan, owned.begin + begin, owned.begin + end,
                             static_cast<float*>(data));
    };
    return WriteInPieces(parts_.state->optimizer().master(), *backend_, read, /*keeps=*/true);
  });
  if (ckpt::IsDamage(loaded)) {
    return DataLoss("train.init_from '", start.checkpoint->directory(),
                    "' is damaged: ", loaded.message(),
                    "; name another checkpoint, and a new --run-dir");
  }
  RETURN_IF_ERROR(loaded);
  parts_.state->optimizer().StartAverage();
  warm_start_ = start.Description();
  base_ = config_.lora.is_on() ? BaseOf(*start.checkpoint) : BaseCheckpoint();
  if (communicator_.rank() == 0) Log(absl::StrCat("beginning with ", warm_start_));
  return absl::OkStatus();
}

// The weights that stay as they are: of the checkpoint that the run began with, also when it
// resumes.
absl::Status Trainer::LoadBase() {
  RETURN_IF_ERROR(communicator_.AllSame(
      absl::StrCat(base_.run_id, " ", base_.step, " ", base_.generation),
      "began with another checkpoint in train.init_from", "all nodes must see the same files"));
  ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint,
                   communicator_.AllAgree(OpenBase(base_, config_.train.init_from)));
  ASSIGN_OR_RETURN(const WarmStart start, communicator_.AllAgree(PlanWarmStart(
                                              checkpoint.directory(), config_, dataset_->index())));
  const absl::Status loaded = LoadTogether(checkpoint.step(), [&](const auto& progress) {
    return LoadFrozenWeights(start, *backend_, *parts_.state->frozen(), progress);
  });
  if (!ckpt::IsDamage(loaded)) return loaded;
  return DataLoss("train.init_from '", checkpoint.directory(), "' is damaged: ", loaded.message(),
                  "; put a good copy of it there");
}

absl::Status Trainer::ConnectLocalService() {
  RETURN_IF_ERROR(setup_.Begin("set-up of checkpoints"));
  ckpt::ClientOptions client;
  client.run_dir = options_.run_dir;
  client.run_id = options_.run_id;
  client.attempt = options_.attempt;
  client.node = options_.node;
  client.num_nodes = options_.num_nodes;
  client.local_world_size = options_.local_ranks;
  client.socket_path = options_.service_socket;
  client.staged_copies = static_cast<int>(config_.checkpoint.staged_copies);
  if (!backend_->is_host_memory()) {
    ASSIGN_OR_RETURN(snapshot_copier_, SnapshotCopier::Create(*backend_));
  }
  client.copier = snapshot_copier_.get();
  ASSIGN_OR_RETURN(saver_, Saver::Connect(config_.checkpoint, client, communicator_));
  RETURN_IF_ERROR(CheckMetadataSize(Metadata()));
  return saver_->Prepare(parts_.state->Ranges());
}

absl::Status Trainer::OpenLocalReport(const std::string& checkpoint) {
  // Last: from here on a stop signal is the step's.
  RETURN_IF_ERROR(setup_.Begin(absl::StrCat("step ", step_ + 1)));
  if (communicator_.rank() != 0) return absl::OkStatus();
  Reporter::Start start;
  start.run_id = options_.run_id;
  start.attempt = options_.attempt;
  start.ranks = communicator_.world_size();
  start.step = step_;
  start.trained_step = LastTrainedStep(step_);
  start.checkpoint = checkpoint.empty() ? warm_start_ : checkpoint;
  start.dataset_digest = dataset_->index().dataset_digest;
  start.on_terminal = options_.progress_on_terminal;
  ASSIGN_OR_RETURN(reporter_, Reporter::Open(options_.run_dir, config_, start));
  return absl::OkStatus();
}

}  // namespace anyorder
