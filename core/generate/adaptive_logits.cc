#include "core/generate/adaptive_logits.h"

#include <algorithm>
#include <cmath>

#include "core/base/status.h"
#include "core/network/layers/operations.h"

namespace anyorder {
namespace {

template <typename T>
double LogSum(const T* scores, int64_t count) {
  const T largest = *std::max_element(scores, scores + count);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(scores[i] - largest));
  return static_cast<double>(largest) + std::log(sum);
}

// log p = log softmax_head(w), or log softmax_head(cluster) + log softmax_cluster(w).
template <typename T>
void Join(const std::vector<AdaptiveCluster>& clusters, const std::vector<HostCopy>& scores,
          TensorView logits) {
  const int64_t vocab_size = logits.dim(1);
  for (int64_t row = 0; row < logits.dim(0); ++row) {
    const int64_t head_entries = scores[0].view().dim(1);
    const T* const head = scores[0].view().data<T>() + row * head_entries;
    const double head_sum = LogSum(head, head_entries);
    for (size_t c = 0; c < clusters.size(); ++c) {
      const AdaptiveCluster& cluster = clusters[c];
      const T* const words = scores[c].view().data<T>() + row * scores[c].view().dim(1);
      double before = -head_sum;
      if (c > 0) {
        const int64_t entry = clusters[0].size() + static_cast<int64_t>(c) - 1;
        before += static_cast<double>(head[entry]) - LogSum(words, cluster.size());
      }
      T* const out = logits.data<T>() + row * vocab_size + cluster.begin;
      for (int64_t i = 0; i < cluster.size(); ++i)
        out[i] = static_cast<T>(before + static_cast<double>(words[i]));
    }
  }
}

}  // namespace

absl::Status AdaptiveLogits::Allocate(const NetworkShape& shape, int64_t rows,
                                      kernels::Backend& backend) {
  if (!shape.model.adaptive()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckAdaptiveClusters(shape.model, shape.vocab_size));
  clusters_ = AdaptiveClusters(shape.model, shape.vocab_size);
  const DType dtype = shape.gradient_dtype();
  const auto num_tails = static_cast<int64_t>(clusters_.size()) - 1;
  ASSIGN_OR_RETURN(storage_,
                   backend.Allocate(rows * (shape.vocab_size + num_tails) * SizeOf(dtype)));
  char* place = static_cast<char*>(storage_->data());
  for (const AdaptiveCluster& cluster : clusters_) {
    scores_.emplace_back(place, dtype, Shape{rows, cluster.classes});
    place += scores_.back().num_bytes();
  }
  fetched_.resize(scores_.size());
  return absl::OkStatus();
}

void AdaptiveLogits::Run(const StepContext& context, ConstTensorView x, TensorView logits) {
  for (size_t c = 0; c < clusters_.size(); ++c) {
    const ClusterTensors<ConstTensorView>& cluster = context.weights.clusters[c];
    ConstTensorView input = x;
    if (!cluster.output_projection.is_null()) {
      const TensorView narrow =
          context.activations.cluster_narrow.Slice(0, {x.dim(0), cluster.table.dim(1)});
      context.backend.Gemm({.a = x, .b = cluster.output_projection, .c = narrow}, context.stream);
      input = narrow;
    }
    const TensorView scores = scores_[c].Slice(0, {x.dim(0), scores_[c].dim(1)});
    Dense(context, input, cluster.table, cluster.bias, scores);
    fetched_[c].Fetch(scores, context.backend, context.stream);
  }
  context.backend.Synchronize(context.stream);
  if (logits.dtype() == DType::kFloat64) {
    Join<double>(clusters_, fetched_, logits);
  } else {
    Join<float>(clusters_, fetched_, logits);
  }
}

}  // namespace anyorder
