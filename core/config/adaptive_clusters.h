// How an adaptive softmax cuts the vocabulary (Grave et al. 2017; Baevski & Auli 2019;
// Transformer-XL's released code).
//
// Ids stand in order of frequency. Ids below the first cutoff are the head, whose words compete
// with n clusters of rarer words:
//   log p(w) = log softmax_head(w)                            w in the head
//   log p(w) = log softmax_head(cluster of w) + log softmax_cluster(w)   otherwise
// Cluster i has embeddings of model_dim / div_val^i; with div_val > 1 each cluster, the head too,
// has a projection between that size and model_dim. The same tables are the input embedding and the
// softmax weights.

#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"

#include "core/config/model_config.h"

namespace anyorder {

struct AdaptiveCluster {
  int64_t begin = 0;  // ids [begin, end)
  int64_t end = 0;
  int64_t dim = 0;      // of its embeddings
  int64_t classes = 0;  // of its softmax: its words and, in the head, the other clusters

  int64_t size() const { return end - begin; }
};

// InvalidArgument for cutoffs that are no increasing positive numbers, that are given without an
// adaptive softmax or missing with one, for a div_val that leaves a cluster no dimension, and for a
// cluster without a word of `vocab_size`, where that is known.
absl::Status CheckAdaptiveClusters(const ModelConfig& model,
                                   int64_t vocab_size = std::numeric_limits<int64_t>::max());

// Head first; empty without an adaptive softmax. REQUIRES: CheckAdaptiveClusters(model,
// vocab_size).ok().
std::vector<AdaptiveCluster> AdaptiveClusters(const ModelConfig& model, int64_t vocab_size);

}  // namespace anyorder
