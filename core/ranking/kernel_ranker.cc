#include "core/ranking/kernel_ranker.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/philox.h"
#include "core/base/status.h"

namespace anyorder {
namespace {

constexpr uint64_t kFoldsStep = 0;  // of draws; training steps are from 1 on

std::vector<DocumentPair> PairsOf(const RankingQuery& query) {
  std::vector<DocumentPair> pairs;
  for (size_t i = 0; i < query.grades.size(); ++i)
    for (size_t j = 0; j < query.grades.size(); ++j)
      if (query.grades[i] > query.grades[j])
        pairs.emplace_back(&query.features[i], &query.features[j]);
  return pairs;
}

// Of those queries that have any.
std::vector<std::vector<DocumentPair>> PairsOf(const std::vector<RankingQuery>& queries,
                                               const std::vector<int64_t>& chosen) {
  std::vector<std::vector<DocumentPair>> all;
  for (const int64_t query : chosen) {
    std::vector<DocumentPair> pairs = PairsOf(queries[static_cast<size_t>(query)]);
    if (!pairs.empty()) all.push_back(std::move(pairs));
  }
  return all;
}

double MeanLoss(const KernelRanker& ranker, const std::vector<std::vector<DocumentPair>>& queries) {
  double sum = 0;
  for (const std::vector<DocumentPair>& pairs : queries)
    sum += PairwiseHingeLoss(ranker, pairs, nullptr);
  return sum / static_cast<double>(queries.size());
}

// Kingma and Ba 2015, algorithm 1.
class RankerAdam {
 public:
  void Update(const RankerGradient& gradient, double learning_rate, KernelRanker& ranker) {
    ++step_;
    const double correction1 = 1 - std::pow(kBeta1, step_);
    const double correction2 = 1 - std::pow(kBeta2, step_);
    for (size_t p = 0; p < gradient.size(); ++p) {
      first_[p] = kBeta1 * first_[p] + (1 - kBeta1) * gradient[p];
      second_[p] = kBeta2 * second_[p] + (1 - kBeta2) * gradient[p] * gradient[p];
      double& parameter = p < ranker.weights.size() ? ranker.weights[p] : ranker.bias;
      parameter -= learning_rate * (first_[p] / correction1) /
                   (std::sqrt(second_[p] / correction2) + kEpsilon);
    }
  }

 private:
  static constexpr double kBeta1 = 0.9;
  static constexpr double kBeta2 = 0.999;
  static constexpr double kEpsilon = 1e-8;
  double step_ = 0;
  RankerGradient first_{};
  RankerGradient second_{};
};

}  // namespace

double KernelRanker::Score(const KernelFeatures& features) const {
  double sum = bias;
  for (size_t k = 0; k < features.size(); ++k) sum += weights[k] * features[k];
  return std::tanh(sum);
}

double PairwiseHingeLoss(const KernelRanker& ranker, const std::vector<DocumentPair>& pairs,
                         RankerGradient* gradient) {
  const auto count = static_cast<double>(pairs.size());
  if (gradient != nullptr) gradient->fill(0);
  double loss = 0;
  for (const auto& [better, worse] : pairs) {
    const double high = ranker.Score(*better);
    const double low = ranker.Score(*worse);
    const double margin = 1 - high + low;
    if (margin <= 0) continue;
    loss += margin;
    if (gradient == nullptr) continue;
    // tanh' = 1 - tanh^2.
    const double dhigh = -(1 - high * high) / count;
    const double dlow = (1 - low * low) / count;
    for (size_t k = 0; k < better->size(); ++k)
      (*gradient)[k] += dhigh * (*better)[k] + dlow * (*worse)[k];
    gradient->back() += dhigh + dlow;
  }
  return loss / count;
}

absl::StatusOr<TrainedRanker> TrainRanker(const std::vector<RankingQuery>& queries,
                                          const std::vector<int64_t>& learning,
                                          const std::vector<int64_t>& validation,
                                          const RankerOptions& options) {
  const std::vector<std::vector<DocumentPair>> learned = PairsOf(queries, learning);
  const std::vector<std::vector<DocumentPair>> held_out = PairsOf(queries, validation);
  for (const bool is_learning : {true, false}) {
    if (!(is_learning ? learned : held_out).empty()) continue;
    return FailedPrecondition(
        "none of the ", (is_learning ? learning : validation).size(), " topics ",
        is_learning ? "to learn from" : "that stop the training",
        " has ranked documents of different grades; judge more documents, or use fewer folds");
  }
  KernelRanker ranker;
  RankerAdam adam;
  TrainedRanker best{.ranker = ranker, .validation_loss = MeanLoss(ranker, held_out)};
  int64_t step = 0;
  int64_t since_best = 0;
  while (step < options.max_steps && since_best < options.patience) {
    RandomStream random(options.seed, RandomPurpose::kExamples, static_cast<uint64_t>(++step), 0);
    std::vector<DocumentPair> batch;
    for (int64_t n = 0; n < options.batch_pairs; ++n) {
      const std::vector<DocumentPair>& pairs = learned[random.Below64(learned.size())];
      batch.push_back(pairs[random.Below64(pairs.size())]);
    }
    RankerGradient gradient;
    PairwiseHingeLoss(ranker, batch, &gradient);
    adam.Update(gradient, options.learning_rate, ranker);
    if (step % options.eval_every != 0 && step != options.max_steps) continue;
    const double loss = MeanLoss(ranker, held_out);
    ++since_best;
    if (!(loss < best.validation_loss)) continue;
    best = {.ranker = ranker, .step = step, .validation_loss = loss};
    since_best = 0;
  }
  best.num_steps = step;
  return best;
}

std::vector<std::vector<int64_t>> DealFolds(int64_t num_queries, int64_t folds, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(num_queries));
  std::iota(order.begin(), order.end(), int64_t{0});
  RandomStream random(seed, RandomPurpose::kExamples, kFoldsStep, 0);
  DrawFirst(num_queries - 1, random, order.begin(), order.end());
  std::vector<std::vector<int64_t>> dealt(static_cast<size_t>(folds));
  for (size_t i = 0; i < order.size(); ++i) dealt[i % dealt.size()].push_back(order[i]);
  for (std::vector<int64_t>& fold : dealt) std::sort(fold.begin(), fold.end());
  return dealt;
}

absl::StatusOr<TrainedRanker> TrainForFold(const std::vector<RankingQuery>& queries,
                                           const std::vector<std::vector<int64_t>>& folds,
                                           int64_t fold, const RankerOptions& options) {
  const auto count = static_cast<int64_t>(folds.size());
  const int64_t stopping = fold < 0 ? count - 1 : (fold + 1) % count;
  std::vector<int64_t> learning;
  for (int64_t f = 0; f < count; ++f) {
    const std::vector<int64_t>& queries_of_fold = folds[static_cast<size_t>(f)];
    if (f != fold && f != stopping)
      learning.insert(learning.end(), queries_of_fold.begin(), queries_of_fold.end());
  }
  return TrainRanker(queries, learning, folds[static_cast<size_t>(stopping)], options);
}

}  // namespace anyorder
