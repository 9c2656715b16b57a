#include "launcher/likelihood/text_measures.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <unordered_set>

namespace anyorder::launcher {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

int64_t NumNgrams(const TokenNumbers& text, int64_t n) {
  return std::max<int64_t>(0, std::ssize(text) - n + 1);
}

// The n-grams of a text, as the bytes of their numbers.
void AddNgrams(const TokenNumbers& text, int64_t n, std::unordered_set<std::string>& seen) {
  for (int64_t i = 0; i < NumNgrams(text, n); ++i) {
    seen.emplace(reinterpret_cast<const char*>(text.data() + i),
                 static_cast<size_t>(n) * sizeof(int32_t));
  }
}

// The mean over the texts of which it is no NaN.
double MeanOf(const std::vector<TokenNumbers>& texts, double (*measure)(const TokenNumbers&)) {
  double sum = 0;
  int64_t count = 0;
  for (const TokenNumbers& text : texts) {
    const double value = measure(text);
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count == 0 ? kNothing : sum / static_cast<double>(count);
}

}  // namespace

double DistinctNgrams(const std::vector<TokenNumbers>& texts, int64_t n) {
  std::unordered_set<std::string> seen;
  int64_t all = 0;
  for (const TokenNumbers& text : texts) {
    AddNgrams(text, n, seen);
    all += NumNgrams(text, n);
  }
  return all == 0 ? kNothing : static_cast<double>(seen.size()) / static_cast<double>(all);
}

double TokenEntropy(const TokenNumbers& text) {
  std::map<int32_t, int64_t> counts;
  for (const int32_t token : text) ++counts[token];
  double entropy = 0;
  for (const auto& [token, count] : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(text.size());
    entropy -= share * std::log(share);
  }
  return entropy;
}

double RepeatedNgrams(const TokenNumbers& text, int64_t n) { return 1 - DistinctNgrams({text}, n); }

TextMeasures MeasureTexts(const std::vector<TokenNumbers>& texts) {
  TextMeasures measures;
  for (int64_t n = 1; n <= kLongestDistinct; ++n)
    measures.distinct[n - 1] = DistinctNgrams(texts, n);
  measures.entropy = MeanOf(texts, TokenEntropy);
  measures.repetition =
      MeanOf(texts, [](const TokenNumbers& text) { return RepeatedNgrams(text, kRepeatedLength); });
  measures.length =
      MeanOf(texts, [](const TokenNumbers& text) { return static_cast<double>(text.size()); });
  return measures;
}

}  // namespace anyorder::launcher
