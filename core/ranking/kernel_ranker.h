// What is learned on top of kernel pooling, and how: a score of eleven weights and a bias (Xiong et
// al. 2017, equations 2 and 9), by pairs of documents of which assessors found one the better.
//
// Features of frozen token states never change, so that learning is over twelve numbers and takes
// seconds. All of it is in double, in one thread, and a function of its arguments.

#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "core/ranking/kernel_pooling.h"

namespace anyorder {

struct KernelRanker {
  KernelFeatures weights{};
  double bias = 0;

  // tanh(weights . features + bias), in (-1, 1).
  double Score(const KernelFeatures& features) const;
};

// A query's documents, in the order of the first stage.
struct RankingQuery {
  std::vector<KernelFeatures> features;
  std::vector<int32_t> grades;  // of each; larger is better
};

// The mean over `pairs` (better, worse) of max(0, 1 - Score(better) + Score(worse)). `gradient`, of
// the weights, then the bias, may be null.
using RankerGradient = std::array<double, kNumKernels + 1>;
using DocumentPair = std::pair<const KernelFeatures*, const KernelFeatures*>;
double PairwiseHingeLoss(const KernelRanker& ranker, const std::vector<DocumentPair>& pairs,
                         RankerGradient* gradient);

struct RankerOptions {
  int64_t max_steps = 20000;
  int64_t batch_pairs = 64;
  double learning_rate = 0.01;  // Adam's (beta 0.9, 0.999, epsilon 1e-8), constant
  int64_t eval_every = 100;     // steps
  int64_t patience = 20;        // evaluations without a smaller loss that end the training
  uint64_t seed = 1;
};

struct TrainedRanker {
  KernelRanker ranker;  // of the evaluation with the smallest loss
  int64_t step = 0;     // that one
  int64_t num_steps = 0;
  // The mean of its PairwiseHingeLoss over those validation queries that have pairs.
  double validation_loss = 0;
};

// Begins with zeros. Each pair of a step's batch is of a query of `learning` that is drawn among
// those with documents of different grades, and drawn among that query's pairs: long lists count no
// more than short ones. FailedPrecondition if either set of queries has no such pair.
absl::StatusOr<TrainedRanker> TrainRanker(const std::vector<RankingQuery>& queries,
                                          const std::vector<int64_t>& learning,
                                          const std::vector<int64_t>& validation,
                                          const RankerOptions& options);

// Queries in a random order, dealt out to `folds` in turn: the queries of each, ascending.
std::vector<std::vector<int64_t>> DealFolds(int64_t num_queries, int64_t folds, uint64_t seed);

// Cross-validation: the ranker that may score the queries of fold `fold` learned from all folds but
// that one and the next, which stopped it. With `fold` -1 no fold is spared, and the last one stops
// it.
absl::StatusOr<TrainedRanker> TrainForFold(const std::vector<RankingQuery>& queries,
                                           const std::vector<std::vector<int64_t>>& folds,
                                           int64_t fold, const RankerOptions& options);

}  // namespace anyorder
