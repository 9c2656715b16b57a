// What is no prompt is refused with its line in the user's own file.

#include "launcher/inference/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/status.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PromptsTest : public ::testing::Test {
 protected:
  void ExpectRefused(const std::string& name, const std::string& bytes,
                     const std::string& message) const {
    EXPECT_THAT(ReadPrompts(folder_.Write(name, bytes)).status(), Exits(kExitData, message));
  }

  const TemporaryDirectory folder_;
};

TEST_F(PromptsTest, EachLineIsOne) {
  const auto text = ReadPrompts(folder_.Write("a.txt", "one\r\n\n\xC3\xA9")).value();
  EXPECT_THAT(text, ElementsAre("one", "", "\xC3\xA9"));
  const auto json =
      ReadPrompts(folder_.Write("a.jsonl", "{\"text\": \"a\\nb\"}\n{\"text\": \"\"}\n")).value();
  EXPECT_THAT(json, ElementsAre("a\nb", ""));
  const auto apart =
      ReadInputLines(folder_.Write("b.jsonl", "\n{}\r\n\n{}"), ObjectLines::kNowhere).value();
  ASSERT_EQ(apart.size(), 2u);
  EXPECT_EQ(apart[1].number, 4);
}

TEST_F(PromptsTest, LinesMayBeObjectsInAnyFile) {
  const auto lines = ReadPromptLines(folder_.Write("a.txt", "{1} x\n{\"text\": \"a\", \"n\": 1}\n"),
                                     ObjectLines::kBySign)
                         .value();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].text, "{1} x");
  EXPECT_TRUE(lines[0].object.is_null());
  EXPECT_THAT(lines[0].place, HasSubstr("a.txt:1"));
  EXPECT_EQ(lines[1].text, "a");
  EXPECT_EQ(lines[1].object["n"], 1);
  const auto plain = ReadPrompts(folder_.Write("b.txt", "{\"text\": \"a\"}\n")).value();
  EXPECT_THAT(plain, ElementsAre("{\"text\": \"a\"}"));
}

TEST_F(PromptsTest, OtherThingsAreRefusedWithTheirPlace) {
  ExpectRefused("a.txt", std::string("good\nba\0d\n", 10), "a.txt:2: byte 2 of the line is NUL");
  ExpectRefused("a.jsonl", "{\"text\": \"good\"}\n{\"text\": \"\\u0000\"}\n",
                "a.jsonl:2: byte 0 of 'text' is NUL");
  ExpectRefused("a.txt", "good\n\xFF\n", "a.txt:2: byte 0 of the line is not valid UTF-8");
  ExpectRefused("a.txt", "", "holds no prompt");
  ExpectRefused("a.jsonl", "{\"text\": " + std::string(100'000, '[') + "\n",
                "a.jsonl:1: JSON that is nested deeper than 64 levels");
  ExpectRefused("a.json", "{\"words\": \"a\"}\n", "a.json:1: there is no 'text'");
  ExpectRefused("a.ndjson", "{\"text\": 1}\n", "a.ndjson:1: 'text' is not a string");
  ExpectRefused("a.jsonl", "\n{\"words\": \"a\"}\n", "a.jsonl:2: there is no 'text'");
  ExpectRefused("a.jsonl", "\n\n", "holds no prompt");
}

}  // namespace
}  // namespace anyorder::launcher
