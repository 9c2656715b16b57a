#include "launcher/serve/streamed_text.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace anyorder::launcher {
namespace {

TEST(StreamedTextTest, NothingIsToldThatMayBeginAStopWord) {
  StreamedText text(true, {"<end>"});
  EXPECT_EQ(text.Add(" a"), " a");
  EXPECT_EQ(text.Add(" b<e"), " b");
  EXPECT_EQ(text.Add("x"), "<ex");
  EXPECT_EQ(text.Add("<end"), "");
  EXPECT_EQ(text.Add("> c"), "");
  EXPECT_EQ(text.Finish(" a b<ex"), "");
}

TEST(StreamedTextTest, CharactersAreToldWhole) {
  StreamedText text(true, {});
  EXPECT_EQ(text.Add("\xe2"), "");
  EXPECT_EQ(text.Add("\x82"), "");
  EXPECT_EQ(text.Add("\xac!\xf0\x9f"), "\xe2\x82\xac!");
  EXPECT_EQ(text.Finish("\xe2\x82\xac!\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
}

// Pieces and text are as the service tells them: a space more is the text's own.
TEST(StreamedTextTest, NoSpaceIsLost) {
  StreamedText text(true, {});
  EXPECT_EQ(text.Add(""), "");
  EXPECT_EQ(text.Add(" "), " ");
  EXPECT_EQ(text.Add(" a"), " a");
  EXPECT_EQ(text.Finish("  a b"), " b");
  EXPECT_EQ(StreamedText(false, {}).Finish(" a"), " a");
}

TEST(StreamedTextTest, OtherOrdersAreToldAtTheEnd) {
  StreamedText text(false, {});
  EXPECT_EQ(text.Add(" b"), "");
  EXPECT_EQ(text.Finish(" a b"), " a b");
}

TEST(StreamedTextTest, AnotherTextThanWasToldComesWhole) {
  StreamedText text(true, {});
  text.Add(" a");
  EXPECT_EQ(text.Finish(" b"), "\n b");
}

// Pieces of any cut give the text before its first stop word.
TEST(StreamedTextTest, AnyCutGivesTheSameText) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string whole;
    for (int i = 0; i < 12; ++i) whole += "ab\xc3\xa4"[random() % 4];
    const std::vector<std::string> stop = {"aab", "ba", "bbb"};
    size_t end = whole.size();
    for (const std::string& word : stop) end = std::min(end, whole.find(word));
    const std::string text = whole.substr(0, end);
    StreamedText streamed(true, stop);
    std::string told;
    for (size_t at = 0; at < whole.size();) {
      const size_t bytes = 1 + random() % 4;
      told += streamed.Add(whole.substr(at, bytes));
      at += bytes;
      ASSERT_EQ(text.compare(0, told.size(), told), 0) << whole << ": " << told;
    }
    EXPECT_EQ(told + streamed.Finish(text), text);
  }
}

}  // namespace
}  // namespace anyorder::launcher
