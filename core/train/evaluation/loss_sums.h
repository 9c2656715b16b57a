// Sums of losses from which means, their spread and every split of them follow.
//
// A *sample* is one lane's text of one batch. Its targets share text and context, so that the
// standard error is that of a mean over clusters: targets of one sample may depend on each other in
// any way, samples are taken as independent.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/network/heads/task_result.h"
#include "core/objective/batch.h"

namespace anyorder {

struct LossSums {
  int64_t targets = 0;  // readout entries of positive weight
  int64_t samples = 0;  // samples with at least one of them, or with a divisor of their own
  double weight = 0;    // sum of their weights: `targets` where every weight is 1; or of divisors
                        // (Batch::divisors)
  double loss = 0;      // sum of weight * nll, nats
  // Sums over samples of products of a sample's own loss sum l and weight w.
  double loss_loss = 0;      // l * l
  double loss_weight = 0;    // l * w
  double weight_weight = 0;  // w * w

  // One more target of an open sample.
  void AddTarget(double target_weight, double nll) {
    ++targets;
    weight += target_weight;
    loss += target_weight * nll;
  }
  void CloseSample();               // REQUIRES: holds one sample only
  void Add(const LossSums& other);  // of other, closed samples

  double mean() const { return loss / weight; }  // nats a target; NaN without targets
  // sqrt(G / (G - 1) * sum over G samples of (l - mean * w)^2) / weight; NaN for fewer than two
  // samples.
  double standard_error() const;
};

// Sums over examples of a predicted score p and the given one g, from which their correlation
// follows.
struct ScoreSums {
  double count = 0, p = 0, g = 0, pp = 0, gg = 0, pg = 0;

  void AddPair(double predicted, double given) {
    Add({1, predicted, given, predicted * predicted, given * given, predicted * given});
  }
  void Add(const ScoreSums& other);
  // Pearson's; NaN where one of both does not vary.
  double correlation() const;
};

// Where in the text of SampleKind::kPairs a target lies.
enum class TextPart { kReuse, kA, kB };
inline constexpr int kNumTextParts = 3;
constexpr auto SpellingsOf(TextPart) { return std::array{"reuse", "A", "B"}; }

// By reading direction of the lane (0 forward, 1 backward).
struct SplitLosses {
  std::array<LossSums, 2> directions;
  std::array<std::array<LossSums, kNumTextParts>, 2> parts;  // all zero for contiguous text
  ScoreSums scores;                                          // of a head that says scores
  // Sums of TaskResult::num_judged and num_correct.
  int64_t task_judged = 0;
  int64_t task_correct = 0;
  // F1 is f1_sum / f1_weight. Spans: sum of TaskResult::span_f1, number of windows. Entities: twice
  // the correct ones, and the predicted ones plus the given ones.
  double f1_sum = 0;
  double f1_weight = 0;
  std::array<LossSums, kMaxLosses> losses;  // by Batch::loss_ids; all zero where the batch has none

  void Add(const SplitLosses& other);
  LossSums total() const;
  LossSums part(TextPart part) const;  // both directions
};

// The closed sample in lane `b` of `batch`. `losses`: Transformer::readout_losses(). reuse_len: the
// first slots are the reuse part; 0 for text without parts. `task`: where the batch has a task
// head, whose loss is one more target, of losses[0].
SplitLosses SampleLosses(const Batch& batch, const std::vector<float>& losses, int64_t b,
                         int64_t reuse_len, const TaskResult* task = nullptr);

// Adds to f1_sum and f1_weight what the words of lane `b` say whose tags are known. `classes`: the
// names of the tags (metrics/tagging.h).
void AddEntities(const Batch& batch, int64_t b, const TaskResult& task,
                 const std::vector<std::string>& classes, SplitLosses& sums);

}  // namespace anyorder
