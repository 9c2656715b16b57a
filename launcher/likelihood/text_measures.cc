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

// Of values that are none of them NaN.
class Mean {
 public:
  void Add(double value) {
    if (std::isnan(value)) return;
    sum_ += value;
    ++count_;
  }
  double value() const { return count_ == 0 ? kNothing : sum_ / static_cast<double>(count_); }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

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
  Mean entropy;
  Mean repetition;
  Mean length;
  for (const TokenNumbers& text : texts) {
    entropy.Add(TokenEntropy(text));
    repetition.Add(RepeatedNgrams(text, kRepeatedLength));
    length.Add(static_cast<double>(text.size()));
  }
  measures.entropy = entropy.value();
  measures.repetition = repetition.value();
  measures.length = length.value();
  return measures;
}

}  // namespace anyorder::launcher
