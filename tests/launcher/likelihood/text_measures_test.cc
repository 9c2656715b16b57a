// Measures against their definitions, written out.

#include "launcher/likelihood/text_measures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <vector>

namespace anyorder::launcher {
namespace {

TEST(TextMeasuresTest, SmallTextsByHand) {
  // a b a b a | a: unigrams 2 of 6, bigrams ab ba of 4, trigrams aba bab of 3, abab baba of 2.
  const TextMeasures measures = MeasureTexts({{0, 1, 0, 1, 0}, {0}});
  EXPECT_DOUBLE_EQ(measures.distinct[0], 2.0 / 6);
  EXPECT_DOUBLE_EQ(measures.distinct[1], 2.0 / 4);
  EXPECT_DOUBLE_EQ(measures.distinct[2], 2.0 / 3);
  EXPECT_DOUBLE_EQ(measures.distinct[3], 1.0);
  EXPECT_DOUBLE_EQ(measures.entropy, -(0.6 * std::log(0.6) + 0.4 * std::log(0.4)) / 2);
  EXPECT_DOUBLE_EQ(measures.repetition, 0.0);
  EXPECT_DOUBLE_EQ(measures.length, 3.0);
  EXPECT_DOUBLE_EQ(RepeatedNgrams({7, 7, 7, 7, 7, 7}, 4), 2.0 / 3);
  EXPECT_DOUBLE_EQ(TokenEntropy({0, 1, 2, 3, 4, 5, 6, 7}), std::log(8));
}

TEST(TextMeasuresTest, NothingHasNoMean) {
  EXPECT_TRUE(std::isnan(DistinctNgrams({}, 1)));
  EXPECT_TRUE(std::isnan(DistinctNgrams({{1, 2}}, 3)));
  EXPECT_TRUE(std::isnan(RepeatedNgrams({1}, 4)));
  EXPECT_EQ(TokenEntropy({}), 0);
  const TextMeasures measures = MeasureTexts({});
  EXPECT_TRUE(std::isnan(measures.entropy) && std::isnan(measures.length));
}

// n-grams as vectors, sorted; the entropy as log T - sum c log c / T.
TEST(TextMeasuresTest, RandomTextsHaveWhatTheDefinitionsSay) {
  std::mt19937_64 random(9);
  for (int round = 0; round < 50; ++round) {
    std::vector<TokenNumbers> texts(1 + random() % 6);
    for (TokenNumbers& text : texts) {
      text.resize(random() % 40);
      for (int32_t& token : text) token = static_cast<int32_t>(random() % 5) - 2;
    }
    for (int64_t n = 1; n <= 4; ++n) {
      std::set<TokenNumbers> all;
      double count = 0;
      for (const TokenNumbers& text : texts) {
        std::set<TokenNumbers> own;
        double own_count = 0;
        for (auto at = text.begin(); text.end() - at >= n; ++at, ++own_count)
          own.insert(TokenNumbers(at, at + n));
        all.insert(own.begin(), own.end());
        count += own_count;
        if (own_count == 0) continue;
        EXPECT_DOUBLE_EQ(RepeatedNgrams(text, n), 1 - static_cast<double>(own.size()) / own_count);
      }
      if (count > 0) {
        EXPECT_DOUBLE_EQ(DistinctNgrams(texts, n), static_cast<double>(all.size()) / count);
      }
    }
    for (const TokenNumbers& text : texts) {
      if (text.empty()) continue;
      const auto length = static_cast<double>(text.size());
      double sum = 0;
      for (const int32_t token : text)
        sum += std::log(static_cast<double>(std::count(text.begin(), text.end(), token)));
      // Sums of at most 40 terms below 4.
      EXPECT_NEAR(TokenEntropy(text), std::log(length) - sum / length, 40 * 4 * 0x1p-53 * 4);
    }
  }
}

}  // namespace
}  // namespace anyorder::launcher
