// The rule by which lengths compare, and the search over them, against tables of made-up scores.

#include "launcher/texts/blanks/blank_lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <vector>

#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using Lengths = std::vector<int64_t>;

TEST(LengthRuleTest, DividesByAPowerOfAllTokens) {
  const LengthRule usual;
  EXPECT_DOUBLE_EQ(usual.Score(-6, 0, {1, 2}, {0, 2}), -2);
  EXPECT_DOUBLE_EQ((LengthRule{.length_penalty = 0}).Score(-6, 0, {1, 2}, {0, 2}), -6);
  EXPECT_DOUBLE_EQ((LengthRule{.length_penalty = 0.5}).Score(-6, 0, {4}, {4}), -3);
}

TEST(LengthRuleTest, TheFitIsNotDivided) {
  EXPECT_DOUBLE_EQ((LengthRule{}).Score(-6, -5, {3}, {0}), -7);
}

TEST(LengthRuleTest, ThePriorIsGeometricOverUnknownLengths) {
  const LengthRule rule{.length_penalty = 0, .mean_length = 4};
  // (1/4) (3/4)^2 of the unknown one alone.
  EXPECT_NEAR(rule.Score(-1, 0, {3, 7}, {0, 7}), -1 + std::log(0.25 * 0.75 * 0.75), 1e-12);
  EXPECT_DOUBLE_EQ(rule.Score(-1, 0, {7}, {7}), -1);
  // It is a distribution, and its mean is what was asked for.
  double sum = 0;
  double mean = 0;
  for (int64_t n = 1; n < 400; ++n) {
    const double probability = std::exp(rule.Score(0, 0, {n}, {0}));
    sum += probability;
    mean += static_cast<double>(n) * probability;
  }
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_NEAR(mean, 4, 1e-9);
}

// Tries tables and notes what was tried.
struct Table {
  std::function<double(const Lengths&)> score;
  std::vector<Lengths> tried = {};

  Lengths Find(const LengthBounds& bounds) {
    return FindLengths(
               bounds,
               [this](const std::vector<Lengths>& all) -> absl::StatusOr<std::vector<double>> {
                 std::vector<double> scores;
                 for (const Lengths& lengths : all) {
                   tried.push_back(lengths);
                   scores.push_back(score(lengths));
                 }
                 return scores;
               })
        .value();
  }
};

TEST(FindLengthsTest, OneBlankTriesEachLengthOnce) {
  std::mt19937_64 random(std::random_device{}());
  for (int round = 0; round < 200; ++round) {
    std::map<int64_t, double> scores;
    const auto most = static_cast<int64_t>(1 + random() % 9);
    for (int64_t n = 1; n <= most; ++n) scores[n] = static_cast<double>(random() % 1000);
    Table table{[&](const Lengths& lengths) { return scores[lengths[1]]; }};
    const Lengths best =
        table.Find({.known = {2, 0, 3}, .least = {1, 1, 1}, .most = most, .room = 100});
    double largest = 0;
    for (const auto& [unused, score] : scores) largest = std::max(largest, score);
    EXPECT_EQ(scores[best[1]], largest);
    EXPECT_EQ(best[0], 2);
    EXPECT_EQ(best[2], 3);
    EXPECT_EQ(table.tried.size(), static_cast<size_t>(most));
  }
}

TEST(FindLengthsTest, SeparableScoresAreSolvedAndNothingIsTriedTwice) {
  std::mt19937_64 random(std::random_device{}());
  for (int round = 0; round < 200; ++round) {
    const Lengths wanted = {static_cast<int64_t>(1 + random() % 6),
                            static_cast<int64_t>(1 + random() % 6),
                            static_cast<int64_t>(1 + random() % 6)};
    Table table{[&](const Lengths& lengths) {
      double score = 0;
      for (size_t b = 0; b < 3; ++b) score -= std::abs(double(lengths[b] - wanted[b]));
      return score;
    }};
    EXPECT_EQ(table.Find({.known = {0, 0, 0}, .least = {1, 1, 1}, .most = 6, .room = 100}), wanted);
    std::vector<Lengths> tried = table.tried;
    std::sort(tried.begin(), tried.end());
    EXPECT_EQ(std::adjacent_find(tried.begin(), tried.end()), tried.end());
    EXPECT_LE(tried.size(), 1 + 2 * 3 * 5u);
  }
}

TEST(FindLengthsTest, ASecondSweepUsesWhatTheFirstFound) {
  // Blank 0 is best at 1 while blank 1 is short, and at 2 once that is long.
  const auto score = [](const Lengths& lengths) {
    return static_cast<double>(lengths[1] == 3 ? 10 + (lengths[0] == 2) : lengths[0] == 1);
  };
  Table table{score};
  EXPECT_THAT(table.Find({.known = {0, 0}, .least = {1, 1}, .most = 3, .room = 100}),
              ElementsAre(2, 3));
}

TEST(FindLengthsTest, StaysWithinRoomAndAboveTheLeast) {
  Table table{[](const Lengths& lengths) {
    return static_cast<double>(lengths[0] + lengths[1]);  // the longer the better
  }};
  EXPECT_THAT(table.Find({.known = {0, 0}, .least = {2, 1}, .most = 8, .room = 6}),
              ElementsAre(5, 1));
  for (const Lengths& lengths : table.tried) {
    EXPECT_GE(lengths[0], 2);
    EXPECT_LE(lengths[0] + lengths[1], 6);
  }
}

TEST(FindLengthsTest, EqualScoresKeepTheShortest) {
  Table table{[](const Lengths&) { return -1.0; }};
  EXPECT_THAT(table.Find({.known = {0}, .least = {1}, .most = 5, .room = 9}), ElementsAre(1));
}

TEST(FindLengthsTest, AnErrorEndsTheSearch) {
  const auto found =
      FindLengths({.known = {0}, .least = {1}, .most = 5, .room = 9},
                  [](const std::vector<Lengths>&) -> absl::StatusOr<std::vector<double>> {
                    return ResourceExhausted("no memory");
                  });
  EXPECT_EQ(found.status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace anyorder::launcher
