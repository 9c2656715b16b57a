// What a person writes for a blank, and what is told of faults.

#include "launcher/texts/blanks/blank_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMost = 64;

// "the |2|? |fox": texts, blanks by their length (? unknown), [words].
std::string Drawn(const std::string& text) {
  const auto parsed = ParseBlankText(text, kMost);
  if (!parsed.ok()) return std::string(parsed.status().message());
  std::string drawn;
  for (const SourcePart& part : parsed->parts) {
    if (!drawn.empty()) drawn += "|";
    switch (part.kind) {
      case SourcePart::Kind::kText: drawn += part.text; break;
      case SourcePart::Kind::kBlank:
        drawn += part.length == 0 ? "?" : std::to_string(part.length);
        break;
      case SourcePart::Kind::kWords: drawn += "[" + part.text + "]"; break;
    }
  }
  return drawn;
}

void ExpectFault(const std::string& text, const std::string& message) {
  const auto parsed = ParseBlankText(text, kMost);
  ASSERT_FALSE(parsed.ok()) << text;
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(parsed.status(), Says(message)) << text;
}

TEST(BlankTextTest, BlanksStandAnywhere) {
  EXPECT_EQ(Drawn("a <mask> b"), "a |?| b");
  EXPECT_EQ(Drawn("___ b"), "?| b");
  EXPECT_EQ(Drawn("a ________"), "a |?");
  EXPECT_EQ(Drawn("un{3}able<mask>{64}"), "un|3|able|?|64");
  EXPECT_EQ(Drawn("<mask>"), "?");
}

TEST(BlankTextTest, WordsAreKeptWithTheirSpaces) {
  EXPECT_EQ(Drawn("the {{quick brown}} fox {{ a}}{{b}}"), "the |[quick brown]| fox |[ a]|[b]");
  EXPECT_EQ(Drawn("{{a}b}}"), "[a}b]");
}

TEST(BlankTextTest, WhatIsNoMarkIsText) {
  EXPECT_EQ(Drawn("a __ b } }} <mask <Mask> ___"), "a __ b } }} <mask <Mask> |?");
  EXPECT_EQ(Drawn("C:\\dir\\n {1}"), "C:\\dir\\n |1");
}

TEST(BlankTextTest, ABackslashMakesMarksOrdinary) {
  EXPECT_EQ(Drawn("\\{2} \\___ \\<mask> \\\\ {2}"), "{2} ___ <mask> \\ |2");
  EXPECT_EQ(Drawn("\\____"), "_|?");
  EXPECT_EQ(Drawn("{{\\{a\\}\\} \\_b\\\\}}"), "[{a}} _b\\]");
}

TEST(BlankTextTest, CharactersAreCountedFromOneAndNotInBytes) {
  const auto parsed = ParseBlankText("\u00E9\\{\U0001F600 {2}\u8A9E___", kMost).value();
  std::vector<int64_t> begins;
  for (const SourcePart* gap : parsed.gaps()) begins.push_back(gap->character);
  EXPECT_THAT(begins, ElementsAre(6, 10));
}

TEST(BlankTextTest, FaultsAreNamedWithTheirCharacter) {
  ExpectFault("", "the text has no blank; write <mask>, ___ or {n}");
  ExpectFault("plain", "the text has no blank");
  ExpectFault("\u00E9 {0}", "the blank {0} at character 3 must have from 1 to 64 tokens");
  ExpectFault("{65}", "the blank {65} at character 1 must have from 1 to 64 tokens");
  ExpectFault("{99999999999999999999}", "must have from 1 to 64 tokens");
  for (const std::string brace : {"{", "{}", "{3", "{n}", "{-1}", "{1.5}", "{ 3 }", "{ {2}"})
    ExpectFault("ab " + brace, "{ at character 4 begins neither {n}");
  ExpectFault("a {{b c", "{{ at character 3 is not closed; end the words with }}");
  ExpectFault("a {{b} c", "{{ at character 3 is not closed");
  ExpectFault("a {{b\\", "{{ at character 3 is not closed");
  ExpectFault("a {{}}", "{{}} at character 3 holds no words");
  ExpectFault("a {{ \u3000\t}}", "{{}} at character 3 holds no words");
  ExpectFault("a {{b {{c}}", "{ at character 7 is inside the {{words}} of character 3");
  ExpectFault("a {{b {2}}}", "{ at character 7 is inside the {{words}} of character 3");
  ExpectFault("a {{\u00E9 ___}}",
              "the blank at character 7 is inside the {{words}} of character 3");
  ExpectFault("a {{<mask>}}", "the blank at character 5 is inside the {{words}} of character 3");
  ExpectFault("a {{b}} ___", "a blank at character 9 and {{words}} at character 3");
  ExpectFault("{1} {{b}}", "a blank at character 1 and {{words}} at character 5");
}

// Any text of characters, blanks and words comes back, whatever its escapes.
TEST(BlankTextTest, WhatIsEscapedComesBack) {
  std::mt19937_64 random(std::random_device{}());
  const std::vector<std::string> characters = {"{", "}", "_", "<", "\\", "m", " ", "\u8A9E", "n"};
  const auto below = [&random](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 2000; ++round) {
    std::string written;
    std::string expected;
    const bool has_words = below(2) == 0;
    for (size_t part = 0; part < 4; ++part) {
      std::string inside = has_words ? "w" : "";
      std::string escaped = inside;
      for (size_t i = below(6); i > 0; --i) {
        const std::string& character = characters[below(characters.size())];
        inside += character;
        escaped += (std::string("{}_<\\").find(character) != std::string::npos ? "\\" : "");
        escaped += character;
      }
      if (part % 2 == 0) {
        written += escaped;
        expected += inside;
      } else {
        written += has_words ? "{{" + escaped + "}}" : "<mask>";
        expected += has_words ? inside : "#";
      }
    }
    const auto parsed = ParseBlankText(written, kMost);
    ASSERT_TRUE(parsed.ok()) << written << ": " << parsed.status();
    std::vector<std::string> words;
    for (const SourcePart* gap : parsed->gaps()) words.push_back(has_words ? gap->text : "#");
    EXPECT_EQ(parsed->With(words), expected) << written;
  }
}

}  // namespace
}  // namespace anyorder::launcher
