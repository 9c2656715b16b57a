// How often each text is written, against its probability.

#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

namespace anyorder::testing {

// Of texts: probabilities, or counts.
using TextWeights = std::map<std::vector<int32_t>, double>;

struct ChiSquare {
  double statistic = 0;
  double limit = 0;  // exceeded with probability 1e-6 by what has the distribution
};

// Pearson's statistic. Texts that are expected less than 5 times are one cell. No text may be
// counted that has no probability, and probabilities are 1 together.
inline ChiSquare CompareCounts(const TextWeights& counts, const TextWeights& expected) {
  double draws = 0;
  for (const auto& [text, count] : counts) {
    EXPECT_TRUE(expected.contains(text)) << "a text that cannot be, " << count << " times";
    draws += count;
  }
  double statistic = 0, cells = 0, sum = 0, rest_counted = 0, rest_expected = 0;
  const auto add = [&](double counted, double mean) {
    statistic += (counted - mean) * (counted - mean) / mean;
    ++cells;
  };
  for (const auto& [text, probability] : expected) {
    sum += probability;
    const auto found = counts.find(text);
    const double counted = found == counts.end() ? 0 : found->second;
    if (probability * draws >= 5) {
      add(counted, probability * draws);
    } else {
      rest_counted += counted;
      rest_expected += probability * draws;
    }
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  if (rest_expected >= 5) add(rest_counted, rest_expected);
  EXPECT_GE(cells, 8);
  // Wilson and Hilferty's cube root, normal deviate 4.753.
  const double degrees = cells - 1;
  const double root = 1 - 2 / (9 * degrees) + 4.753 * std::sqrt(2 / (9 * degrees));
  return {statistic, degrees * root * root * root};
}

}  // namespace anyorder::testing
