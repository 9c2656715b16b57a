#include "core/train/run/stop_budget.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace anyorder {
namespace {

constexpr double kMargin = 1.5;

// The smallest value that 99 of 100 do not exceed.
double Percentile99(std::vector<double> values) {
  const auto index = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(values.size()))) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index),
                   values.end());
  return values[index];
}

}  // namespace

double StopBudget::Seconds() const {
  if (step_seconds_.empty() || commit_seconds_.empty()) return 0;
  return kMargin * (Percentile99(step_seconds_) + Percentile99(commit_seconds_)) + kEndSeconds;
}

}  // namespace anyorder
