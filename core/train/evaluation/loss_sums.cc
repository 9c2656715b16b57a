#include "core/train/evaluation/loss_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "core/metrics/tagging.h"

namespace anyorder {
namespace {

TextPart PartOf(const Batch& batch, int32_t row, int64_t reuse_len) {
  if (batch.row_pos[row] < reuse_len) return TextPart::kReuse;
  return batch.row_seg[row] == 0 ? TextPart::kA : TextPart::kB;
}

}  // namespace

void LossSums::CloseSample() {
  ANYORDER_CHECK(samples == 0) << samples << " samples are closed";
  if (weight == 0) return;
  samples = 1;
  loss_loss = loss * loss;
  loss_weight = loss * weight;
  weight_weight = weight * weight;
}

void LossSums::Add(const LossSums& other) {
  targets += other.targets;
  samples += other.samples;
  weight += other.weight;
  loss += other.loss;
  loss_loss += other.loss_loss;
  loss_weight += other.loss_weight;
  weight_weight += other.weight_weight;
}

double LossSums::standard_error() const {
  if (samples < 2) return std::numeric_limits<double>::quiet_NaN();
  const double m = mean();
  const double squares = loss_loss - 2 * m * loss_weight + m * m * weight_weight;
  const auto groups = static_cast<double>(samples);
  return std::sqrt(std::max(0.0, squares) * groups / (groups - 1)) / weight;
}

void ScoreSums::Add(const ScoreSums& other) {
  count += other.count;
  p += other.p;
  g += other.g;
  pp += other.pp;
  gg += other.gg;
  pg += other.pg;
}

double ScoreSums::correlation() const {
  const double variances = (count * pp - p * p) * (count * gg - g * g);
  return variances > 0 ? (count * pg - p * g) / std::sqrt(variances)
                       : std::numeric_limits<double>::quiet_NaN();
}

void SplitLosses::Add(const SplitLosses& other) {
  task_judged += other.task_judged;
  task_correct += other.task_correct;
  f1_sum += other.f1_sum;
  f1_weight += other.f1_weight;
  scores.Add(other.scores);
  for (size_t i = 0; i < losses.size(); ++i) losses[i].Add(other.losses[i]);
  for (int direction : {0, 1}) {
    directions[direction].Add(other.directions[direction]);
    for (int part = 0; part < kNumTextParts; ++part)
      parts[direction][part].Add(other.parts[direction][part]);
  }
}

LossSums SplitLosses::total() const {
  LossSums sums = directions[0];
  sums.Add(directions[1]);
  return sums;
}

LossSums SplitLosses::part(TextPart part) const {
  LossSums sums = parts[0][static_cast<int>(part)];
  sums.Add(parts[1][static_cast<int>(part)]);
  return sums;
}

SplitLosses SampleLosses(const Batch& batch, const std::vector<float>& losses, int64_t b,
                         int64_t reuse_len, const TaskResult* task) {
  SplitLosses sums;
  const int32_t direction = batch.direction[b];
  for (int64_t i = b * batch.shape.targets; i < (b + 1) * batch.shape.targets; ++i) {
    const double weight = batch.weights[i];
    if (weight == 0) continue;
    sums.directions[direction].AddTarget(weight, losses[i]);
    if (!batch.loss_ids.empty())
      sums.losses[static_cast<size_t>(batch.loss_ids[i])].AddTarget(weight, losses[i]);
    if (reuse_len == 0) continue;
    const TextPart part = PartOf(batch, batch.readout_rows[i], reuse_len);
    sums.parts[direction][static_cast<int>(part)].AddTarget(weight, losses[i]);
  }
  if (task != nullptr && batch.task_weights[b] > 0) {
    sums.directions[direction].AddTarget(batch.task_weights[b], task->loss);
    sums.losses[0].AddTarget(batch.task_weights[b], task->loss);
    sums.task_judged = task->num_judged;
    sums.task_correct = task->num_correct;
    if (batch.shape.has_spans) {
      sums.f1_sum = task->span_f1;
      sums.f1_weight = 1;
    }
    const bool is_score = task->num_judged == 0 && task->logits.size() == 1;
    if (is_score) sums.scores.AddPair(task->logits[0], batch.task_scores[b]);
  }
  if (batch.shape.own_divisor) {
    // A lane without a divisor, as an example without label, counts in its named losses only.
    if (batch.divisors[b] == 0) sums.directions[direction] = {};
    sums.directions[direction].weight = batch.divisors[b];
  }
  sums.directions[direction].CloseSample();
  for (LossSums& loss : sums.losses) loss.CloseSample();
  for (LossSums& part : sums.parts[direction]) part.CloseSample();
  return sums;
}

void AddEntities(const Batch& batch, int64_t b, const TaskResult& task,
                 const std::vector<std::string>& classes, SplitLosses& sums) {
  std::vector<std::string> predicted, given;
  size_t word = 0;
  for (int64_t row = b * batch.shape.task_rows; row < (b + 1) * batch.shape.task_rows; ++row) {
    if (batch.task_valid[row] == 0) continue;
    const int32_t likeliest = task.tags[word++];
    if (batch.task_tags[row] < 0) continue;
    predicted.push_back(classes[static_cast<size_t>(likeliest)]);
    given.push_back(classes[static_cast<size_t>(batch.task_tags[row])]);
  }
  const metrics::EntityCounts counts = metrics::CountEntities(predicted, given);
  sums.f1_sum += 2 * static_cast<double>(counts.shared);
  sums.f1_weight += static_cast<double>(counts.predicted + counts.given);
}

}  // namespace anyorder
