#include "data/sampling/span_answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"

#include "core/base/philox.h"
#include "data/sampling/passage_windows.h"

namespace anyorder::data {
namespace {

// "a b c ...", a token a letter, each with the space before it but for its range.
OriginalPassage Letters(int64_t count) {
  OriginalPassage passage;
  for (int64_t i = 0; i < count; ++i) {
    absl::StrAppend(&passage.text, i == 0 ? "" : " ", std::string(1, static_cast<char>('a' + i)));
    passage.tokens.push_back({2 * i, 2 * i + 1});
  }
  return passage;
}

std::vector<std::string> Texts(const QuestionPrediction& prediction) {
  std::vector<std::string> texts;
  for (const SpanAnswer& answer : prediction.answers) texts.push_back(answer.text);
  return texts;
}

using testing::ElementsAre;

TEST(MergeWindowsTest, TheBestOfAllWindowsComeFirstAsTheyStandInThePassage) {
  const WindowPrediction window{0, 6, {{0, 1, -3.0}, {2, 5, -1.0}, {4, 6, -2.0}}, 0.5};
  const QuestionPrediction merged = MergeWindows({window}, Letters(6), {});
  EXPECT_THAT(Texts(merged), ElementsAre("c d e", "e f", "a"));
  EXPECT_EQ(merged.answers[0].characters, (CharacterRange{4, 9}));
  EXPECT_EQ(merged.answers[0].log_probability, -1.0);
  EXPECT_EQ(merged.null_score, 0.5);
}

TEST(MergeWindowsTest, DuplicatesKeepTheBestAndLongSpansAreLeftOut) {
  OriginalPassage passage = Letters(4);
  passage.text = "a b a b";
  const WindowPrediction window{
      0, 4, {{0, 1, -3.0}, {2, 3, -1.0}, {1, 2, -4.0}, {0, 4, -0.5}, {3, 4, -2.0}}};
  EXPECT_THAT(Texts(MergeWindows({window}, passage, {.max_tokens = 3})), ElementsAre("a", "b"));
  EXPECT_THAT(Texts(MergeWindows({window}, passage, {.max_tokens = 4, .n_best = 1})),
              ElementsAre("a b a b"));
}

TEST(MergeWindowsTest, WhiteSpaceIsNoAnswerAndNoEndOfOne) {
  OriginalPassage passage;
  passage.text = " x  y ";
  passage.tokens = {{1, 1}, {1, 2}, {4, 4}, {4, 5}, {6, 6}};
  const WindowPrediction window{0, 5, {{2, 3, -1.0}, {1, 3, -2.0}, {0, 5, -3.0}, {4, 5, -4.0}}};
  EXPECT_THAT(Texts(MergeWindows({window}, passage, {})), ElementsAre("x", "x  y"));
}

TEST(MergeWindowsTest, WithoutAClassForItTheSpanOfNothingIsCompared) {
  const WindowPrediction first{.window_begin = 0,
                               .num_tokens = 4,
                               .candidates = {{0, 1, -3.0}},
                               .null_log_probability = -1.0};
  WindowPrediction second = first;
  second.window_begin = 2;
  second.candidates = {{3, 4, -0.5}};
  second.null_log_probability = -2.0;
  EXPECT_EQ(MergeWindows({first, second}, Letters(6), {}).null_score, -2.0 + 0.5);
  second.candidates.clear();
  second.null_log_probability = std::nan("");
  EXPECT_TRUE(std::isnan(MergeWindows({second}, Letters(6), {}).null_score));
  EXPECT_TRUE(MergeWindows({second}, Letters(6), {}).answers.empty());
}

// As _check_is_max_context states it, with a map of all scores.
int64_t BestWindow(const std::vector<WindowPrediction>& windows, int64_t token) {
  double best = -1;
  int64_t best_window = -1;
  for (size_t w = 0; w < windows.size(); ++w) {
    const auto left = static_cast<double>(token - windows[w].window_begin);
    const double right =
        static_cast<double>(windows[w].window_begin + windows[w].num_tokens - 1 - token);
    if (left < 0 || right < 0) continue;
    const double score = std::min(left, right) + 0.01 * static_cast<double>(windows[w].num_tokens);
    if (score <= best) continue;
    best = score;
    best_window = static_cast<int64_t>(w);
  }
  return best_window;
}

TEST(MergeWindowsTest, SpansCountInTheWindowWithTheMostContext) {
  RandomStream random(5, RandomPurpose::kPrep, 0, 0);
  for (int repeat = 0; repeat < 40; ++repeat) {
    const auto length = static_cast<int64_t>(5 + random.Below(20));
    const auto room = static_cast<int64_t>(3 + random.Below(8));
    const OriginalPassage passage = Letters(length);
    std::vector<WindowPrediction> windows;
    std::map<std::string, double> expected;
    for (const PassageWindow& window :
         WindowsOf(length, room, 1 + static_cast<int64_t>(random.Below(5)))) {
      windows.push_back({window.begin, window.end - window.begin, {}, -double(windows.size())});
      for (int32_t begin = 0; begin < windows.back().num_tokens; ++begin)
        windows.back().candidates.push_back({begin, begin + 1, -1.0 - random.Below(1000)});
    }
    for (size_t w = 0; w < windows.size(); ++w) {
      for (const SpanCandidate& candidate : windows[w].candidates) {
        const int64_t token = windows[w].window_begin + candidate.begin;
        if (BestWindow(windows, token) != static_cast<int64_t>(w)) continue;
        expected[std::string(1, static_cast<char>('a' + token))] = candidate.log_probability;
      }
    }
    const QuestionPrediction merged = MergeWindows(windows, passage, {.n_best = 100});
    EXPECT_EQ(merged.null_score, 1.0 - static_cast<double>(windows.size()));
    // Every token once, from that window, sorted.
    ASSERT_EQ(std::ssize(merged.answers), length);
    for (size_t i = 0; i < merged.answers.size(); ++i) {
      EXPECT_EQ(merged.answers[i].log_probability, expected.at(merged.answers[i].text));
      if (i > 0) {
        EXPECT_LE(merged.answers[i].log_probability, merged.answers[i - 1].log_probability);
      }
    }
  }
}

}  // namespace
}  // namespace anyorder::data
