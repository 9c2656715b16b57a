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

// Words that stand without spaces, or with other marks between them.
TEST(DocumentStatsTest, NoScriptIsDroppedForItsSpaces) {
  const std::pair<const char*, const char*> scripts[] = {
      {"Tibetan", "\u0f56\u0f7c\u0f51\u0f0b\u0f66\u0f90\u0f51\u0f0b"},
      {"bare Tibetan", "\u0f56\u0f51\u0f0b\u0f66\u0f0b"},
      {"Ethiopic", "\u1230\u120b\u121d\u1361\u1208\u12d3\u1208\u121d\u1361"},
      {"Thai", "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22"},
      {"Lao", "\u0e9e\u0eb2\u0eaa\u0eb2\u0ea5\u0eb2\u0ea7"},
      {"Khmer", "\u1797\u17b6\u179f\u17b6\u1781\u17d2\u1798\u17c2\u179a"},
      {"Khmer with spaces of no width",
       "\u1797\u17b6\u179f\u17b6\u200b\u1781\u17d2\u1798\u17c2\u179a\u200b"},
      {"Myanmar", "\u1019\u103c\u1014\u103a\u1019\u102c"},
      {"Shan", "\uaa60\uaa61\uaa62\ua9e0"},
      {"Chinese", "\u4e2d\u6587\u5206\u8bcd"},
      {"Japanese", "\u304c\u3093\u3070\u308b\u65e5\u672c"},
      {"Japanese of half width", "\uff76\uff80\uff76\uff85"},
      {"Bopomofo", "\u3105\u3106\u3107"},
      {"Javanese", "\ua98f\ua9ae\ua9b6"},
      {"Balinese", "\u1b13\u1b31\u1b36"},
      {"Yi", "\ua188\ua320\ua071"},
      {"Tai Tham", "\u1a20\u1a23\u1a55"},
      {"rare ideographs", "\U00020000\U0002A6DE"},
  };
  for (const auto& [name, text] : scripts) {
    std::string line;
    while (line.size() < 2000) line += text;
    EXPECT_EQ(JudgeLines({line, line + text}), Verdict::kKeep) << name;
  }
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
