// What a person at a terminal reads.

#include "launcher/texts/filled_view.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "launcher/process/display_width.h"

namespace anyorder::launcher {
namespace {

BlankText TextWithBlanks(const std::string& text) { return ParseBlankText(text, 64).value(); }

TEST(FilledViewTest, MarksTheFirstAndListsAll) {
  const FilledText first{.blanks = {"quick", "dog"}, .log_prob = -0.5};
  const FilledText second{
      .blanks = {"\u8A9E", "cat"}, .log_prob = -12.25, .standard_error = 0.125, .is_exact = false};
  EXPECT_EQ(ShowFilled(TextWithBlanks("The ___ fox, {1}."), {first, second}, 80),
            "The \x1b[4mquick\x1b[0m fox, \x1b[4mdog\x1b[0m.\n"
            "   1  -0.500             quick / dog\n"
            "   2  \u2265 -12.250 \u00B1 0.125  \u8A9E / cat\n");
}

TEST(FilledViewTest, SaysThatNothingWasFound) {
  EXPECT_EQ(ShowFilled(TextWithBlanks("The {2} fox"), {}, 80),
            "The ___ fox\n      no words found; try another length or seed\n");
}

TEST(FilledViewTest, OneSampleHasNoError) {
  const FilledText text{.blanks = {"a"},
                        .log_prob = -1,
                        .standard_error = std::numeric_limits<double>::infinity(),
                        .is_exact = false};
  EXPECT_EQ(ShowFilled(TextWithBlanks("___"), {text}, 80),
            "\x1b[4ma\x1b[0m\n   1  \u2265 -1.000 \u00B1 ?  a\n");
}

TEST(FilledViewTest, LinesOfAlternativesFitWhateverTheCharacters) {
  const FilledText text{.blanks = {"\u8A9E\u9806\u8A9E\u9806\u8A9E\u9806"}, .log_prob = -1};
  const std::string shown = ShowFilled(TextWithBlanks("___"), {text}, 20);
  const std::string row = shown.substr(shown.find('\n') + 1);
  EXPECT_EQ(row, "   1  -1.000  \u8A9E\u9806\u8A9E\n");
  EXPECT_EQ(DisplayWidth(row), 20);
}

TEST(FilledViewTest, NoTextMovesTheCursor) {
  const FilledText text{.blanks = {"b\x1b[2J\x7F"}, .log_prob = -1};
  const std::string shown = ShowFilled(TextWithBlanks("a\x1b[1A\nb\u009B ___"), {text}, 80);
  EXPECT_EQ(shown,
            "a [1A b  \x1b[4mb [2J \x1b[0m\n"
            "   1  -1.000  b [2J \n");
}

}  // namespace
}  // namespace anyorder::launcher
