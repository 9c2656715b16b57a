// An experiment on text that is made on the spot: a network of a few layers that is trained, and
// evaluated every few steps.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "core/objective/objective.h"
#include "tests/bench/learner.h"
#include "tests/bench/options.h"

namespace anyorder::bench {

// Of every text's vocabulary; its symbols come after the special pieces.
inline constexpr int32_t kClassId = 3;
inline constexpr int32_t kSeparatorId = 4;
inline constexpr int32_t kMaskId = 6;
inline constexpr int32_t kFirstId = 9;

struct ExperimentOptions {
  std::string objective;
  int64_t seed = 1;
  int64_t steps = 1000;
  int64_t every = 100;
  int64_t dim = 64;
  int64_t layers = 2;
  int64_t lanes = 16;
  int64_t seq_len = 64;
  int64_t eval_batches = 32;
  double learning_rate = 2e-3;

  // As ParseOptions: these, but for the objective, and the experiment's own.
  absl::Status Parse(int argc, char** argv, std::vector<Option> own);
};

class Experiment {
 public:
  virtual ~Experiment() = default;
  absl::Status Run();

 protected:
  // The network has relative positions, heads of 32, no dropout, no memory and no segments; the
  // experiment changes what differs.
  Experiment(const ExperimentOptions& options, int64_t vocab_size);

  // The text of a lane and step: a pure function.
  virtual TextSample Draw(uint64_t seed, int64_t lane, int64_t step) const = 0;
  // Before `step`, whose predecessor had this loss, and after the last one.
  virtual absl::Status Report(int64_t step, double train_loss) = 0;

  Batch MakeBatch(const Objective& objective, uint64_t seed, int64_t step) const;
  absl::StatusOr<std::unique_ptr<Objective>> ObjectiveOf(const ModelConfig& model) const;
  absl::StatusOr<MemoryRunner> MakeEvaluator(const ModelConfig& model,
                                             const Objective& objective) const;
  bool IsLast(int64_t step) const { return step == common_.steps; }

  // Training draws its text from other steps.
  static constexpr int64_t kFirstEvalStep = int64_t{1} << 40;
  ModelConfig model_;
  SamplingConfig sampling_;
  std::unique_ptr<Objective> objective_;
  std::unique_ptr<kernels::Backend> backend_;  // outlives the learner
  std::unique_ptr<Learner> learner_;

 private:
  ExperimentOptions common_;
  int64_t vocab_size_;
};

}  // namespace anyorder::bench
