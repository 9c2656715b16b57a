#include "data/prep/document_stats.h"

#include <gtest/gtest.h>

#include "tests/data/prep/corpus_text.h"

namespace anyorder::data {
namespace {

DocumentStats StatsOf(const TestDocument& lines, size_t begin, size_t end) {
  DocumentStats stats;
  for (size_t i = begin; i < end; ++i) stats.AddLine(lines[i]);
  return stats;
}

Verdict JudgeLines(const TestDocument& lines) {
  return StatsOf(lines, 0, lines.size()).Judge(FilterOptions());
}

TEST(DocumentStatsTest, TwoPartsJoinedEqualTheWholeAtEveryCut) {
  const TestDocument lines = AllLines(MakeDocuments(300, 11));
  // Long enough that the limit on compared lines falls inside a part.
  ASSERT_GT(lines.size(), kMaxComparedLines + 50);
  const DocumentStats whole = StatsOf(lines, 0, lines.size());
  for (size_t cut = 0; cut <= lines.size(); cut += 37) {
    DocumentStats joined = StatsOf(lines, 0, cut);
    joined.Append(StatsOf(lines, cut, lines.size()));
    EXPECT_EQ(joined.Hash(), whole.Hash()) << cut;
    EXPECT_EQ(joined.totals.words, whole.totals.words);
    EXPECT_EQ(joined.totals.chars, whole.totals.chars);
    EXPECT_EQ(joined.totals.letters, whole.totals.letters);
    EXPECT_EQ(joined.line_hashes, whole.line_hashes) << cut;
  }
}

TEST(DocumentStatsTest, HashTellsOrderAndBoundariesOfLinesApart) {
  const auto hash = [](const TestDocument& lines) {
    return StatsOf(lines, 0, lines.size()).Hash();
  };
  EXPECT_EQ(hash({"a", "b"}), hash({"a", "b"}));
  EXPECT_NE(hash({"a", "b"}), hash({"b", "a"}));
  EXPECT_NE(hash({"a", "b"}), hash({"ab"}));
  EXPECT_NE(hash({"a", "a"}), hash({"a"}));
  EXPECT_NE(hash({"a", "b", "c"}), hash({"c", "b", "a"}));
}

TEST(DocumentStatsTest, CountsWordsCharactersAndLetters) {
  DocumentStats stats;
  stats.AddLine("two words, 34");
  EXPECT_EQ(stats.totals.words, 3u);
  EXPECT_EQ(stats.totals.chars, 11u);
  EXPECT_EQ(stats.totals.letters, 8u);
  stats.AddLine("\xE4\xBD\xA0\xE5\xA5\xBD x");  // two ideographs and a letter
  EXPECT_EQ(stats.totals.words, 6u);
  EXPECT_EQ(stats.totals.letters, 11u);
}

TEST(DocumentStatsTest, EachTestDropsItsKindOfDocument) {
  EXPECT_EQ(JudgeLines({"one two three four five"}), Verdict::kKeep);
  EXPECT_EQ(JudgeLines({"one two three four"}), Verdict::kShort);
  EXPECT_EQ(JudgeLines({"1 2 3 4 5 a"}), Verdict::kFewLetters);
  EXPECT_EQ(JudgeLines({"a b c d " + std::string(300, 'x')}), Verdict::kLongWords);
  EXPECT_EQ(JudgeLines({"buy it", "buy it", "buy it", "buy it", "sell it"}),
            Verdict::kRepeatedLines);
  // Half of the lines repeat an earlier one: allowed.
  EXPECT_EQ(JudgeLines({"buy it", "buy it", "sell it", "sell it"}), Verdict::kKeep);
  FilterOptions off;
  off.enabled = false;
  EXPECT_EQ(StatsOf({"x"}, 0, 1).Judge(off), Verdict::kKeep);
}

}  // namespace
}  // namespace anyorder::data
