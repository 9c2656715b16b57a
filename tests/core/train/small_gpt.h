// Small runs; those of GPT are planned and checked but never trained.

#pragma once

#include <cstdint>

#include "core/train/run/run_config.h"
#include "tests/testing/with_keys.h"

namespace anyorder {

// Of `length` slots, as many positions, and a dataset "shards".
inline RunConfig SmallGpt(int64_t num_layers, int64_t length) {
  RunConfig config;
  testing::SetKeys(
      "model_dim = 8, num_heads = 2, head_dim = 4, ffn_dim = 12, mem_len = 0, positions = learned, "
      "segments = none, softmax_bias = false, bidirectional = false",
      config.model, config.sampling);
  config.model.num_layers = num_layers;
  config.model.max_positions = config.sampling.seq_len = length;
  config.objective.name = "gpt";
  config.data.shards = "shards";
  config.Resolve();
  return config;
}

// The same, fine-tuned to tell classes apart.
inline RunConfig SmallClassifier(int64_t num_layers, int64_t length, int64_t num_classes) {
  RunConfig config = SmallGpt(num_layers, length);
  config.objective.name = "gpt_finetuning";
  config.objective.num_classes = num_classes;
  config.Resolve();
  return config;
}

// Of text in one direction with memory, for runs that are trained.
inline RunConfig SmallCausalLm() {
  RunConfig config;
  testing::SetKeys(
      "num_layers = 1, model_dim = 8, num_heads = 1, head_dim = 8, ffn_dim = 16, mem_len = 8, "
      "seq_len = 16, bidirectional = false, micro_batch_size = 1",
      config.model, config.sampling, config.train);
  config.objective.name = "causal_lm";
  return config;
}

}  // namespace anyorder
