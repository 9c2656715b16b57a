// What texts are like, whatever model made them: how many different tokens they use, and how often
// they say the same again. (Likelihood under another model alone is fooled by dull texts.)

#pragma once

#include <cstdint>
#include <vector>

namespace anyorder::launcher {

// Tokens of a text: numbers of anything, equal where the tokens are.
using TokenNumbers = std::vector<int32_t>;

// Different n-grams by n-grams, over all texts; none reaches from one text into another. (Li et al.
// 2016, "A Diversity-Promoting Objective Function", section 5.2.) NaN without n-grams.
double DistinctNgrams(const std::vector<TokenNumbers>& texts, int64_t n);

// The entropy of the distribution of tokens within a text, nats: -sum_v c_v/T log(c_v/T) for counts
// c_v of T tokens, 0 of an empty text. (BD3-LM's release, metrics.py, of the judging model's
// tokens.)
double TokenEntropy(const TokenNumbers& text);

// The share of a text's n-grams that came before in it: 1 - different ones / all. (seq-rep-n of
// Welleck et al. 2020, "Neural Text Generation with Unlikelihood Training", section 6.) NaN without
// n-grams.
double RepeatedNgrams(const TokenNumbers& text, int64_t n);

inline constexpr int64_t kLongestDistinct = 4;
inline constexpr int64_t kRepeatedLength = 4;

struct TextMeasures {
  double distinct[kLongestDistinct] = {};  // of 1, 2, 3, 4
  double entropy = 0;                      // mean over texts
  double repetition = 0;                   // of kRepeatedLength, mean over texts that are so long
  double length = 0;                       // tokens, mean over texts
};
// NaN for means of nothing.
TextMeasures MeasureTexts(const std::vector<TokenNumbers>& texts);

}  // namespace anyorder::launcher
