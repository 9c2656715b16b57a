// Sets of wrong elements as mistakes of each kind make them, and what is said of them.

#include "tests/gpu/attention_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "core/base/philox.h"

namespace anyorder::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using Elements = std::vector<CheckedElement>;

// Two lanes, two heads, a full tile of 64 rows and one of 22, 16 columns; rows see more keys the
// later they come, the last sees all.
class PatternTest : public ::testing::Test {
 protected:
  PatternTest() : random_(1, RandomPurpose::kInit, 0, 0) {
    for (int place = 0; place < 4; ++place) {
      for (int row = 0; row < 86; ++row) {
        for (int column = 0; column < 16; ++column) {
          CheckedElement element = {.lane = place / 2,
                                    .head = place % 2,
                                    .tile = row / 64,
                                    .row_of_tile = row % 64,
                                    .warp = row % 64 / 16,
                                    .column = column,
                                    .is_mixed = row % 3 != 0,
                                    .is_edge = row >= 64};
          element.expected = element.found = random_.Normal();
          element.bound = 0.01;
          elements_.push_back(element);
        }
      }
    }
  }

  // Another number wherever it holds.
  template <typename Where>
  void Spoil(Where where) {
    for (CheckedElement& element : elements_) {
      if (where(element)) element.found = random_.Normal();
    }
  }
  std::string Pattern() const { return PatternOf(elements_); }

  RandomStream random_;
  Elements elements_;
};

TEST_F(PatternTest, NothingWrong) { EXPECT_EQ(Pattern(), "agrees"); }

TEST_F(PatternTest, ARaceDiffersBetweenRuns) {
  Spoil([](const CheckedElement& e) { return e.row_of_tile % 8 == 3; });
  elements_[5].differs = true;
  EXPECT_THAT(Pattern(), StartsWith("race: differs between two runs (1 of "));
  // Also where every element of this run is within its bound.
  for (CheckedElement& element : elements_) element.found = element.expected;
  EXPECT_THAT(Pattern(), StartsWith("race"));
}

TEST_F(PatternTest, WhereNumbersAreWrongSaysWhatTheMistakeIs) {
  const auto is_seldom = [this](int odds) { return random_.Below(odds) == 0; };
  const std::pair<std::function<bool(const CheckedElement&)>, const char*> mistakes[] = {
      {[](const auto& e) { return e.row_of_tile % 8 == 3 || e.row_of_tile % 8 == 7; },
       "layout: wrong where row mod 8 is 3, 7; all tiles alike"},
      {[](const auto& e) { return e.warp == 1; }, "layout: wrong where warp is 1"},
      {[](const auto& e) { return e.column == 9; }, "layout: wrong where column is 9"},
      {[](const auto& e) { return e.column % 8 == 1; }, "layout: wrong where column mod 8 is 1"},
      {[](const auto& e) { return (e.row_of_tile + e.column) % 8 == 0; },
       "layout: wrong where (row mod 8, column mod 8) is (0, 0), (1, 7)"},
      // A tile that is right speaks against a layout.
      {[](const auto& e) { return e.row_of_tile % 8 == 3 && e.lane == 1; },
       "mask: whole rows are wrong, all others right: 3 of tile 0"},
      {[&](const auto& e) { return e.is_mixed && is_seldom(7); },
       "mask: wrong only in rows that see some keys and not others"},
      {[&](const auto& e) { return e.is_edge && is_seldom(7); },
       "mask: wrong only in tiles that are not full"},
      {[&](const auto&) { return is_seldom(9); }, "unclear: "}};
  const Elements right = elements_;
  for (const auto& [where, pattern] : mistakes) {
    elements_ = right;
    Spoil(where);
    EXPECT_THAT(Pattern(), StartsWith(pattern));
  }
  EXPECT_THAT(Pattern(), HasSubstr("without a pattern"));
}

TEST_F(PatternTest, AMaskShowsWhatIsHidden) {
  for (CheckedElement& element : elements_) {
    if (element.is_mixed && element.column > 8) element.expected = element.found = 0;
  }
  Spoil([](const CheckedElement& e) { return e.is_mixed && e.column == 9; });
  EXPECT_THAT(Pattern(), HasSubstr("not 0 where nothing is to be seen"));
}

TEST_F(PatternTest, OneFactorIsAScale) {
  for (CheckedElement& element : elements_)
    element.found = 1.25 * element.expected + 0.5 * element.bound;
  EXPECT_THAT(Pattern(), StartsWith("scale: all are 1.25 times"));
}

TEST_F(PatternTest, AFactorForEachRowIsASumOfTheSoftmax) {
  for (CheckedElement& element : elements_)
    element.found = (1 + 0.3 * std::sin(element.row_of_tile)) * element.expected;
  EXPECT_THAT(Pattern(), StartsWith("scale: each row"));
}

TEST_F(PatternTest, EverythingWrongIsUnclearToo) {
  for (CheckedElement& element : elements_)
    element.found = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(Pattern(), HasSubstr("5504 of 5504 elements are wrong"));
  EXPECT_THAT(Pattern(), HasSubstr("most of them in every tile"));
}

}  // namespace
}  // namespace anyorder::testing
