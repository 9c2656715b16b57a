#include "core/metrics/label_scores.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
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

struct ClassCounts {
  double gold = 0;
  double predicted = 0;
  double right = 0;  // both

  double F1() const { return gold + predicted == 0 ? 0 : 2 * right / (gold + predicted); }
};

// By class, in the order of their numbers. Counts are exact in double.
std::map<int32_t, ClassCounts> CountClasses(absl::Span<const int32_t> gold,
                                            absl::Span<const int32_t> predicted) {
  ANYORDER_CHECK(gold.size() == predicted.size() && !gold.empty())
      << gold.size() << " examples, " << predicted.size() << " predictions";
  std::map<int32_t, ClassCounts> counts;
  for (size_t i = 0; i < gold.size(); ++i) {
    ++counts[gold[i]].gold;
    ++counts[predicted[i]].predicted;
    if (gold[i] == predicted[i]) ++counts[gold[i]].right;
  }
  return counts;
}

}  // namespace

double Accuracy(absl::Span<const int32_t> gold, absl::Span<const int32_t> predicted) {
  double right = 0;
  for (const auto& [unused, of_class] : CountClasses(gold, predicted)) right += of_class.right;
  return right / static_cast<double>(gold.size());
}

double BinaryF1(absl::Span<const int32_t> gold, absl::Span<const int32_t> predicted,
                int32_t positive) {
  return CountClasses(gold, predicted)[positive].F1();
}

double MacroF1(absl::Span<const int32_t> gold, absl::Span<const int32_t> predicted) {
  const std::map<int32_t, ClassCounts> counts = CountClasses(gold, predicted);
  double sum = 0;
  for (const auto& [unused, of_class] : counts) sum += of_class.F1();
  return sum / static_cast<double>(counts.size());
}

double MatthewsCorrelation(absl::Span<const int32_t> gold, absl::Span<const int32_t> predicted) {
  const double total = static_cast<double>(gold.size());
  double right = 0;
  double both = 0;  // sums over classes of products of counts
  double of_gold = 0;
  double of_predicted = 0;
  for (const auto& [unused, of_class] : CountClasses(gold, predicted)) {
    right += of_class.right;
    both += of_class.gold * of_class.predicted;
    of_gold += of_class.gold * of_class.gold;
    of_predicted += of_class.predicted * of_class.predicted;
  }
  const double variances = (total * total - of_gold) * (total * total - of_predicted);
  return variances == 0 ? 0 : (right * total - both) / std::sqrt(variances);
}

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
