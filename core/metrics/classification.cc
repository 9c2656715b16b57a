#include "core/metrics/classification.h"

#include <cmath>
#include <cstddef>
#include <map>

#include "core/base/check.h"

namespace anyorder::metrics {
namespace {

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

}  // namespace anyorder::metrics
