#include "core/train/evaluation/evaluator.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/log.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "core/metrics/tagging.h"
#include "core/train/evaluation/task_data.h"
#include "core/train/run/best_evaluation.h"
#include "core/train/run/stop_signal.h"
#include "data/dataset/shard_format.h"

namespace anyorder {

namespace {

void Add(const std::vector<NamedSum>& sums, std::vector<NamedSum>& total) {
  if (total.empty()) {
    total = sums;
    return;
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    total[i].sum += sums[i].sum;
    total[i].weight += sums[i].weight;
  }
}

// "loss, loss_task (lower is better) and task_accuracy (higher is better)"
std::string FigureWords(const std::vector<std::string>& names) {
  std::vector<std::string> lower, higher;
  for (const std::string& name : names) (LowerIsBetter(name) ? lower : higher).push_back(name);
  std::string words = absl::StrCat(absl::StrJoin(lower, ", "), " (lower is better)");
  if (!higher.empty())
    absl::StrAppend(&words, " and ", absl::StrJoin(higher, ", "), " (higher is better)");
  return words;
}

}  // namespace

Evaluator::Evaluator(const RunConfig& config, const EvaluatorOptions& options)
    : config_(config),
      options_(options),
      micro_batch_size_(std::gcd(options.lanes, config.train.micro_batch_size)) {
  // Unlike in training, there may be fewer microbatches than ranks: then some have nothing to do.
  const int64_t leaves = options.lanes / micro_batch_size_;
  leaves_ = dist::EvenPart(leaves, options.world_size, options.rank);
  most_leaves_ = (leaves + options.world_size - 1) / options.world_size;
  lanes_ = {leaves_.begin * micro_batch_size_, leaves_.end * micro_batch_size_};
}

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(const RunConfig& config,
                                                             const data::Dataset& text,
                                                             const EvaluatorOptions& options,
                                                             Transformer* shared,
                                                             kernels::Backend& backend) {
  std::unique_ptr<Evaluator> evaluator(new Evaluator(config, options));
  RETURN_IF_ERROR(evaluator->Plan(text));
  RETURN_IF_ERROR(
      evaluator->Allocate(static_cast<int64_t>(text.index().vocab_size), shared, backend));
  evaluator->Restart();
  return evaluator;
}

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::CreateWithoutText(
    const RunConfig& config, const EvaluatorOptions& options, int64_t vocab_size,
    Transformer& shared, kernels::Backend& backend) {
  std::unique_ptr<Evaluator> evaluator(new Evaluator(config, options));
  RETURN_IF_ERROR(evaluator->MakeOwnObjective());
  RETURN_IF_ERROR(evaluator->Allocate(vocab_size, &shared, backend));
  return evaluator;
}

absl::Status Evaluator::Allocate(int64_t vocab_size, Transformer* shared,
                                 kernels::Backend& backend) {
  backend.set_purpose("evaluation");
  transformer_ = shared;
  const BatchShape shape = objective_->Shape(micro_batch_size_);
  if (shared == nullptr || micro_batch_size_ != config_.train.micro_batch_size) {
    ASSIGN_OR_RETURN(own_transformer_,
                     Transformer::Create(shared == nullptr ? config_.model : config_.TrainedModel(),
                                         vocab_size, shape, backend, {.learns = false}));
    transformer_ = own_transformer_.get();
  }
  ASSIGN_OR_RETURN(memory_, MemoryRing::Create(config_.model, shape, lanes_.size(), backend));
  return absl::OkStatus();
}

absl::Status Evaluator::Check(const RunConfig& config, const data::Dataset& text,
                              const EvaluatorOptions& options) {
  Evaluator evaluator(config, options);
  RETURN_IF_ERROR(Annotate(evaluator.Plan(text), "eval.shards"));
  return evaluator.CheckMetric(text);
}

// More lanes than windows would only cost time.
absl::Status Evaluator::PlanWhole(const data::Dataset& text) {
  ASSIGN_OR_RETURN(
      std::unique_ptr<WindowSampler> sampler,
      WindowSampler::Create(text, config_.sampling, objective_->sample_kind(),
                            static_cast<uint64_t>(options_.seed), options_.lanes,
                            WarmupWindows(config_.model, objective_->Shape(1).advance)));
  windows_ = sampler.get();
  sampler_ = std::move(sampler);
  const int64_t lanes = windows_->lanes().lanes();
  micro_batch_size_ = std::min(lanes, config_.train.micro_batch_size);
  leaves_ = {0, (lanes + micro_batch_size_ - 1) / micro_batch_size_};
  most_leaves_ = leaves_.end;
  lanes_ = {0, leaves_.end * micro_batch_size_};
  scored_batches_ = windows_->lanes().num_batches();
  planned_windows_ = windows_->lanes().windows();
  return absl::OkStatus();
}

// A window begins `advance` tokens after the one before it.
Coverage Evaluator::CoverageOf(int64_t windows) const {
  if (num_examples_ > 0) return {std::min(windows, num_examples_), num_examples_, unit_};
  if (windows_ != nullptr && windows == planned_windows_) return {num_tokens_, num_tokens_};
  const int64_t directions = config_.sampling.bidirectional ? 2 : 1;
  return {std::min(num_tokens_, windows * objective_->Shape(1).advance / directions), num_tokens_};
}

absl::Status Evaluator::MakeOwnObjective() {
  // An evaluation's batches are no steps of the run: annealing would start over.
  RunConfig annealed = config_;
  AnyOrderConfig& order = annealed.sampling.any_order;
  order.annealing = AnyOrderConfig().annealing;
  order.anneal_steps = AnyOrderConfig().anneal_steps;
  order.curriculum_start = AnyOrderConfig().curriculum_start;
  if (order.token_order == TokenOrder::kCurriculum)
    order.token_order = AnyOrderConfig().token_order;
  ASSIGN_OR_RETURN(objective_, MakeObjective(annealed));
  return absl::OkStatus();
}

absl::Status Evaluator::Plan(const data::Dataset& text) {
  RETURN_IF_ERROR(MakeOwnObjective());
  RETURN_IF_ERROR(CheckTaskData(config_, text, TaskLabels::kMayLack));
  num_tokens_ = text.num_tokens();
  if (options_.whole) {
    RETURN_IF_ERROR(PlanWhole(text));
  } else {
    ASSIGN_OR_RETURN(sampler_,
                     data::Sampler::Create(text, config_.sampling, objective_->sample_kind(),
                                           static_cast<uint64_t>(options_.seed), options_.lanes,
                                           data::WindowUse::kAll));
  }
  num_examples_ = sampler_->num_examples();
  if (num_examples_ > 0 &&
      (config_.sampling.pack_examples || text.examples()->task() == ExampleTask::kSpans))
    unit_ = "sequences";
  if (objective_->Shape(1).has_tags && metrics::AreEntityTags(text.index().examples->classes))
    entity_tags_ = text.index().examples->classes;
  if (options_.whole) return absl::OkStatus();
  const int64_t advance = objective_->Shape(micro_batch_size_).advance;
  warmup_batches_ = (config_.model.mem_len + advance - 1) / advance;
  const int64_t available = sampler_->steps_per_epoch();
  scored_batches_ = options_.batches > 0 ? options_.batches : available - warmup_batches_;
  planned_windows_ = options_.lanes * scored_batches_;
  if (scored_batches_ >= 1 && num_batches() <= available) return absl::OkStatus();
  const int64_t most = available - warmup_batches_;
  return FailedPrecondition(
      "held-out dataset of ", text.num_tokens(), " tokens gives ", Counted(options_.lanes, "lane"),
      " ", Counted(available, "batch", "es"), " each, but ", warmup_batches_,
      " fill the memory and ", options_.batches > 0 ? options_.batches : 1,
      " more are to be scored; use more text, or ",
      most > 0 ? absl::StrCat("score at most ", Counted(most, "batch", "es"),
                              " (eval.batches; of `anyorder eval` --batches)")
               : "fewer lanes (eval.batch_size; of `anyorder eval` --batch-size)");
}

absl::Status Evaluator::CheckMetric(const data::Dataset& text) const {
  const std::string& metric = config_.eval.metric;
  const std::vector<std::string> names = figures();
  if (std::find(names.begin(), names.end(), metric) == names.end()) {
    return InvalidArgument("eval.metric is \"", metric, "\", but an evaluation of ",
                           config_.objective.name, " has ", FigureWords(names));
  }
  const bool is_used = config_.eval.patience > 0 || config_.checkpoint.keep_best;
  if (!is_used || objective_->Shape(1).task_rows == 0) return absl::OkStatus();
  const int64_t scored =
      std::min(text.examples()->num_examples(), scored_batches_ * options_.lanes);
  for (int64_t i = 0; i < scored; ++i)
    if (text.examples()->HasLabel(i)) return absl::OkStatus();
  return FailedPrecondition("eval.shards: none of the ", scored,
                            " examples has a label, so that no evaluation has a ", metric,
                            "; leave out eval.patience and checkpoint.keep_best, or name examples "
                            "with labels");
}

// Of text that has them all; means() leaves out what has no targets.
std::vector<std::string> Evaluator::figures() const {
  std::vector<std::string> names = {"loss", "loss_forward"};
  if (config_.sampling.bidirectional) names.emplace_back("loss_backward");
  if (objective_->has_reuse_part()) names.insert(names.end(), {"loss_reuse", "loss_a", "loss_b"});
  for (const std::string& name : loss_names()) names.push_back(absl::StrCat("loss_", name));
  if (objective_->Shape(1).task_rows == 0) return names;
  names.emplace_back(config_.model.task.has_score() ? "task_pearson" : "task_accuracy");
  if (config_.model.task.has_spans() || !entity_tags_.empty()) names.emplace_back("task_f1");
  return names;
}

std::vector<NamedMean> Evaluator::means(const SplitLosses& losses) const {
  std::vector<NamedMean> means;
  const auto add_split = [&means](const char* name, const LossSums& sums) {
    if (sums.weight > 0) means.push_back({name, sums.mean()});
  };
  add_split("loss_forward", losses.directions[0]);
  add_split("loss_backward", losses.directions[1]);
  add_split("loss_reuse", losses.part(TextPart::kReuse));
  add_split("loss_a", losses.part(TextPart::kA));
  add_split("loss_b", losses.part(TextPart::kB));
  size_t loss_id = 0;
  for (const std::string& name : loss_names())
    means.push_back({absl::StrCat("loss_", name), losses.losses[loss_id++].mean()});
  if (losses.task_judged > 0) {
    means.push_back({"task_accuracy", static_cast<double>(losses.task_correct) /
                                          static_cast<double>(losses.task_judged)});
  }
  if (losses.f1_weight > 0) means.push_back({"task_f1", losses.f1_sum / losses.f1_weight});
  if (losses.scores.count > 0) means.push_back({"task_pearson", losses.scores.correlation()});
  return means;
}

void Evaluator::Restart() {
  next_batch_ = 0;
  scored_windows_ = 0;
  losses_.assign(static_cast<size_t>(lanes_.size()), SplitLosses{});
  sums_.assign(static_cast<size_t>(leaves_.size()), {});
  loader_ = nullptr;
  memory_.Clear();
}

bool Evaluator::IsScored(int64_t lane) const {
  if (windows_ != nullptr) return windows_->lanes().IsScored(lane, next_batch_);
  // Lanes over at the end of the examples read the next epoch's.
  return next_batch_ >= warmup_batches_ &&
         (num_examples_ == 0 || next_batch_ * options_.lanes + lane < num_examples_);
}

absl::Status Evaluator::RunBatch(const StepArgs& weights) {
  ANYORDER_CHECK(next_batch_ < num_batches()) << next_batch_ << " batches are done";
  const absl::Status status = leaves_.size() > 0 ? ComputeBatch(weights) : absl::OkStatus();
  const int64_t computed = status.ok() ? leaves_.size() : 0;
  for (int64_t index = computed; index < most_leaves_; ++index) transformer_->Skip(weights);
  ++next_batch_;
  return status;
}

absl::Status Evaluator::ComputeBatch(const StepArgs& weights) {
  if (loader_ == nullptr) {
    std::vector<int64_t> leaves(static_cast<size_t>(leaves_.size()));
    std::iota(leaves.begin(), leaves.end(), leaves_.begin);
    loader_ = std::make_unique<data::BatchLoader>(
        *sampler_, *objective_, data::LoaderOptions{std::move(leaves), micro_batch_size_, 0, 1});
  }
  ASSIGN_OR_RETURN(data::StepBatches batches, loader_->Next());
  const bool has_parts = objective_->has_reuse_part();
  for (int64_t index = 0; index < leaves_.size(); ++index) {
    Batch& batch = batches.microbatches[index];
    for (int64_t b = 0; windows_ != nullptr && b < micro_batch_size_; ++b) {
      const int64_t lane = index * micro_batch_size_ + b;
      if (windows_->StartsAnew(lane, next_batch_)) memory_.Clear(lane);
      windows_->KeepCounted(lane, next_batch_, b, batch);
    }
    StepArgs args = weights;
    args.training = false;
    args.batch = &batch;
    args.memory = memory_.View(index * micro_batch_size_, micro_batch_size_);
    const StepResult result = transformer_->Run(args, {});
    if (next_batch_ >= warmup_batches_) Add(result.sums, sums_[static_cast<size_t>(index)]);
    for (int64_t b = 0; b < micro_batch_size_; ++b) {
      const int64_t lane = index * micro_batch_size_ + b;
      if (!IsScored(lanes_.begin + lane)) continue;
      ++scored_windows_;
      const TaskResult* task =
          batch.shape.task_rows > 0 ? &transformer_->task_results()[b] : nullptr;
      losses_[lane].Add(SampleLosses(batch, transformer_->readout_losses(), b,
                                     has_parts ? config_.sampling.reuse_len : 0, task));
      if (!entity_tags_.empty()) AddEntities(batch, b, *task, entity_tags_, losses_[lane]);
    }
  }
  memory_.Advance();
  return absl::OkStatus();
}

std::vector<NamedSum> Evaluator::sums() const {
  std::vector<NamedSum> total;
  for (const std::vector<NamedSum>& sums : sums_) Add(sums, total);
  return total;
}

EvaluatorOptions PeriodicEvaluatorOptions(const RunConfig& config) {
  const int64_t lanes = config.eval.batch_size;
  return {.lanes = lanes > 0 ? lanes : config.train.global_batch_size,
          .batches = config.eval.batches,
          .seed = config.eval.seed};
}

absl::StatusOr<std::unique_ptr<data::Dataset>> OpenHeldOutText(const RunConfig& config,
                                                               const data::DatasetIndex& training) {
  absl::StatusOr<std::unique_ptr<data::Dataset>> text = data::Dataset::Open(config.eval.shards);
  RETURN_IF_ERROR(Annotate(text.status(), "eval.shards"));
  const data::DatasetIndex& index = (*text)->index();
  const char* const flag =
      training.tokenizer.file == data::kTokenizerFile ? "--vocab" : "--tokenizer";
  if (index.tokenizer_digest != training.tokenizer_digest) {
    return FailedPrecondition("eval.shards '", config.eval.shards,
                              "' was made by tokenizer (and cleaning) ", index.tokenizer_digest,
                              ", but data.shards by ", training.tokenizer_digest,
                              "; prepare it with that of the training data: anyorder prep ", flag,
                              " '", config.data.shards, "'");
  }
  // Two directories may hold the same tokenizer.json and declare different masks in other files.
  if (index.vocab_ids != training.vocab_ids || index.vocab_size != training.vocab_size) {
    return FailedPrecondition("eval.shards '", config.eval.shards,
                              "' has other special ids, or another vocabulary size, than "
                              "data.shards; prepare it with those of the training data: anyorder "
                              "prep ",
                              flag, " '", config.data.shards, "'");
  }
  RETURN_IF_ERROR(Evaluator::Check(config, **text, PeriodicEvaluatorOptions(config)));
  RETURN_IF_ERROR(CheckSameClasses(config, index,
                                   absl::StrCat("eval.shards '", config.eval.shards, "'"), training,
                                   absl::StrCat("data.shards '", config.data.shards, "'")));
  return text;
}

absl::StatusOr<std::unique_ptr<PeriodicEvaluator>> PeriodicEvaluator::Create(
    const RunConfig& config, const data::DatasetIndex& training, dist::Communicator& communicator,
    Transformer& shared, kernels::Backend& backend) {
  if (config.eval.every == 0) return nullptr;
  std::unique_ptr<PeriodicEvaluator> held_out(new PeriodicEvaluator(config, communicator));
  RETURN_IF_ERROR(communicator.AllAgree(held_out->OpenLocal(training, shared, backend)));
  // Nodes may see different files under one path; then they would not do the same number of
  // batches.
  const std::string& digest = held_out->text_->index().dataset_digest;
  RETURN_IF_ERROR(communicator.AllSame(digest, "has another dataset in eval.shards",
                                       "all nodes must see the same files"));
  if (communicator.rank() == 0 && digest == training.dataset_digest)
    LogWarning("eval.shards is the training data: eval_loss is not a held-out loss");
  if (communicator.rank() == 0) WarnOfCutExamples(config, *held_out->text_, config.eval.shards);
  return held_out;
}

absl::Status PeriodicEvaluator::OpenLocal(const data::DatasetIndex& training, Transformer& shared,
                                          kernels::Backend& backend) {
  ASSIGN_OR_RETURN(text_, OpenHeldOutText(config_, training));
  EvaluatorOptions options = PeriodicEvaluatorOptions(config_);
  options.rank = communicator_.rank();
  options.world_size = communicator_.world_size();
  ASSIGN_OR_RETURN(evaluator_, Evaluator::Create(config_, *text_, options, &shared, backend));
  return absl::OkStatus();
}

PeriodicEvaluator::Outcome PeriodicEvaluator::Evaluate(const StepArgs& weights) {
  const absl::Time started = MonotonicNow();
  evaluator_->Restart();
  for (int64_t batch = 0; batch < evaluator_->num_batches(); ++batch) {
    const absl::Status mine = evaluator_->RunBatch(weights);
    std::array<int64_t, 2> any{StopSignal() != 0 ? 1 : 0, mine.ok() ? 0 : 1};
    communicator_.AllReduceMax(absl::MakeSpan(any));
    if (any[1] != 0) {
      const absl::Status fault = communicator_.AllAgree(mine);
      broken_ = true;
      if (communicator_.rank() == 0)
        LogWarning(absl::StrCat("no more held-out evaluations in this attempt: ", fault.message()));
      return {any[0] != 0, std::nullopt};
    }
    if (any[0] != 0) return {true, std::nullopt};
  }
  // Ranks hold lanes in rank order.
  const SplitLosses losses =
      SumOverLanes(communicator_.AllGatherElements(evaluator_->lane_losses()));
  HeldOutMetrics metrics;
  metrics.loss = losses.total().mean();
  metrics.standard_error = losses.total().standard_error();
  metrics.means = evaluator_->means(losses);
  metrics.targets = losses.total().targets;
  metrics.ms = absl::ToDoubleMilliseconds(MonotonicNow() - started);
  return {false, metrics};
}

}  // namespace anyorder
