#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/reference/operations.h"

namespace anyorder::kernels::reference {

namespace {

// One row's loss and its derivatives by the logits.
struct RowLoss {
  double loss = 0;
  std::vector<double> derivatives;
};

RowLoss Softmax(const HeadLossArgs& args, int64_t row, const std::vector<double>& logits) {
  const auto columns = static_cast<int64_t>(logits.size());
  std::vector<int64_t> valid;
  for (int64_t c = 0; c < columns; ++c) {
    if (args.valid == nullptr || args.valid[row * columns + c] != 0) valid.push_back(c);
  }
  double largest = -INFINITY;
  for (const int64_t c : valid) largest = std::max(largest, logits[c]);
  double sum = 0;
  for (const int64_t c : valid) sum += std::exp(logits[c] - largest);
  RowLoss result{0, std::vector<double>(logits.size(), 0.0)};
  for (const int64_t c : valid) {
    const double log_probability = logits[c] - largest - std::log(sum);
    const double target = (c == args.labels[row] ? 1 - args.smoothing : 0.0) +
                          args.smoothing / static_cast<double>(valid.size());
    if (target > 0) result.loss -= target * log_probability;
    result.derivatives[c] = std::exp(log_probability) - target;
  }
  return result;
}

RowLoss Sigmoid(double logit, int32_t label) {
  const double sign = label == 0 ? 1 : -1;
  const double s = sign * logit;
  return {std::max(s, 0.0) + std::log1p(std::exp(-std::fabs(s))), {sign / (1 + std::exp(-s))}};
}

RowLoss LossOf(const HeadLossArgs& args, int64_t row, const std::vector<double>& logits) {
  if (args.row_weights[row] == 0.0f) return {0, std::vector<double>(logits.size(), 0.0)};
  switch (args.kind) {
    case HeadLossKind::kSoftmax: return Softmax(args, row, logits);
    case HeadLossKind::kSigmoid: return Sigmoid(logits[0], args.labels[row]);
    case HeadLossKind::kSquaredError: break;
  }
  const double difference = logits[0] - args.targets[row];
  return {difference * difference, {2 * difference}};
}

}  // namespace

void Run(const HeadLossArgs& args) {
  WithStorage(args.logits.dtype(), [&]<typename T>() {
    const int64_t columns = NumColumns(args.logits);
    std::vector<double> logits(columns);
    for (int64_t r = 0; r < NumRows(args.logits); ++r) {
      const T* x = args.logits.data<T>() + r * columns;
      for (int64_t c = 0; c < columns; ++c) logits[c] = Load(x[c]);
      const RowLoss row = LossOf(args, r, logits);
      args.loss.data<GradientOf<T>>()[r] = Round<GradientOf<T>>(row.loss);
      if (args.dlogits.is_null()) continue;
      const double weight = args.row_weights[r];
      T* d = args.dlogits.data<T>() + r * columns;
      for (int64_t c = 0; c < columns; ++c) d[c] = Round<T>(weight * row.derivatives[c]);
    }
  });
}

}  // namespace anyorder::kernels::reference
