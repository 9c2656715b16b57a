#include "data/prep/cleaning.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"

#include "tests/testing/temporary_directory.h"

namespace anyorder::data {
namespace {

std::string Clean(std::string_view line, LetterCase letter_case = LetterCase::kCased) {
  std::string out = "left over from the line before";
  CleanLine(line, letter_case, out);
  return out;
}

TEST(CleaningTest, WhiteSpaceOfEveryKindCollapsesAndIsStripped) {
  EXPECT_EQ(Clean("  a \t b\r\n"), "a b");
  EXPECT_EQ(Clean("a\v\f\x1C\x1D\x1E\x1F"
                  "b"),
            "a b");
  EXPECT_EQ(Clean("a\xC2\x85\xC2\xA0\xE1\x9A\x80"
                  "b"),
            "a b");
  EXPECT_EQ(Clean("\xE2\x80\x83"
                  "a\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAF\xE2\x81\x9F\xE3\x80\x80"
                  "b"),
            "a b");
  EXPECT_EQ(Clean(" \t\xC2\xA0 "), "");
  // A zero-width space is a format character to Python, not white space.
  EXPECT_EQ(Clean("a\xE2\x80\x8B"
                  "b"),
            "a\xE2\x80\x8B"
            "b");
}

TEST(CleaningTest, DoubledQuotesBecomeOneFromTheLeft) {
  EXPECT_EQ(Clean("``a''"), "\"a\"");
  EXPECT_EQ(Clean("'''"), "\"'");
  EXPECT_EQ(Clean("''''"), "\"\"");
  EXPECT_EQ(Clean("'`'`"), "'`'`");
  EXPECT_EQ(Clean("' '"), "' '");
  EXPECT_EQ(Clean("don't"), "don't");
}

TEST(CleaningTest, CompatibilityFormsDecomposeAndAccentsGo) {
  EXPECT_EQ(Clean("caf\xC3\xA9"), "cafe");     // precomposed
  EXPECT_EQ(Clean("cafe\xCC\x81"), "cafe");    // combining acute
  EXPECT_EQ(Clean("\xEF\xAC\x81ne"), "fine");  // fi ligature
  EXPECT_EQ(Clean("x\xC2\xB2"), "x2");         // superscript two
  EXPECT_EQ(Clean("\xC3\x98"), "\xC3\x98");    // O with stroke has no decomposition
  EXPECT_EQ(Clean("\xEA\xB0\x80"), "\xE1\x84\x80\xE1\x85\xA1");  // Hangul syllable -> jamo
  EXPECT_EQ(Clean("\xCC\x81"), "");                              // an accent alone
  // Spacing marks have combining class 0 and stay (Devanagari vowel sign aa); the virama (9) goes.
  EXPECT_EQ(Clean("\xE0\xA4\x95\xE0\xA4\xBE\xE0\xA5\x8D"), "\xE0\xA4\x95\xE0\xA4\xBE");
  // The quotes are replaced before decomposition, so those that come out of it stay.
  EXPECT_EQ(Clean("\xEF\xBC\x87\xEF\xBC\x87"), "''");
}

TEST(CleaningTest, LowerCaseOnlyWhenUncased) {
  EXPECT_EQ(Clean("AbC \xC3\x89"), "AbC E");
  EXPECT_EQ(Clean("AbC", LetterCase::kUncased), "abc");
  EXPECT_EQ(Clean("\xC3\x89T\xC3\x89 \xD0\x96", LetterCase::kUncased), "ete \xD0\xB6");
  // Capital sigma: final form at the end of a word.
  EXPECT_EQ(Clean("\xCE\x9F\xCE\xA3 \xCE\xA3\xCE\x9F", LetterCase::kUncased),
            "\xCE\xBF\xCF\x82 \xCF\x83\xCE\xBF");
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
    ASSERT_EQ(Clean(line, LetterCase::kUncased), uncased) << line;
    final_sigmas += uncased.find("\xCF\x82") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(count, 20'000);
  EXPECT_GE(final_sigmas, 1'000);
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
}

}  // namespace
}  // namespace anyorder::data
