#include "core/train/trainer.h"

#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/optim/schedule.h"
#include "core/train/run/device.h"
#include "core/train/run/stop_signal.h"

namespace anyorder {

namespace {

double MillisecondsSince(absl::Time start) {
  return absl::ToDoubleMilliseconds(MonotonicNow() - start);
}

int64_t PeakRssBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// Empty for most of the steps of a long row: the ledger has each of them.
std::string SkipWarning(const std::string& what, const AnomalyState& state) {
  const auto in_a_row = static_cast<uint64_t>(state.skipped_in_a_row);
  if (!std::has_single_bit(in_a_row)) return "";
  return absl::StrCat(what, "; no update",
                      in_a_row == 1 ? "" : absl::StrCat(", ", in_a_row, " in a row"));
}

}  // namespace

absl::StatusOr<TrainEnd> Trainer::Run() {
  absl::StatusOr<TrainEnd> end = TrainAndSave();
  RecordEnd(end);
  if (end.ok()) RETURN_IF_ERROR(communicator_.AllAgree(fault_));
  return end;
}

absl::StatusOr<TrainEnd> Trainer::TrainAndSave() {
  bool stop = EvaluateIfMissed();
  while (!IsDone() && !stop) {
    ASSIGN_OR_RETURN(stop, RunStep());
  }
  if (watch_ != nullptr) watch_->SetPhase("last checkpoint");
  if (reporter_ != nullptr) Note(reporter_->Sync());
  RETURN_IF_ERROR(communicator_.AllAgree(fault_));
  // A run that had nothing left to train was judged by the start that trained it.
  if (IsDone() && step_ > first_step_)
    RETURN_IF_ERROR(NoteDivergence(step_, anomalies_.CheckEnd(step_)));
  RETURN_IF_ERROR(saver_->Finish(step_, parts_.state->Ranges(), Metadata()));
  const bool is_finished = IsDone() && !LacksEvaluation() && !saver_->left_staged();
  return is_finished ? TrainEnd::kFinished : TrainEnd::kStopped;
}

absl::StatusOr<bool> Trainer::RunStep() {
  SetStepPhase(/*waits_for_data=*/false);
  const absl::Time started = MonotonicNow();
  clock_.Start(started, communicator_.collective_time());
  // TrainAndSave saves the last step, and waits for it.
  const bool save_is_due = saver_->IsDue(step_ + 1) && step_ + 1 < config_.train.steps;
  StepMetrics metrics;
  metrics.ckpt_stall_ms = std::exchange(stall_ms_, 0);
  ComputeMicrobatches(save_is_due, metrics);

  const absl::Time reduce_started = MonotonicNow();
  std::vector<double> totals(parts_.num_scalars());
  gradient_ = parts_.reducer->ReduceScatter(absl::MakeSpan(totals));
  metrics.reduce_ms = MillisecondsSince(reduce_started);
  if (totals[kFaults] > 0) return communicator_.AllAgree(fault_);

  if (parts_.replica_check->IsDue(step_ + 1))
    RETURN_IF_ERROR(parts_.replica_check->Compare(step_ + 1, *parts_.state));
  RETURN_IF_ERROR(UpdateWeights(totals, metrics));
  ++step_;
  bool stop = totals[kStopWishes] > 0;
  const absl::Time trained = MonotonicNow();
  clock_.Stop(trained, communicator_.collective_time());
  // Before the save: a run that dies in between does the step again, and its line in the metrics is
  // complete.
  if (!stop) stop = EvaluateIfDue(metrics);
  const absl::Time evaluated = MonotonicNow();
  clock_.Start(evaluated, communicator_.collective_time());
  metrics.step_ms = MillisecondsSince(started + (evaluated - trained)) + metrics.ckpt_stall_ms;
  // Before the save, too: what a checkpoint says is trained must have its line, whenever the run
  // dies.
  Report(metrics);
  clock_.Stop(MonotonicNow(), communicator_.collective_time());
  clock_.EndStep(step_, absl::Milliseconds(metrics.data_wait_ms));
  if (watch_ != nullptr) watch_->SetTimes(clock_.times());
  if (save_is_due) SaveOrSkip(totals[kSaveRefusals] == 0);
  return stop;
}

// What a report says of this rank if it hangs: which file it waits for, if that is why.
void Trainer::SetStepPhase(bool waits_for_data) {
  if (watch_ == nullptr) return;
  std::string phase = absl::StrCat("step ", step_ + 1);
  if (waits_for_data) {
    const std::string read = dataset_->CurrentRead();
    absl::StrAppend(&phase, ", waiting for data", read.empty() ? "" : ": ", read);
  }
  watch_->SetPhase(phase);
}

// This rank's microbatches, each into its leaf of the reduction tree.
void Trainer::ComputeMicrobatches(bool save_is_due, StepMetrics& metrics) {
  absl::StatusOr<data::StepBatches> batches = loader_->Next();
  Note(batches.status());
  if (batches.ok()) metrics.data_wait_ms = batches->wait_ms;

  const absl::Time started = MonotonicNow();
  parts_.finder->Clear();
  const std::vector<int64_t>& leaves = parts_.reducer->leaves();
  for (size_t index = 0; index < leaves.size(); ++index) {
    std::vector<double> scalars(parts_.num_scalars());
    WatchFirstStep(started, static_cast<int64_t>(leaves.size()));
    StepArgs args = parts_.MicrobatchArgs(config_.train.seed);
    if (batches.ok() && fault_.ok()) {
      Batch& batch = batches->microbatches[index];
      lane_restarts_.Apply(config_.model.initial_memory, batch);
      args.batch = &batch;
      args.memory = parts_.state->memory(static_cast<int64_t>(index));
      const StepResult result = parts_.network->Run(args, {});
      scalars[kLossSum] = result.loss_sum;
      scalars[kDivisor] = result.divisor;
      auto scalar = scalars.begin() + kHeadSums;
      for (const NamedSum& sum : result.sums) {
        *scalar++ = sum.sum;
        *scalar++ = sum.weight;
      }
      parts_.finder->EndLeaf(leaves[index], result.loss_sum);
    } else {
      parts_.network->Skip(args);
    }
    if (index + 1 == leaves.size()) {
      scalars[kStopWishes] = StopSignal() != 0 ? 1 : 0;
      scalars[kFaults] = fault_.ok() ? 0 : 1;
      scalars[kSaveRefusals] = save_is_due && !saver_->CanSave() ? 1 : 0;
      scalars[kSamplesHigh] = batches.ok() ? batches->samples.high : 0;
      scalars[kSamplesLow] = batches.ok() ? batches->samples.low : 0;
    }
    parts_.reducer->CommitLeaf(leaves[index], scalars);
  }
  // What others still compute, they compute with weights of which this rank has a part.
  for (auto index = static_cast<int64_t>(leaves.size()); index < parts_.reducer->num_leaves();
       ++index) {
    parts_.network->Skip(parts_.MicrobatchArgs(config_.train.seed));
    parts_.reducer->SkipLeaf();
  }
  metrics.compute_ms = MillisecondsSince(started);
}

void Trainer::WatchFirstStep(absl::Time started, int64_t num_leaves) {
  if (step_ != first_step_) return;
  const absl::Status going_on = setup_.Advance(1, num_leaves, "microbatches of the first step");
  if (MonotonicNow() - started >= options_.first_step_patience) Note(going_on);
}

// Of the figures that the step has: a task head's lanes may have no label, and a loss no target.
std::vector<NamedMean> Trainer::HeadMeans(absl::Span<const double> totals) const {
  std::vector<NamedMean> means;
  const double* total = totals.data() + kHeadSums;
  for (const NamedSum& sum : parts_.network->sums()) {
    const double value = *total++, weight = *total++;
    if (weight > 0) means.push_back({sum.name, value / weight});
  }
  return means;
}

// The optimizer's step, unless the step is not finite or the policy holds it back: then weights and
// moments stay as they are.
absl::Status Trainer::UpdateWeights(absl::Span<const double> totals, StepMetrics& metrics) {
  const absl::Time started = MonotonicNow();
  dist::StepInfo info;
  info.learning_rate = LearningRate(config_.optimizer, config_.train.steps, step_);
  info.grad_scale = 1 / totals[kDivisor];
  metrics.loss = totals[kLossSum] / totals[kDivisor];
  info.skip_update = anomalies_.SkipsUpdate(step_ + 1, metrics.loss);
  info.skip_above_norm = anomalies_.SkipAboveNorm();
  // The norm need not wait for what a save still reads, and neither must the host, which waits for
  // the norm.
  if (snapshot_copier_ != nullptr)
    info.before_update = [this] { snapshot_copier_->MakeUpdatesWait(); };
  parts_.state->optimizer().Step(gradient_, info, parts_.state->weights());
  // Also for a skipped step: its text was read with weights that are as good as before.
  parts_.state->AdvanceMemory();
  metrics.targets = totals[kDivisor];
  metrics.means = HeadMeans(totals);
  metrics.lr = info.learning_rate;
  metrics.samples = data::StepDigest{totals[kSamplesHigh], totals[kSamplesLow]}.Hex();
  RETURN_IF_ERROR(TakeOutcome(metrics));
  lane_restarts_.DropFull(step_ + 1, objective_->Shape(config_.train.micro_batch_size).advance,
                          config_.model.mem_len);
  metrics.optimizer_ms = MillisecondsSince(started);
  return absl::OkStatus();
}

// Whether a rank got a stop signal meanwhile.
bool Trainer::EvaluateIfDue(StepMetrics& metrics) {
  if (held_out_ == nullptr || !held_out_->IsDue(step_)) return false;
  if (watch_ != nullptr) watch_->SetPhase(absl::StrCat("evaluation after step ", step_));
  PeriodicEvaluator::Outcome outcome;
  StepArgs weights;
  parts_.state->BindWeights(weights);
  const auto evaluate = [&] { outcome = held_out_->Evaluate(weights); };
  if (config_.evaluates_average()) {
    parts_.state->WithAverage(evaluate);
  } else {
    evaluate();
  }
  metrics.held_out = outcome.metrics;
  if (outcome.metrics) best_.Add(step_, *outcome.metrics);
  return outcome.stop;
}

// Whether a stop signal cut off the evaluation that step_ asks for. Without it a run could end at
// another step, or with another best checkpoint, than one that nobody stopped.
bool Trainer::LacksEvaluation() const {
  return step_ > 0 && held_out_ != nullptr && held_out_->IsDue(step_) &&
         best_.state().last_step < step_;
}

// Of the step that this start goes on from. Whether a rank got a stop signal meanwhile.
bool Trainer::EvaluateIfMissed() {
  if (!LacksEvaluation()) return false;
  StepMetrics metrics;
  const bool stop = EvaluateIfDue(metrics);
  if (metrics.held_out && reporter_ != nullptr)
    Note(reporter_->MissedEvaluation(step_, *metrics.held_out));
  return stop;
}

void Trainer::SaveOrSkip(bool all_can_save) {
  // The best evaluation's weights are worth waiting for.
  if (!all_can_save && config_.checkpoint.keep_best && best_.state().step == step_) {
    if (watch_ != nullptr) watch_->SetPhase("waiting to save the best evaluation's weights");
    all_can_save = saver_->AwaitRoom().ok();
  }
  if (!all_can_save) return saver_->SkipSave(step_);
  // What a checkpoint vouches for is durable before it is staged.
  std::function<absl::Status()> await_metrics;
  if (reporter_ != nullptr) {
    reporter_->BeginSync();
    await_metrics = [this] { return reporter_->AwaitSync(); };
  }
  Note(saver_->Save(step_, parts_.state->Ranges(), Metadata(), std::move(await_metrics)));
  stall_ms_ = saver_->last_stall_ms();
}

absl::Status Trainer::NoteDivergence(int64_t step, absl::Status status) {
  if (!status.ok()) diverged_after_ = LastTrainedStep(step);
  return status;
}

void Trainer::Report(StepMetrics& metrics) {
  const std::vector<ckpt::SaveEvent> events = saver_->Poll();
  Note(saver_->fault());
  if (reporter_ == nullptr) return;
  metrics.step = step_;
  metrics.attempt = options_.attempt;
  metrics.tokens = config_.train.global_batch_size * config_.sampling.seq_len;
  metrics.tokens_per_second = static_cast<double>(metrics.tokens) / metrics.step_ms * 1000;
  const double devices = communicator_.world_size();
  metrics.tokens_per_second_per_device = metrics.tokens_per_second / devices;
  if (peak_flops_ > 0)
    metrics.mfu = step_flops_ / (metrics.step_ms / 1000) / (devices * peak_flops_);
  metrics.peak_rss_bytes = PeakRssBytes();
  peak_device_bytes_ = std::max(peak_device_bytes_, backend_->device_bytes().taken);
  metrics.peak_device_bytes = peak_device_bytes_;
  reporter_->Step(metrics);
  Note(reporter_->Saves(events));
}

void Trainer::RecordEnd(const absl::StatusOr<TrainEnd>& end) {
  const std::vector<ckpt::SaveEvent> events = saver_->Poll();
  if (reporter_ == nullptr) return;
  Note(reporter_->Saves(events));
  ledger::Stop stop;
  stop.step = step_;
  if (!end.ok()) {
    stop.exit_status = ExitStatusFor(end.status());
    stop.detail = std::string(end.status().message());
    // The next start would train the same steps and lose them, too.
    if (!saver_->fault().ok()) stop.may_restart = 0;
    if (diverged_after_ >= 0) {
      stop.may_restart = 0;
      stop.reason = ledger::Stop::kDiverged;
      stop.trained_step = diverged_after_;
    }
  } else if (*end == TrainEnd::kStopped) {
    stop.exit_status = kExitRequeue;
    stop.detail = StopWords();
  } else {
    stop.exit_status = kExitDone;
    stop.detail = "finished";
    if (step_ < config_.train.steps) {
      stop.reason = ledger::Stop::kEarly;
      stop.detail = absl::StrCat("finished early: ", best_.Description());
      Log(stop.detail);
    }
  }
  Note(reporter_->Stop(std::move(stop)));
}

// Equal on all ranks is what the checkpoint asks for; only rank 0's copy is used.
std::string Trainer::Metadata() const {
  if (communicator_.rank() != 0) return "";
  TrainMetadata metadata;
  metadata.step = step_;
  metadata.skipped_steps = skipped_steps_;
  metadata.anomaly = anomalies_.state();
  metadata.best_evaluation = best_.state();
  if (config_.checkpoint.keep_best) metadata.keep_step = best_.state().step;
  metadata.lane_restarts = lane_restarts_.all();
  metadata.base = base_;
  metadata.world_size = communicator_.world_size();
  metadata.device = DeviceName(*backend_);
  metadata.config_digest = config_.IdentityDigest();
  metadata.dataset_digest = dataset_->index().dataset_digest;
  metadata.tokenizer_digest = dataset_->index().tokenizer_digest;
  metadata.config_text = config_.ToText();
  return SerializeMetadata(metadata, parts_.network->layout());
}

// The device has decided by itself and is at the update meanwhile, so that what the host does here
// costs no time of the device's. All that follows, a save most of all, finds the step's outcome
// taken.
absl::Status Trainer::TakeOutcome(StepMetrics& metrics) {
  const dist::UpdateOutcome update = parts_.state->optimizer().AwaitOutcome();
  metrics.grad_norm = update.grad_norm;
  metrics.skipped = update.skipped;
  const Anomaly anomaly = anomalies_.Judge(step_ + 1, metrics.loss, metrics.grad_norm);
  ANYORDER_CHECK(update.skipped == (anomalies_.ActionFor(anomaly) != AnomalyAction::kIgnore))
      << "step " << step_ + 1 << " of loss " << metrics.loss << " and gradient norm "
      << metrics.grad_norm << (update.skipped ? " was skipped" : " was not skipped");
  if (update.skipped) return RecordSkippedStep(anomaly, metrics);
  anomalies_.CountTrained(metrics.loss, metrics.grad_norm);
  return absl::OkStatus();
}

absl::Status Trainer::RecordSkippedStep(Anomaly anomaly, const StepMetrics& metrics) {
  ++skipped_steps_;
  // Loss and norm are the same on all ranks, and so is this.
  const bool is_finite = std::isfinite(metrics.loss) && std::isfinite(metrics.grad_norm);
  anomalies_.CountSkipped(anomaly, is_finite);
  const int64_t step = step_ + 1;
  NonfiniteFindings findings;
  if (!is_finite) findings = FindNonfinite();
  const std::string what = DescribeStep(anomaly, metrics, findings.text);
  const AnomalyAction action = anomalies_.ActionFor(anomaly);
  if (reporter_ != nullptr) {
    ledger::Event event = ledger::Skipped{
        -1, step, findings.rank, config_.train.global_batch_size, EnumName(anomaly), findings.text};
    if (action == AnomalyAction::kRollback) {
      const SkippedSteps back = anomalies_.RollbackFrom(step);
      event = ledger::Rollback{-1, back.first, back.last, what};
    }
    const std::string warning = action == AnomalyAction::kRollback
                                    ? absl::StrCat(what, "; no update")
                                    : SkipWarning(what, anomalies_.state());
    // Before any checkpoint that counts the step as skipped.
    if (action != AnomalyAction::kStop) Note(reporter_->Incident(std::move(event), warning));
  }
  if (action == AnomalyAction::kStop) {
    return Aborted(what, "; stopping (anomaly.on_", EnumName(anomaly),
                   "): no checkpoint contains it; to continue, launch with --set anomaly.on_",
                   EnumName(anomaly), "=skip");
  }
  RETURN_IF_ERROR(NoteDivergence(step, anomalies_.CheckProgress(step)));
  if (action == AnomalyAction::kRollback) {
    return Unavailable(what, "; rolling back to the newest checkpoint (anomaly.on_",
                       EnumName(anomaly), ")");
  }
  return absl::OkStatus();
}

// Memory that is not finite would damage all later steps of its lane, so that such lanes restart
// empty.
NonfiniteFindings Trainer::FindNonfinite() {
  const std::vector<int64_t>& lanes = parts_.state->lanes();
  for (size_t i = 0; i < lanes.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    if (parts_.state->MemoryIsFinite(index)) continue;
    parts_.finder->AddMemoryLane(lanes[i]);
    parts_.state->EmptyMemory(index);
  }
  NonfiniteFindings findings = parts_.finder->Gather(communicator_);
  for (const int64_t lane : findings.empty_lanes) lane_restarts_.Add(lane, step_ + 1);
  return findings;
}

std::string Trainer::DescribeStep(Anomaly anomaly, const StepMetrics& metrics,
                                  const std::string& where) const {
  std::string text = absl::StrCat("step ", step_ + 1);
  if (anomaly == Anomaly::kRolledBack) {
    absl::StrAppend(&text, " is skipped because of a rollback");
  } else if (anomaly == Anomaly::kSpike) {
    const AnomalyState& state = anomalies_.state();
    absl::StrAppend(&text, " is a spike: loss ", metrics.loss, " (mean ", state.loss.mean,
                    "), gradient norm ", metrics.grad_norm, " (mean ", state.grad_norm.mean, ")");
  } else {
    absl::StrAppend(&text, " has a loss or gradient that is not finite");
  }
  return where.empty() ? text : absl::StrCat(text, " (", where, ")");
}

}  // namespace anyorder
