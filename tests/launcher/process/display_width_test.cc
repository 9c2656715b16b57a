#include "launcher/process/display_width.h"

#include <gtest/gtest.h>

namespace anyorder::launcher {
namespace {

TEST(DisplayWidth, CountsColumnsAsTerminalsDo) {
  EXPECT_EQ(DisplayWidth(""), 0);
  EXPECT_EQ(DisplayWidth("any"), 3);
  EXPECT_EQ(DisplayWidth("▁Größe"), 6);
  EXPECT_EQ(DisplayWidth("語順"), 4);
  EXPECT_EQ(DisplayWidth("한국어"), 6);
  EXPECT_EQ(DisplayWidth("e\u0301"), 1);  // a mark on the letter before it
  EXPECT_EQ(DisplayWidth("ｗ"), 2);       // fullwidth
  EXPECT_EQ(DisplayWidth("\xff\xfe"), 2);
  EXPECT_EQ(DisplayWidth("\x1b\n"), 0);
}

TEST(DisplayWidth, CutsBetweenCharacters) {
  EXPECT_EQ(FittingPrefix("語順", 4), "語順");
  EXPECT_EQ(FittingPrefix("語順", 3), "語");
  EXPECT_EQ(FittingPrefix("語順", 1), "");
  EXPECT_EQ(FittingPrefix("ae\u0301x", 2), "ae\u0301");
}

TEST(DisplayWidth, PadsToColumns) {
  EXPECT_EQ(PaddedToWidth("語順", 6), "語順  ");
  EXPECT_EQ(PaddedToWidth("語順", 3), "語 ");
  EXPECT_EQ(PaddedToWidth("ab", 2), "ab");
  EXPECT_EQ(PaddedToWidth("", 2), "  ");
}

}  // namespace
}  // namespace anyorder::launcher
