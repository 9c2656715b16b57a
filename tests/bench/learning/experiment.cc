#include "tests/bench/learning/experiment.h"

#include <algorithm>
#include <cmath>

#include "core/base/status.h"
#include "core/optim/schedule.h"

namespace anyorder::bench {

absl::Status ExperimentOptions::Parse(int argc, char** argv, std::vector<Option> own) {
  std::vector<Option> all = {{"--seed", &seed},       {"--steps", &steps, 1},
                             {"--every", &every, 1},  {"--dim", &dim},
                             {"--layers", &layers},   {"--lanes", &lanes},
                             {"--seq-len", &seq_len}, {"--lr", &learning_rate}};
  all.insert(all.end(), own.begin(), own.end());
  return ParseOptions(argc, argv, all);
}

Experiment::Experiment(const ExperimentOptions& options, int64_t vocab_size)
    : common_(options), vocab_size_(vocab_size) {
  model_.num_layers = options.layers;
  model_.model_dim = options.dim;
  model_.head_dim = 32;
  model_.num_heads = std::max<int64_t>(1, options.dim / 32);
  model_.ffn_dim = 4 * options.dim;
  model_.mem_len = 0;
  model_.segments = Segments::kNone;
  model_.dropout = model_.attention_dropout = 0.0;
  model_.init_range = 1.0 / std::sqrt(static_cast<double>(options.dim));
  sampling_.seq_len = options.seq_len;
  sampling_.bidirectional = false;
}

absl::StatusOr<std::unique_ptr<Objective>> Experiment::ObjectiveOf(const ModelConfig& model) const {
  return MakeObjective(common_.objective, model, sampling_);
}

absl::StatusOr<MemoryRunner> Experiment::MakeEvaluator(const ModelConfig& model,
                                                       const Objective& objective) const {
  return MemoryRunner::Create(model, vocab_size_, objective.Shape(common_.lanes), *backend_);
}

Batch Experiment::MakeBatch(const Objective& objective, uint64_t seed, int64_t step) const {
  Batch batch(objective.Shape(common_.lanes));
  for (int64_t lane = 0; lane < common_.lanes; ++lane)
    objective.BuildLane(Draw(seed, lane, step), lane, batch);
  return batch;
}

absl::Status Experiment::Run() {
  ASSIGN_OR_RETURN(backend_, kernels::MakeCpuBackend({.num_threads = 1}));
  ASSIGN_OR_RETURN(objective_, ObjectiveOf(model_));
  const OptimizerConfig optimizer = {.learning_rate = common_.learning_rate,
                                     .warmup_steps = common_.steps / 10,
                                     .weight_decay = 0.0,
                                     .bias_correction = true};
  ASSIGN_OR_RETURN(learner_, Learner::Create(model_, vocab_size_, objective_->Shape(common_.lanes),
                                             common_.seed, optimizer, *backend_));
  double loss = 0;
  for (int64_t step = 0; step < common_.steps; ++step) {
    if (step % common_.every == 0) RETURN_IF_ERROR(Report(step, loss));
    loss = learner_->Step(MakeBatch(*objective_, common_.seed, step),
                          LearningRate(optimizer, common_.steps, step));
  }
  return Report(common_.steps, loss);
}

}  // namespace anyorder::bench
