// What the experiments have in common: a network of a few layers, and how it is trained.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/config/model_config.h"
#include "core/optim/optimizer_config.h"
#include "tests/bench/options.h"

namespace anyorder::bench {

// Relative positions, heads of 32, no dropout and no segments.
inline ModelConfig SmallNetwork(int64_t layers, int64_t dim) {
  ModelConfig model;
  model.num_layers = layers;
  model.model_dim = dim;
  model.head_dim = 32;
  model.num_heads = std::max<int64_t>(1, dim / 32);
  model.ffn_dim = 4 * dim;
  model.mem_len = 0;
  model.segments = Segments::kNone;
  model.dropout = model.attention_dropout = 0.0;
  model.init_range = 1.0 / std::sqrt(static_cast<double>(dim));
  return model;
}

inline OptimizerConfig SmallOptimizer(double learning_rate, int64_t steps) {
  OptimizerConfig optimizer;
  optimizer.learning_rate = learning_rate;
  optimizer.warmup_steps = steps / 10;
  optimizer.weight_decay = 0.0;
  optimizer.bias_correction = true;
  return optimizer;
}

// Of experiments on drawn text, which evaluate every few steps.
struct TrainingOptions {
  int64_t seed = 1;
  int64_t steps = 1000;
  int64_t every = 100;
  int64_t dim = 64;
  int64_t layers = 2;
  int64_t lanes = 16;
  int64_t seq_len = 64;
  int64_t threads = 1;
  double learning_rate = 2e-3;

  // For ParseOptions: these and the experiment's own.
  std::vector<Option> With(std::vector<Option> own) {
    std::vector<Option> all = {
        {"--seed", &seed},       {"--steps", &steps, 1},  {"--every", &every, 1},
        {"--dim", &dim},         {"--layers", &layers},   {"--lanes", &lanes},
        {"--seq-len", &seq_len}, {"--threads", &threads}, {"--lr", &learning_rate}};
    all.insert(all.end(), own.begin(), own.end());
    return all;
  }
};

}  // namespace anyorder::bench
