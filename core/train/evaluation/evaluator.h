// Held-out loss of a run's own objective: the training data path on other text, with fixed random
// choices and without dropout.
//
// A sample of the text, during training: lanes read their streams from the beginning. The first
// warm-up batches fill the recurrence memory and are not scored, so that every scored batch has a
// full one. Masks, orders and A/B pairs are a function of (dataset, seed, lane, batch): the same
// call gives the same digits, whatever the number of threads and ranks.
//
// Or the whole text, window by window (window_walk.h): masks, orders and pairs are a function of
// (dataset, seed, window), whatever the number of lanes, too.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/network/tensors/memory_ring.h"
#include "core/network/transformer.h"
#include "core/objective/objective.h"
#include "core/train/evaluation/loss_sums.h"
#include "core/train/evaluation/window_walk.h"
#include "core/train/run/metrics.h"
#include "core/train/run/run_config.h"
#include "data/dataset/dataset.h"
#include "data/sampling/loader.h"
#include "data/sampling/sampler.h"
#include "dist/communicator.h"
#include "dist/parameter_partition.h"
#include "kernels/backend.h"

namespace anyorder {

struct EvaluatorOptions {
  int64_t lanes = 1;
  int64_t batches = 0;  // scored ones a lane; 0: all that the text has
  bool whole = false;   // the whole text, of which `lanes` windows at most are computed at once
  int64_t seed = 1;
  int rank = 0;  // this process evaluates its share of the lanes
  int world_size = 1;
};

// How much of a text: tokens, each read in every direction, or labelled examples, or the sequences
// that they are read in: several in one, or windows of one.
struct Coverage {
  int64_t scored = 0;
  int64_t of = 0;
  const char* unit = "tokens";  // or "examples", or "sequences"
};

class Evaluator {
 public:
  // FailedPrecondition if the text is too short. `shared` is a network of
  // config.train.micro_batch_size lanes to compute with, or null; where its shape does not fit, the
  // evaluator makes its own. All references and `shared` must outlive the evaluator.
  static absl::StatusOr<std::unique_ptr<Evaluator>> Create(const RunConfig& config,
                                                           const data::Dataset& text,
                                                           const EvaluatorOptions& options,
                                                           Transformer* shared,
                                                           kernels::Backend& backend);

  // What Create allocates of `backend` beside a trainer's network, without the text, whose windows
  // may make it less. It evaluates nothing.
  static absl::StatusOr<std::unique_ptr<Evaluator>> CreateWithoutText(
      const RunConfig& config, const EvaluatorOptions& options, int64_t vocab_size,
      Transformer& shared, kernels::Backend& backend);

  // Create's answer about config, text and options, without making a network; and whether the
  // evaluations can be compared by eval.metric: InvalidArgument for a figure that they do not
  // have, FailedPrecondition where patience or keep_best need labels and there are none.
  static absl::Status Check(const RunConfig& config, const data::Dataset& text,
                            const EvaluatorOptions& options);

  // Forgets all sums and states and goes to the first batch.
  void Restart();
  // Computes the next batch of this process's lanes with the weights of `weights`, and calls its
  // layer_begins as often as all processes do, whatever becomes of it. REQUIRES: called
  // num_batches() times at most.
  absl::Status RunBatch(const StepArgs& weights);

  int64_t warmup_batches() const { return warmup_batches_; }
  int64_t scored_batches() const { return scored_batches_; }
  int64_t num_batches() const { return warmup_batches_ + scored_batches_; }
  // Of all lanes when all batches are done, or of this process's after those that are.
  Coverage planned() const { return CoverageOf(planned_windows_); }
  Coverage scored() const { return CoverageOf(scored_windows_); }
  // This process's lanes, and what each of them has scored so far.
  dist::Range lanes() const { return lanes_; }
  const std::vector<SplitLosses>& lane_losses() const { return losses_; }
  // What the heads report (Transformer::sums) of all this process's scored batches.
  std::vector<NamedSum> sums() const;
  // The figures of this evaluation: "loss", and the names of means().
  std::vector<std::string> figures() const;
  // HeldOutMetrics::means of what all lanes have scored.
  std::vector<NamedMean> means(const SplitLosses& losses) const;
  // Names of SplitLosses::losses.
  std::vector<std::string> loss_names() const { return objective_->Shape(1).loss_names; }
  const Objective& objective() const { return *objective_; }
  const Transformer& network() const { return *transformer_; }

 private:
  Evaluator(const RunConfig& config, const EvaluatorOptions& options);
  absl::Status Plan(const data::Dataset& text);
  absl::Status MakeOwnObjective();
  absl::Status Allocate(int64_t vocab_size, Transformer* shared, kernels::Backend& backend);
  absl::Status PlanWhole(const data::Dataset& text);
  Coverage CoverageOf(int64_t windows) const;
  absl::Status ComputeBatch(const StepArgs& weights);
  // Whether the batch that comes next is scored in this lane of all.
  bool IsScored(int64_t lane) const;
  absl::Status CheckMetric(const data::Dataset& text) const;

  const RunConfig& config_;
  EvaluatorOptions options_;
  int64_t micro_batch_size_;
  dist::Range leaves_;       // microbatches of this process
  int64_t most_leaves_ = 0;  // of any process
  dist::Range lanes_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<data::Sampler> sampler_;
  const WindowSampler* windows_ = nullptr;  // the sampler, of a whole text
  std::unique_ptr<Transformer> own_transformer_;
  Transformer* transformer_ = nullptr;
  MemoryRing memory_;                     // of lanes_
  std::vector<std::string> entity_tags_;  // names of classes that are tags of entities, or empty
  // The size of a dataset of labelled examples, or of the sequences that they are read in, each of
  // which is scored once; else 0.
  int64_t num_examples_ = 0;
  const char* unit_ = "examples";
  int64_t num_tokens_ = 0;
  int64_t planned_windows_ = 0;
  int64_t warmup_batches_ = 0;
  int64_t scored_batches_ = 0;

  int64_t next_batch_ = 0;
  int64_t scored_windows_ = 0;
  std::vector<SplitLosses> losses_;
  std::vector<std::vector<NamedSum>> sums_;  // of the heads, by microbatch
  std::unique_ptr<data::BatchLoader> loader_;
};

// The sum over all lanes in their order: the same additions however the lanes are shared out.
inline SplitLosses SumOverLanes(const std::vector<SplitLosses>& lanes) {
  SplitLosses sum;
  for (const SplitLosses& lane : lanes) sum.Add(lane);
  return sum;
}

// Held-out loss during training, on all ranks: what section [eval] asks for (README.md).
EvaluatorOptions PeriodicEvaluatorOptions(const RunConfig& config);

// config.eval.shards, if it can be evaluated as configured. Errors: those of Dataset::Open;
// FailedPrecondition for text of another tokenizer than `training` has, too little of it, or
// examples whose classes have other numbers. Local.
absl::StatusOr<std::unique_ptr<data::Dataset>> OpenHeldOutText(const RunConfig& config,
                                                               const data::DatasetIndex& training);

// Each evaluation reads the same text with the same random choices from the beginning, with a
// memory of its own.
class PeriodicEvaluator {
 public:
  struct Outcome {
    bool stop = false;  // the same on all ranks
    std::optional<HeldOutMetrics> metrics;
  };

  // Collective; errors are the same on all ranks. Null if config.eval.every is 0. `shared` is the
  // trainer's network, used between its steps. Borrows all but `training`.
  static absl::StatusOr<std::unique_ptr<PeriodicEvaluator>> Create(
      const RunConfig& config, const data::DatasetIndex& training, dist::Communicator& communicator,
      Transformer& shared, kernels::Backend& backend);

  // Of each evaluation.
  Coverage coverage() const { return evaluator_->planned(); }

  // After step `step` (steps finished). After the last one always: it is what a run is judged by.
  bool IsDue(int64_t step) const {
    return !broken_ && (step % config_.eval.every == 0 || step == config_.train.steps);
  }

  // Collective. No metrics if a rank got a stop signal meanwhile: the evaluation is given up within
  // a batch. None either if the text cannot be read, which is said once; training does not depend
  // on it, so the run goes on without evaluations.
  Outcome Evaluate(const StepArgs& weights);

 private:
  PeriodicEvaluator(const RunConfig& config, dist::Communicator& communicator)
      : config_(config), communicator_(communicator) {}
  absl::Status OpenLocal(const data::DatasetIndex& training, Transformer& shared,
                         kernels::Backend& backend);

  const RunConfig& config_;
  dist::Communicator& communicator_;
  std::unique_ptr<data::Dataset> text_;
  std::unique_ptr<Evaluator> evaluator_;
  bool broken_ = false;  // the same on all ranks
};

}  // namespace anyorder
