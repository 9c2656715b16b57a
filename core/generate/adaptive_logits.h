// Log-probabilities of all words under an adaptive softmax (core/config/adaptive_clusters.h).
// Training multiplies a row with its label's cluster alone; to choose the next word takes
// all of them.

#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "core/config/adaptive_clusters.h"
#include "core/network/tensors/host_copy.h"
#include "core/network/tensors/step_context.h"

namespace anyorder {

class AdaptiveLogits {
 public:
  // For at most `rows` rows at once. Nothing for a model without an adaptive softmax.
  absl::Status Allocate(const NetworkShape& shape, int64_t rows, kernels::Backend& backend);
  // x [n, d] T; writes log p of each word to logits [n, V] G, in the host's memory. Waits for it.
  void Run(const StepContext& context, ConstTensorView x, TensorView logits);

 private:
  std::vector<AdaptiveCluster> clusters_;
  std::unique_ptr<kernels::Buffer> storage_;
  std::vector<TensorView> scores_;  // of each cluster, [rows, words] G; the head's are followed by
                                    // those of the other clusters
  std::vector<HostCopy> fetched_;   // those
};

}  // namespace anyorder
