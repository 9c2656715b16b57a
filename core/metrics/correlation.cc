#include "core/metrics/correlation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "core/base/check.h"

namespace anyorder::metrics {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

bool AreFinite(absl::Span<const double> values) {
  return std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
}

bool AreEqual(absl::Span<const double> values) {
  return std::all_of(values.begin(), values.end(), [&](double v) { return v == values[0]; });
}

long double MeanOf(absl::Span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0L) /
         static_cast<long double>(values.size());
}

}  // namespace

double PearsonCorrelation(absl::Span<const double> x, absl::Span<const double> y) {
  ANYORDER_CHECK(x.size() == y.size()) << x.size() << " and " << y.size() << " values";
  // A constant's mean may round to another number, so that this is no case of the sums being zero.
  if (x.size() < 2 || !AreFinite(x) || !AreFinite(y) || AreEqual(x) || AreEqual(y))
    return kUndefined;
  const long double mean_x = MeanOf(x);
  const long double mean_y = MeanOf(y);
  long double xx = 0;
  long double yy = 0;
  long double xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const long double dx = x[i] - mean_x;
    const long double dy = y[i] - mean_y;
    xx += dx * dx;
    yy += dy * dy;
    xy += dx * dy;
  }
  return static_cast<double>(std::clamp(xy / (std::sqrt(xx) * std::sqrt(yy)), -1.0L, 1.0L));
}

double SpearmanCorrelation(absl::Span<const double> x, absl::Span<const double> y) {
  if (!AreFinite(x) || !AreFinite(y)) return kUndefined;
  return PearsonCorrelation(AverageRanks(x), AverageRanks(y));
}

std::vector<double> AverageRanks(absl::Span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    // Ranks begin + 1 to end.
    const double average = 0.5 * static_cast<double>(begin + 1 + end);
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = average;
  }
  return ranks;
}

}  // namespace anyorder::metrics
