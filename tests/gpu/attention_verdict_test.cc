// Sets of wrong elements as mistakes of each kind make them, and what is said of them.

#include "tests/gpu/attention_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/base/philox.h"

namespace anyorder::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Elements = std::vector<CheckedElement>;

// Two lanes, two heads, a full tile of 64 rows and one of 22, 16 columns; rows see more keys the
// later they come, the last sees all.
Elements RightElements() {
  RandomStream random(1, RandomPurpose::kInit, 0, 0);
  Elements elements;
  for (int place = 0; place < 4 * 86 * 16; ++place) {
    const int row = place / 16 % 86;
    CheckedElement element = {.lane = place / (2 * 86 * 16),
                              .head = place / (86 * 16) % 2,
                              .tile = row / 64,
                              .row_of_tile = row % 64,
                              .warp = row % 64 / 16,
                              .column = place % 16,
                              .is_mixed = row % 3 != 0,
                              .is_edge = row >= 64};
    element.expected = element.found = random.Normal();
    element.bound = 0.01;
    elements.push_back(element);
  }
  return elements;
}

TEST(AttentionVerdictTest, NothingWrong) { EXPECT_EQ(PatternOf(RightElements()), "agrees"); }

// Within bounds, and whatever else is wrong.
TEST(AttentionVerdictTest, ARaceDiffersBetweenRuns) {
  Elements elements = RightElements();
  elements[5].differs = true;
  EXPECT_THAT(PatternOf(elements), StartsWith("race: differs between two runs (1 of "));
  for (CheckedElement& element : elements) element.found += element.row_of_tile % 8 == 3 ? 1 : 0;
  EXPECT_THAT(PatternOf(elements), StartsWith("race: differs between two runs (1 of "));
}

TEST(AttentionVerdictTest, OneFactorIsAScale) {
  Elements elements = RightElements();
  for (CheckedElement& element : elements)
    element.found = 1.25 * element.expected + 0.5 * element.bound;
  EXPECT_EQ(PatternOf(elements), "scale: all are 1.25 times what is expected");
}

TEST(AttentionVerdictTest, SaysWhatTheWrongPlacesHaveInCommon) {
  const struct {
    std::function<bool(const CheckedElement&)> is_wrong;
    const char* where;
  } mistakes[] = {
      {[](const auto& e) { return e.row_of_tile % 8 == 3 || e.row_of_tile % 8 == 7; },
       "row mod 8: 3, 7;"},
      {[](const auto& e) { return e.warp == 1; }, "where warp: 1; row of its tile: 16,"},
      {[](const auto& e) { return e.column == 9; }, "where column: 9; column mod 8: 1;"},
      {[](const auto& e) { return (e.row_of_tile + e.column) % 8 == 0; },
       "where 8 (row mod 8) + column mod 8: 0, 15, 22, 29, 36, 43, 50, 57"},
      {[](const auto& e) { return e.row_of_tile == 3 && e.lane == 1; },
       "where lane: 1; warp: 0; row of its tile: 3;"},
      {[](const auto& e) { return e.is_mixed; }, "where row sees some keys and not others: 1; row"},
      {[](const auto& e) { return e.is_edge; }, "where tile: 1; tile is not full: 1; warp: 0, 1;"},
      {[](const auto& e) { return e.row_of_tile % 16 > 2 || e.column > 5; }, ", everywhere"},
  };
  for (const auto& [is_wrong, where] : mistakes) {
    Elements elements = RightElements();
    for (CheckedElement& element : elements) {
      if (is_wrong(element)) element.found += 1;
    }
    EXPECT_THAT(PatternOf(elements), HasSubstr(where));
  }
}

TEST(AttentionVerdictTest, CountsWhatIsNoNumberZeroOrHidden) {
  Elements elements = RightElements();
  elements[1].found = std::numeric_limits<double>::quiet_NaN();
  elements[2].found = elements[3].expected = 0;
  EXPECT_THAT(PatternOf(elements),
              StartsWith("wrong: 3 of 5504 elements, the same in both runs (1 not a number, 1 "
                         "zero, 1 not 0 where nothing is to be seen), only where"));
  for (CheckedElement& element : elements) element.found = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(PatternOf(elements),
              AllOf(StartsWith("wrong: 5504 of 5504 elements"), EndsWith(", everywhere")));
}

}  // namespace
}  // namespace anyorder::testing
