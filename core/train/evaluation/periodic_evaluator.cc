#include "core/train/evaluation/periodic_evaluator.h"

#include <array>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "core/base/check.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/train/evaluation/task_data.h"
#include "core/train/run/stop_signal.h"

namespace anyorder {

EvaluatorOptions PeriodicEvaluatorOptions(const RunConfig& config) {
  EvaluatorOptions options;
  options.lanes =
      config.eval.batch_size > 0 ? config.eval.batch_size : config.train.global_batch_size;
  options.batches = config.eval.batches;
  options.seed = config.eval.seed;
  return options;
}

absl::StatusOr<std::unique_ptr<data::Dataset>> OpenHeldOutText(const RunConfig& config,
                                                               const data::DatasetIndex& training) {
  absl::StatusOr<std::unique_ptr<data::Dataset>> text = data::Dataset::Open(config.eval.shards);
  ANYORDER_RETURN_IF_ERROR(Annotate(text.status(), "eval.shards"));
  const data::DatasetIndex& index = (*text)->index();
  if (index.tokenizer_digest != training.tokenizer_digest) {
    return absl::FailedPreconditionError(absl::StrCat(
        "eval.shards '", config.eval.shards, "' was made by tokenizer ", index.tokenizer_digest,
        ", but data.shards by ", training.tokenizer_digest,
        "; prepare it with `anyorder prep --vocab MODEL`, the spiece.model of the training data"));
  }
  ANYORDER_RETURN_IF_ERROR(
      Annotate(Evaluator::Check(config, **text, PeriodicEvaluatorOptions(config)), "eval.shards"));
  ANYORDER_RETURN_IF_ERROR(
      CheckSameClasses(config, index, absl::StrCat("eval.shards '", config.eval.shards, "'"),
                       training, absl::StrCat("data.shards '", config.data.shards, "'")));
  return text;
}

absl::StatusOr<std::unique_ptr<PeriodicEvaluator>> PeriodicEvaluator::Create(
    const RunConfig& config, const data::DatasetIndex& training, dist::Communicator& communicator,
    Transformer& shared, kernels::Backend& backend) {
  if (config.eval.every == 0) return nullptr;
  std::unique_ptr<PeriodicEvaluator> held_out(new PeriodicEvaluator(config, communicator));
  ANYORDER_RETURN_IF_ERROR(communicator.AllAgree(held_out->OpenLocal(training, shared, backend)));
  // Nodes may see different files under one path; then they would not do the same number of
  // batches.
  const std::string& digest = held_out->text_->index().dataset_digest;
  const std::vector<std::string> all = communicator.AllGatherStrings(digest);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " has another dataset in eval.shards than rank 0 (", all[rank],
                     " and ", all[0], "); all nodes must see the same files"));
  }
  if (communicator.rank() == 0 && digest == training.dataset_digest)
    LogWarning("eval.shards is the training data: eval_loss is not a held-out loss");
  return held_out;
}

absl::Status PeriodicEvaluator::OpenLocal(const data::DatasetIndex& training, Transformer& shared,
                                          kernels::Backend& backend) {
  ANYORDER_ASSIGN_OR_RETURN(text_, OpenHeldOutText(config_, training));
  EvaluatorOptions options = PeriodicEvaluatorOptions(config_);
  options.rank = communicator_.rank();
  options.world_size = communicator_.world_size();
  ANYORDER_ASSIGN_OR_RETURN(evaluator_,
                            Evaluator::Create(config_, *text_, options, &shared, backend));
  return absl::OkStatus();
}

PeriodicEvaluator::Outcome PeriodicEvaluator::Evaluate(ConstTensorView weights) {
  const absl::Time started = absl::Now();
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
  const SplitLosses losses = GatherLosses();
  HeldOutMetrics metrics;
  metrics.loss = losses.total().mean();
  metrics.standard_error = losses.total().standard_error();
  const auto add_split = [&metrics](const char* name, const LossSums& sums) {
    if (sums.weight > 0) metrics.means.push_back({name, sums.mean()});
  };
  add_split("loss_forward", losses.directions[0]);
  add_split("loss_backward", losses.directions[1]);
  add_split("loss_reuse", losses.part(TextPart::kReuse));
  add_split("loss_a", losses.part(TextPart::kA));
  add_split("loss_b", losses.part(TextPart::kB));
  size_t loss_id = 0;
  for (const std::string& name : evaluator_->loss_names())
    metrics.means.push_back({absl::StrCat("loss_", name), losses.losses[loss_id++].mean()});
  if (losses.task_examples > 0) {
    metrics.means.push_back({"task_accuracy", static_cast<double>(losses.task_correct) /
                                                  static_cast<double>(losses.task_examples)});
  }
  metrics.targets = losses.total().targets;
  metrics.ms = absl::ToDoubleMilliseconds(absl::Now() - started);
  return {false, metrics};
}

SplitLosses PeriodicEvaluator::GatherLosses() {
  static_assert(std::is_trivially_copyable_v<SplitLosses>);
  const std::vector<SplitLosses>& mine = evaluator_->lane_losses();
  const std::vector<std::string> all = communicator_.AllGatherStrings(
      {reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(SplitLosses)});
  std::vector<SplitLosses> lanes;  // ranks hold lanes in rank order
  for (const std::string& bytes : all) {
    const size_t first = lanes.size();
    lanes.resize(first + bytes.size() / sizeof(SplitLosses));
    if (!bytes.empty()) std::memcpy(&lanes[first], bytes.data(), bytes.size());
  }
  return SumOverLanes(lanes);
}

}  // namespace anyorder
