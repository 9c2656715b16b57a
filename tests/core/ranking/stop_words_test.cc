#include "core/ranking/stop_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace anyorder {
namespace {

using ::testing::ElementsAre;

TEST(StopWordsTest, WordsOfSeveralPiecesAreJoined) {
  const StopWords english = StopWords::English();
  EXPECT_THAT(english.KeptTokens({"▁The", "▁cat", ",", "▁with", "out", "▁with", "er", "▁", "(",
                                  "of", ")", "▁x", "-", "ray"}),
              ElementsAre(1, 5, 6, 11, 13));
  // A word begins a text without a mark, too.
  EXPECT_THAT(english.KeptTokens({"the", "se", "▁cats"}), ElementsAre(2));
  EXPECT_THAT(StopWords().KeptTokens({"▁the", "▁...", "▁cat"}), ElementsAre(0, 2));
  EXPECT_THAT(StopWords({"Cat"}).KeptTokens({"▁the", "▁CAT"}), ElementsAre(0));
}

TEST(StopWordsTest, ATextOfStopWordsIsKeptWhole) {
  EXPECT_THAT(StopWords::English().KeptTokens({"▁to", "▁be", "▁or", "▁not", "?"}),
              ElementsAre(0, 1, 2, 3, 4));
  EXPECT_TRUE(StopWords::English().KeptTokens({}).empty());
}

}  // namespace
}  // namespace anyorder
