#include "core/network/training_flops.h"

#include <gtest/gtest.h>

#include "core/network/tensors/parameters.h"
#include "tests/testing/with_keys.h"

namespace anyorder {
namespace {

constexpr int64_t kFewWords = 1000;

ModelConfig TwoLayers() {
  return {.num_layers = 2, .model_dim = 32, .num_heads = 4, .head_dim = 8, .ffn_dim = 64};
}

// The rule of thumb, six times the parameters that are multiplied with, for each token, and the
// attention; these parameters are counted in the layout, with Llama's gates and groups of heads.
TEST(TrainingFlopsTest, IsSixTimesTheParametersAToken) {
  ModelConfig learned = TwoLayers();
  learned.positions = Positions::kLearned;
  const ModelConfig llama =
      testing::With(TwoLayers(),
                    "positions = rope, segments = none, num_kv_heads = 2, gated_ffn = true, "
                    "tie_embeddings = false");
  const BatchShape shape{
      .batch_size = 3, .content_rows = 16, .targets = 16, .content_readout = true};
  for (const ModelConfig& model : {learned, llama}) {
    int64_t multiplied = model.tie_embeddings ? model.model_dim * kFewWords : 0;
    const ParameterLayout layout(model, kFewWords);
    for (const ParameterInfo& info : layout.parameters()) {
      const bool is_matrix = info.shape.rank() >= 2 && info.shape.num_elements() >= 32 * 16;
      if (is_matrix && info.name.find("_embedding.") == std::string::npos)
        multiplied += info.shape.num_elements();
    }
    if (model.tie_embeddings) {
      EXPECT_EQ(multiplied, 2 * (4 * 32 * 32 + 2 * 32 * 64) + 32 * kFewWords);
    }
    const int64_t attention = 2 * 2 * 16 * 32;  // layers, products, keys, dims
    EXPECT_EQ(TrainingFlops(model, shape, kFewWords),
              static_cast<double>(6 * 3 * 16 * (multiplied + attention)));
  }
}

// Two streams of which the last layer computes one, memory, few targets; and windows.
TEST(TrainingFlopsTest, CountsRowsKeysAndTargetsThatAreThere) {
  ModelConfig model = TwoLayers();
  const BatchShape shape{
      .batch_size = 1, .content_rows = 16, .query_rows = 8, .memory_rows = 4, .targets = 5};
  const int64_t keys = 20;
  const auto layer = [&](int64_t rows, int64_t seen) {
    return rows * 2 * 32 * (32 + 64) + keys * 2 * 32 * 32 + rows * 2 * 32 * seen;
  };
  const int64_t head = 5 * 32 * kFewWords;
  EXPECT_EQ(TrainingFlops(model, shape, kFewWords),
            static_cast<double>(6 * (layer(24, keys) + layer(8, keys) + head)));
  model.attention_windows = "3:2";
  EXPECT_EQ(TrainingFlops(model, shape, kFewWords),
            static_cast<double>(6 * (layer(24, 6) + layer(8, 6) + head)));
}

}  // namespace
}  // namespace anyorder
