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
