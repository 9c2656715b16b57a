#include "core/train/evaluation/causal_score.h"

#include <algorithm>
#include <memory>

#include "core/base/status.h"
#include "core/network/transformer.h"

namespace anyorder {
namespace {

void AddSegment(const CausalWalk& walk, int64_t segment, const Batch& batch,
                const std::vector<float>& losses, CausalScore& score) {
  const int64_t length = batch.shape.targets;
  for (int64_t b = 0; b < batch.shape.batch_size; ++b) {
    score.losses.Add(SampleLosses(batch, losses, b, /*reuse_len=*/0).total());
    for (int64_t t = 0; t < length; ++t) {
      if (batch.weights[b * length + t] == 0) continue;
      const int64_t context = walk.ContextOf(segment, t);
      score.context_sum += static_cast<double>(context);
      score.context_min = std::min(score.context_min, context);
      ++score.label_counts[batch.labels[b * length + t]];
    }
  }
}

}  // namespace

absl::StatusOr<CausalScore> ScoreCausally(const CausalWalk& walk, const ModelConfig& model,
                                          ConstTensorView weights, int64_t vocab_size,
                                          int64_t max_segments, kernels::Backend& backend) {
  const BatchShape shape = walk.Shape();
  ANYORDER_ASSIGN_OR_RETURN(const std::unique_ptr<Transformer> network,
                            Transformer::Create(model, vocab_size, shape, backend));
  ANYORDER_ASSIGN_OR_RETURN(MemoryRing memory,
                            MemoryRing::Create(model, shape, shape.batch_size, backend));
  CausalScore score;
  score.context_min = shape.num_keys();
  score.label_counts.assign(static_cast<size_t>(vocab_size), 0);
  const int64_t segments =
      max_segments > 0 ? std::min(max_segments, walk.num_segments()) : walk.num_segments();
  for (int64_t segment = 0; segment < segments; ++segment) {
    ANYORDER_ASSIGN_OR_RETURN(const Batch batch, walk.Segment(segment));
    StepArgs args;
    args.batch = &batch;
    args.weights = weights;
    args.memory = memory.View(0, shape.batch_size);
    args.training = false;
    network->Run(args, {});
    memory.Advance();
    AddSegment(walk, segment, batch, network->readout_losses(), score);
  }
  return score;
}

}  // namespace anyorder
