#include "core/network/training_flops.h"

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/config/adaptive_clusters.h"
#include "core/config/attention_windows.h"

namespace anyorder {
namespace {

// Of `keys` those that a row sees at most.
int64_t KeysInWindow(const kernels::Band& band, int64_t keys) {
  const int64_t left = band.left < 0 ? keys : band.left;
  const int64_t right = band.right < 0 ? keys : band.right;
  return std::min(keys, left + right + 1);
}

}  // namespace

double TrainingFlops(const ModelConfig& model, const BatchShape& shape, int64_t vocab_size) {
  const auto windows = AttentionWindows(model);
  ANYORDER_CHECK(windows.ok()) << windows.status();
  const int64_t heads_dim = model.num_heads * model.head_dim;
  const int64_t keys_dim = model.kv_heads() * model.head_dim;
  const int64_t ffn_products = (model.gated_ffn ? 3 : 2) * model.ffn_dim;
  const int64_t keys = shape.num_own_keys();
  // Multiply-adds of a lane: of projections, of which an adapter's own are too few to count, of
  // attention, and of the readout.
  int64_t projected = 0;
  int64_t attended = 0;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const bool is_last = layer + 1 == model.num_layers;
    const bool has_content = !is_last || shape.query_rows == 0 || shape.content_readout;
    const int64_t rows = (has_content ? shape.content_rows : 0) + shape.query_rows;
    projected += rows * model.model_dim * (2 * heads_dim + ffn_products) +
                 keys * 2 * model.model_dim * keys_dim;
    for (int64_t head = 0; head < model.num_heads; ++head) {
      const int64_t seen =
          windows->empty() ? keys : KeysInWindow((*windows)[layer * model.num_heads + head], keys);
      attended += rows * 2 * model.head_dim * seen;
    }
  }
  const std::vector<AdaptiveCluster> clusters = AdaptiveClusters(model, vocab_size);
  const int64_t readout =
      shape.targets * model.model_dim * (clusters.empty() ? vocab_size : clusters[0].classes);
  constexpr int64_t kTrained = 3 * 2;  // forward, and backward to weights and input
  constexpr int64_t kFrozen = 2 * 2;
  const bool trains_readout = model.lora.Trains(
      model.tie_embeddings ? "transformer.word_embedding.weight" : "lm_loss.weight");
  const int64_t flops = (model.lora.is_on() ? kFrozen : kTrained) * projected +
                        kTrained * attended + (trains_readout ? kTrained : kFrozen) * readout;
  return static_cast<double>(shape.batch_size) * static_cast<double>(flops);
}

}  // namespace anyorder
