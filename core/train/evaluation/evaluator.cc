#include "core/train/evaluation/evaluator.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/train/evaluation/task_data.h"

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

}  // namespace

Evaluator::Evaluator(const RunConfig& config, const EvaluatorOptions& options)
    : config_(config),
      options_(options),
      micro_batch_size_(std::gcd(options.lanes, config.train.micro_batch_size)) {
  // Unlike in training, there may be fewer microbatches than ranks: then some have nothing to do.
  leaves_ = dist::EvenPart(options.lanes / micro_batch_size_, options.world_size, options.rank);
  lanes_ = {leaves_.begin * micro_batch_size_, leaves_.end * micro_batch_size_};
}

absl::StatusOr<std::unique_ptr<Evaluator>> Evaluator::Create(const RunConfig& config,
                                                             const data::Dataset& text,
                                                             const EvaluatorOptions& options,
                                                             Transformer* shared,
                                                             kernels::Backend& backend) {
  std::unique_ptr<Evaluator> evaluator(new Evaluator(config, options));
  ANYORDER_RETURN_IF_ERROR(evaluator->Plan(text));
  evaluator->transformer_ = shared;
  if (shared == nullptr || evaluator->micro_batch_size_ != config.train.micro_batch_size) {
    ANYORDER_ASSIGN_OR_RETURN(
        evaluator->own_transformer_,
        Transformer::Create(config.model, static_cast<int64_t>(text.index().vocab_size),
                            evaluator->objective_->Shape(evaluator->micro_batch_size_), backend));
    evaluator->transformer_ = evaluator->own_transformer_.get();
  }
  ANYORDER_ASSIGN_OR_RETURN(
      evaluator->memory_,
      MemoryRing::Create(config.model, evaluator->objective_->Shape(evaluator->micro_batch_size_),
                         evaluator->lanes_.size(), backend));
  evaluator->Restart();
  return evaluator;
}

absl::Status Evaluator::Check(const RunConfig& config, const data::Dataset& text,
                              const EvaluatorOptions& options) {
  return Evaluator(config, options).Plan(text);
}

absl::Status Evaluator::Plan(const data::Dataset& text) {
  ANYORDER_ASSIGN_OR_RETURN(objective_,
                            MakeObjective(config_.objective.name, config_.model, config_.sampling));
  ANYORDER_ASSIGN_OR_RETURN(
      sampler_, data::Sampler::Create(text, config_.sampling, objective_->sample_kind(),
                                      static_cast<uint64_t>(options_.seed), options_.lanes));
  if (text.examples() != nullptr)
    ANYORDER_RETURN_IF_ERROR(objective_->CheckTask(text.examples()->task()));
  if (objective_->sample_kind() == SampleKind::kExamples) {
    ANYORDER_RETURN_IF_ERROR(CheckTaskData(config_, text, TaskLabels::kMayLack));
    num_examples_ = text.examples()->num_examples();
  }
  const int64_t advance = objective_->Shape(micro_batch_size_).advance;
  warmup_batches_ = (config_.model.mem_len + advance - 1) / advance;
  const int64_t available = sampler_->steps_per_epoch();
  scored_batches_ = options_.batches > 0 ? options_.batches : available - warmup_batches_;
  if (scored_batches_ >= 1 && num_batches() <= available) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("held-out dataset of ", text.num_tokens(), " tokens gives each of ",
                   options_.lanes, " lanes ", available, " batches, but ", warmup_batches_,
                   " fill the memory and ", options_.batches > 0 ? options_.batches : 1,
                   " more are to be scored; use fewer lanes or batches, or more text"));
}

void Evaluator::Restart() {
  next_batch_ = 0;
  losses_.assign(static_cast<size_t>(lanes_.size()), SplitLosses{});
  sums_.assign(static_cast<size_t>(leaves_.size()), {});
  loader_ = nullptr;
  memory_.Clear();
}

absl::Status Evaluator::RunBatch(ConstTensorView weights) {
  ANYORDER_CHECK(next_batch_ < num_batches()) << next_batch_ << " batches are done";
  if (leaves_.size() == 0) {
    ++next_batch_;
    return absl::OkStatus();
  }
  if (loader_ == nullptr) {
    loader_ = std::make_unique<data::BatchLoader>(
        *sampler_, *objective_,
        data::LoaderOptions{leaves_.begin, leaves_.end, micro_batch_size_, 0, 1});
  }
  ANYORDER_ASSIGN_OR_RETURN(const data::StepBatches batches, loader_->Next());
  const bool is_scored = next_batch_ >= warmup_batches_;
  const bool has_parts = objective_->has_reuse_part();
  for (int64_t index = 0; index < leaves_.size(); ++index) {
    StepArgs args;
    args.batch = &batches.microbatches[index];
    args.weights = weights;
    args.memory = memory_.View(index * micro_batch_size_, micro_batch_size_);
    args.training = false;
    const StepResult result = transformer_->Run(args, {});
    if (is_scored) Add(result.sums, sums_[static_cast<size_t>(index)]);
    for (int64_t b = 0; is_scored && b < micro_batch_size_; ++b) {
      const int64_t lane = index * micro_batch_size_ + b;
      // Lanes over at the end of the examples read the next epoch's.
      if (num_examples_ > 0 && next_batch_ * options_.lanes + lanes_.begin + lane >= num_examples_)
        continue;
      TaskOutcome task;
      const bool has_task = args.batch->shape.task_rows > 0;
      if (has_task) task = {transformer_->task_losses()[b], transformer_->task_predictions()[b]};
      losses_[lane].Add(SampleLosses(*args.batch, transformer_->readout_losses(), b,
                                     has_parts ? config_.sampling.reuse_len : 0,
                                     has_task ? &task : nullptr));
    }
  }
  memory_.Advance();
  ++next_batch_;
  return absl::OkStatus();
}

std::vector<NamedSum> Evaluator::sums() const {
  std::vector<NamedSum> total;
  for (const std::vector<NamedSum>& sums : sums_) Add(sums, total);
  return total;
}

SplitLosses SumOverLanes(const std::vector<SplitLosses>& lanes) {
  SplitLosses sum;
  for (const SplitLosses& lane : lanes) sum.Add(lane);
  return sum;
}

}  // namespace anyorder
