// FLOPs that a step needs, against the rule of thumb.

#include <gtest/gtest.h>

#include "core/network/tensors/parameters.h"
#include "core/train/plan/run_cost.h"
#include "tests/testing/with_keys.h"

namespace anyorder {
namespace {

constexpr int64_t kFewWords = 1000;

// Three sequences of 16 tokens, in two microbatches.
RunConfig Gpt(const std::string& model) {
  RunConfig config;
  config.model = testing::With(
      ModelConfig{.num_layers = 2, .model_dim = 32, .num_heads = 4, .head_dim = 8, .mem_len = 0},
      model);
  config.objective.name = "gpt";
  config.sampling.seq_len = 16;
  config.sampling.bidirectional = false;
  config.train.global_batch_size = 6;
  config.train.micro_batch_size = 3;
  return config;
}

// Six times the parameters that are multiplied with, for each token, and the attention; these
// parameters are counted in the layout, with Llama's gates and groups of heads.
TEST(NeededFlopsTest, AreSixTimesTheParametersAToken) {
  const std::string learned = "ffn_dim = 64, positions = learned, segments = none";
  const std::string llama =
      "ffn_dim = 64, positions = rope, segments = none, num_kv_heads = 2, gated_ffn = true, "
      "tie_embeddings = false";
  for (const std::string& keys : {learned, llama}) {
    RunConfig config = Gpt(keys);
    int64_t multiplied = config.model.tie_embeddings ? config.model.model_dim * kFewWords : 0;
    const ParameterLayout layout(config.model, kFewWords);
    for (const ParameterInfo& info : layout.parameters()) {
      const bool is_matrix = info.shape.rank() >= 2 && info.shape.num_elements() >= 32 * 16;
      if (is_matrix && info.name.find("_embedding.") == std::string::npos)
        multiplied += info.shape.num_elements();
    }
    if (config.model.tie_embeddings) {
      EXPECT_EQ(multiplied, 2 * (4 * 32 * 32 + 2 * 32 * 64) + 32 * kFewWords);
    }
    const int64_t attention = 2 * 2 * 16 * 32;  // layers, products, keys, dims
    const auto flops = static_cast<double>(6 * 6 * 16 * (multiplied + attention));
    EXPECT_EQ(NeededFlops(config, kFewWords).value(), flops);
    // What is computed again is not needed.
    config.train.recompute = Recompute::kLayer;
    EXPECT_EQ(NeededFlops(config, kFewWords).value(), flops);
    // Of 16 keys a row sees 6, of those before it and itself.
    config.model.attention_windows = "5:0";
    EXPECT_EQ(NeededFlops(config, kFewWords).value(), flops - 6.0 * 6 * 16 * 2 * 2 * 10 * 32);
  }
}

}  // namespace
}  // namespace anyorder
