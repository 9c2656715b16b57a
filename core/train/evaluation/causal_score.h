// Likelihood of a whole text from left to right: what perplexity is made of. Without dropout.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/tensor.h"
#include "core/config/model_config.h"
#include "core/train/evaluation/causal_walk.h"
#include "core/train/evaluation/loss_sums.h"
#include "kernels/backend.h"

namespace anyorder {

struct CausalScore {
  LossSums losses;                    // a sample is one segment of one lane
  double context_sum = 0;             // over targets: keys that the prediction attends to directly
  int64_t context_min = 0;            // the smallest of them
  std::vector<int64_t> label_counts;  // [vocab_size] how often each token was predicted
};

// Scores the first `max_segments` segments of `walk`, all if 0. `model`: the one that `walk` was
// made with; `weights` as in StepArgs.
// Errors: the text's, the network's.
absl::StatusOr<CausalScore> ScoreCausally(const CausalWalk& walk, const ModelConfig& model,
                                          ConstTensorView weights, int64_t vocab_size,
                                          int64_t max_segments, kernels::Backend& backend);

}  // namespace anyorder
