#include "core/metrics/ranking.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/base/check.h"

namespace anyorder::metrics {
namespace {

double GainOf(int32_t grade, NdcgGain gain) {
  if (grade <= 0) return 0;
  return gain == NdcgGain::kLinear ? grade : std::ldexp(1.0, grade) - 1;
}

// The logarithm that the tool takes: its base cancels in the quotient, its rounding does not.
double Discount(size_t rank, NdcgGain gain) {
  const double value = static_cast<double>(rank + 2);
  return gain == NdcgGain::kLinear ? std::log2(value) : std::log(value);
}

double Dcg(absl::Span<const int32_t> ranked, size_t depth, NdcgGain gain) {
  double sum = 0;
  for (size_t rank = 0; rank < std::min(depth, ranked.size()); ++rank)
    sum += GainOf(ranked[rank], gain) / Discount(rank, gain);
  return sum;
}

}  // namespace

std::vector<size_t> RankingOrder(absl::Span<const double> scores,
                                 absl::Span<const std::string> ids) {
  ANYORDER_CHECK(scores.size() == ids.size()) << scores.size() << " scores of " << ids.size();
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : ids[a] > ids[b];
  });
  return order;
}

double Ndcg(absl::Span<const int32_t> ranked, absl::Span<const int32_t> judged, size_t depth,
            NdcgGain gain) {
  std::vector<int32_t> best(judged.begin(), judged.end());
  std::sort(best.begin(), best.end(), std::greater<>());
  const double ideal = Dcg(best, depth, gain);
  return ideal == 0 ? 0 : Dcg(ranked, depth, gain) / ideal;
}

double ExpectedReciprocalRank(absl::Span<const int32_t> ranked, size_t depth, int32_t max_grade) {
  double sum = 0;
  double goes_on = 1;  // probability that the reader comes to this rank
  for (size_t rank = 0; rank < std::min(depth, ranked.size()); ++rank) {
    ANYORDER_CHECK(ranked[rank] <= max_grade) << "grade " << ranked[rank];
    const double stops = GainOf(ranked[rank], NdcgGain::kExponential) / std::ldexp(1.0, max_grade);
    sum += stops * goes_on / static_cast<double>(rank + 1);
    goes_on *= 1 - stops;
  }
  return sum;
}

double AveragePrecision(absl::Span<const int32_t> ranked, size_t num_relevant) {
  double sum = 0;
  double found = 0;
  for (size_t rank = 0; rank < ranked.size(); ++rank) {
    if (ranked[rank] <= 0) continue;
    ++found;
    sum += found / static_cast<double>(rank + 1);
  }
  return num_relevant == 0 ? 0 : sum / static_cast<double>(num_relevant);
}

}  // namespace anyorder::metrics
