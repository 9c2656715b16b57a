#include "data/prep/cleaning.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"

#include "tests/testing/temporary_directory.h"

namespace anyorder::data {
namespace {

std::string Clean(std::string_view line, const Cleaning& cleaning = {}) {
  std::string out = "left over from the line before";
  CleanLine(line, cleaning, out);
  return out;
}

TEST(CleaningTest, GeneratedLinesAreCleanedAsByPython) {
  const TemporaryDirectory folder;
  const char* const source = std::getenv("ANYORDER_SOURCE");
  ASSERT_NE(source, nullptr) << "CTest sets it";
  const std::string command = absl::StrCat(
      "python3 '", source, "/tests/data/prep/clean_lines.py' '", folder.path(), "/lines'");
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream lines(folder.path() + "/lines");
  int count = 0;
  int final_sigmas = 0;
  for (std::string line, cased, uncased;
       std::getline(lines, line) && std::getline(lines, cased) && std::getline(lines, uncased);
       ++count) {
    ASSERT_EQ(Clean(line), cased) << line;
    ASSERT_EQ(Clean(line, {LetterCase::kUncased}), uncased) << line;
    final_sigmas += uncased.find("\xCF\x82") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(count, 20'000);
  EXPECT_GE(final_sigmas, 1'000);
}

TEST(CleaningTest, EachModeMakesItsSteps) {
  const struct {
    const char *line, *xlnet, *accents;  // uncased; none is str.lower() alone
    const char* none;
  } cases[] = {
      {"\tIf  x:\u00a0 \u3000", "if x:", "if x:", "\tif  x:\u00a0 \u3000"},
      {"``a''", "\"a\"", "\"a\"", "``a''"},
      {"\u304c", "\u304b", "\u304c", "\u304c"},
      {"\u0e44\u0e21\u0e48\u0e43\u0e0a\u0e48", "\u0e44\u0e21\u0e43\u0e0a",
       "\u0e44\u0e21\u0e48\u0e43\u0e0a\u0e48", "\u0e44\u0e21\u0e48\u0e43\u0e0a\u0e48"},
      {"\u0938\u094d\u0924\u0947", "\u0938\u0924\u0947", "\u0938\u094d\u0924\u0947",
       "\u0938\u094d\u0924\u0947"},
      {"Vi\u1ec7t", "viet", "vi\u1ec7t", "vi\u1ec7t"},
      {"\u05e9\u05b8", "\u05e9", "\u05e9\u05b8", "\u05e9\u05b8"},
      {"\u0645\u064e\u0631", "\u0645\u0631", "\u0645\u064e\u0631", "\u0645\u064e\u0631"},
      {"\U0001F468\u200d\U0001F469", "\U0001F468\u200d\U0001F469", "\U0001F468\u200d\U0001F469",
       "\U0001F468\u200d\U0001F469"},
      {"a\u2028\ufb01", "a fi", "a \ufb01", "a\u2028\ufb01"},
  };
  for (const auto& [line, xlnet, accents, none] : cases) {
    EXPECT_EQ(Clean(line, {LetterCase::kUncased}), xlnet);
    EXPECT_EQ(Clean(line, {LetterCase::kUncased, CleanMode::kAccents}), accents);
    EXPECT_EQ(Clean(line, {LetterCase::kUncased, CleanMode::kNone}), none);
    EXPECT_EQ(Clean(line, {.mode = CleanMode::kNone}), line);
  }
}

TEST(CleaningTest, LettersThatLoseMarksAreCountedByScript) {
  MarkCounts marks;
  std::string out;
  // A letter of two marks counts once; marks of no letter, or that stay, not at all.
  for (const char* line : {"plain ascii, 12 of 12", "Vi\u1ec7t, e\u0302\u0301",
                           "1\u0301 \u304c\u304b\u3099\u304b", "\u0938\u094d\u0924\u0947"})
    CleanLine(line, {}, out, nullptr, &marks);
  std::map<std::string, std::pair<uint64_t, uint64_t>> found;
  for (size_t i = 0; i < std::size(kScripts); ++i) {
    found[kScripts[i].second].first += marks.letters[i];
    found[kScripts[i].second].second += marks.bare[i];
  }
  EXPECT_EQ(found["Latin"], std::pair(uint64_t{12 + 5}, uint64_t{2}));
  EXPECT_EQ(found["kana"], std::pair(uint64_t{3}, uint64_t{2}));
  EXPECT_EQ(found["Devanagari"], std::pair(uint64_t{2}, uint64_t{1}));
}

TEST(CleaningTest, FirstInvalidByteFindsEachKindOfFault) {
  EXPECT_EQ(FirstInvalidByte(""), 0u);
  EXPECT_EQ(FirstInvalidByte("plain ascii text"), 16u);
  EXPECT_EQ(FirstInvalidByte("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"), 14u);
  EXPECT_EQ(FirstInvalidByte("0123456789\x80"), 10u);                     // lone continuation
  EXPECT_EQ(FirstInvalidByte("ab\xC3"), 2u);                              // cut sequence
  EXPECT_EQ(FirstInvalidByte("ab\xC0\xAF"), 2u);                          // overlong
  EXPECT_EQ(FirstInvalidByte("ab\xED\xA0\x80"), 2u);                      // surrogate
  EXPECT_EQ(FirstInvalidByte("ab\xF4\x90\x80\x80"), 2u);                  // above U+10FFFF
  EXPECT_EQ(FirstInvalidByte(std::string_view("abcdefghi\0x", 11)), 9u);  // NUL
  EXPECT_EQ(FirstInvalidByte(std::string_view("a\xFF\0", 3)), 1u);        // the earlier fault wins
  // Whatever stands before it, in runs of any length.
  for (size_t length = 0; length < 5000; length += 1 + length / 7) {
    const std::string plain(length, 'a');
    const std::string mixed = plain + "\xC3\xA9" + plain;
    for (const std::string& good : {plain, mixed}) {
      EXPECT_EQ(FirstInvalidByte(good), good.size());
      EXPECT_EQ(FirstInvalidByte(good + '\0' + "b"), good.size());
      EXPECT_EQ(FirstInvalidByte(good + "\xC3"), good.size());
      EXPECT_EQ(FirstInvalidByte(good + "\x80" + "b"), good.size());
    }
  }
}

TEST(CleaningTest, HalvesOfSurrogatePairsAreReplacedInJson) {
  const std::tuple<std::string, std::string, size_t> cases[] = {
      {"", "", 0},
      {R"("\ud83d\udE00 \u00e9 \\ud800")", R"("\ud83d\udE00 \u00e9 \\ud800")", 0},
      {R"("\uD800")", R"("\ufffd")", 1},
      {R"("\udc00\ud800\ud83d\ude00\n\udfff")", R"("\ufffd\ufffd\ud83d\ude00\n\ufffd")", 3},
      {R"("\ud800\u0041")", R"("\ufffd\u0041")", 1},
      {R"("\ud80)", R"("\ud80)", 0},
      {R"("\ud800\)", R"("\ufffd\)", 1}};
  for (const auto& [json, expected, count] : cases) {
    std::string repaired = json;
    EXPECT_EQ(ReplaceHalfPairs(repaired), count) << json;
    EXPECT_EQ(repaired, expected);
  }
}

TEST(CleaningTest, ReplacementsCountAndKeepTheRest) {
  std::string out = "> ";
  EXPECT_EQ(AppendWithReplacements(std::string_view("a\xFF"
                                                    "b\0c\xC3",
                                                    6),
                                   out),
            3u);
  EXPECT_EQ(out,
            "> a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD"
            "c\xEF\xBF\xBD");
  EXPECT_EQ(FirstInvalidByte(out), out.size());
  // In a time that grows with the text: what looks at the rest for each fault takes hours.
  for (const char* const fault : {"\x80", "\xE2\x80", "a\xFF", "\xC3 "}) {
    std::string bad;
    while (bad.size() < (16 << 20)) bad += fault;
    out.clear();
    EXPECT_GE(AppendWithReplacements(bad, out), bad.size() / 3);
  }
  out.clear();
  EXPECT_EQ(AppendWithReplacements(std::string(16 << 20, '\0'), out), size_t{16} << 20);
}

}  // namespace
}  // namespace anyorder::data
