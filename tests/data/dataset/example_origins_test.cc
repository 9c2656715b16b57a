#include "data/dataset/example_origins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "data/dataset/dataset.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/example_files.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

TEST(CharactersTest, CodePointsAreCounted) {
  const std::string text = "a\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80z";
  EXPECT_EQ(NumCharacters(text), 5);
  EXPECT_EQ(CharactersOf(text, {1, 4}), "\xC3\xA9\xE6\x97\xA5\xF0\x9F\x98\x80");
  EXPECT_EQ(CharactersOf(text, {4, 9}), "z");
  EXPECT_EQ(CharactersOf(text, {7, 9}), "");
  EXPECT_EQ(CharactersOf(text, {2, 2}), "");
}

class ExampleOriginsTest : public TextFolderTest {
 protected:
  // Three questions; the first two have passages of 7 and 6 tokens, the third one of 7.
  ExampleOriginsTest() : TextFolderTest(TestStream::Random(400, 1000, 5)) {
    TestExamples examples = TestExamples::Questions(30);
    examples.examples = {{{0, 1}, {1, 7}}, {{8, 2}, {10, 6}}, {{16, 1}, {17, 7}}};
    examples.labels = {1, 0, -1};
    examples.answers = {{0, 2}, {-1, -1}, {-1, -1}};
    examples.AddTo(folder_);
  }

  absl::StatusOr<std::unique_ptr<ExampleOrigins>> Open(const std::string& lines) {
    WriteFile(folder_ + "/" + kOriginsFile, lines);
    DatasetIndex index = ReadDatasetIndex(folder_).value();
    index.examples->origins = {kOriginsFile, lines.size(), DigestOf(lines).Hex()};
    WriteFile(folder_ + "/" + kIndexFile, SerializeDatasetIndex(index));
    dataset_ = Dataset::Open(folder_, {.verify = true}).value();
    return ExampleOrigins::Open(*FileSystem::Posix(), folder_, dataset_->index(),
                                *dataset_->examples());
  }
  void ExpectRefused(int64_t example, const std::string& lines, const std::string& message) {
    EXPECT_THAT(Open(lines).value()->Read(example).status(), Fails(absl::IsDataLoss, message))
        << lines;
  }

  std::unique_ptr<Dataset> dataset_;
};

constexpr char kFirst[] =
    R"({"answers":[{"start":1,"text":"b"}],"id":"q1","passage":"abcdefg","tokens":[0,1,1,2,2,3,3,4,4,5,5,6,6,7]})"
    "\n";
constexpr char kSecond[] =
    R"({"answers":[],"passage":"h ijklm","tokens":[0,1,2,3,3,4,4,5,5,6,6,7]})"
    "\n";

TEST_F(ExampleOriginsTest, PassagesAreSharedAndAnswersComeBack) {
  const auto origins =
      Open(absl::StrCat(kFirst, kSecond, "{\"passage_of\":0,\"id\":\"q3\"}\n")).value();
  for (const int64_t example : {2, 0, 1, 2}) {  // in any order
    const ExampleOrigin origin = origins->Read(example).value();
    EXPECT_EQ(origin.id, example == 0 ? "q1" : example == 1 ? "" : "q3");
    EXPECT_EQ(origin.passage->text, example == 1 ? "h ijklm" : "abcdefg");
    EXPECT_EQ(origin.passage->tokens[1],
              example == 1 ? (CharacterRange{2, 3}) : (CharacterRange{1, 2}));
    ASSERT_EQ(origin.answers.has_value(), example != 2);
    if (example == 0) {
      EXPECT_EQ(origin.answers->at(0).text, "b");
      EXPECT_EQ(origin.answers->at(0).begin, 1);
    }
  }
}

TEST_F(ExampleOriginsTest, WhatCannotBeIsRefusedWithItsLine) {
  const std::string rest = absl::StrCat(kSecond, "{\"passage_of\":0}\n");
  ExpectRefused(0, "[]\n" + rest, "sources.jsonl:1: not a JSON object");
  ExpectRefused(2, "[]\n" + rest, "sources.jsonl:3: not a JSON object");
  ExpectRefused(0, "{}\n" + rest, "there is no valid 'passage'");
  ExpectRefused(0, "{\"passage\":\"abcdefg\",\"tokens\":[0,1]}\n" + rest,
                "'tokens' is not a list of 14 numbers");
  const auto with_tokens = [&](const std::string& tokens) {
    return absl::StrCat("{\"passage\":\"abcdefg\",\"tokens\":[", tokens, "]}\n", rest);
  };
  ExpectRefused(0, with_tokens("0,1,1,2,2,3,3,4,4,5,5,6,6,8"), "characters 6 to 8 of 7");
  ExpectRefused(0, with_tokens("0,1,1,2,2,3,3,4,4,5,5,6,6,-1"), "no number");
  ExpectRefused(0, with_tokens("0,1,1,2,2,3,3,4,4,5,3,6,6,7"), "token 5 has characters 3 to 6");
  ExpectRefused(0, with_tokens("0,1,1,2,2,3,3,4,5,4,5,6,6,7"), "token 4 has characters 5 to 4");
  ExpectRefused(1, absl::StrCat(kFirst, "{\"passage_of\":0}\n", kSecond),
                "the passage has 7 tokens, not 6");
  ExpectRefused(1, absl::StrCat(kFirst, "{\"passage_of\":2}\n", kSecond), "a later example");
  ExpectRefused(1, absl::StrCat(kFirst, "{\"passage_of\":\"0\"}\n", kSecond), "'passage_of'");
  ExpectRefused(0, absl::StrCat("{\"id\":1}\n", rest), "'id'");
  ExpectRefused(2, absl::StrCat(kFirst, kSecond, "{\"passage_of\":0,\"answers\":[1]}\n"), "'text'");
  EXPECT_THAT(Open(kFirst).status(), Says("1 lines for 3 examples"));
}

TEST_F(ExampleOriginsTest, DamageIsFound) {
  const std::string path = folder_ + "/" + kOriginsFile;
  ASSERT_TRUE(Open(absl::StrCat(kFirst, kSecond, "{\"passage_of\":0}\n")).ok());
  FlipBit(path, 5);
  const auto opened =
      ExampleOrigins::Open(*FileSystem::Posix(), folder_, dataset_->index(), *dataset_->examples());
  EXPECT_TRUE(absl::IsDataLoss(opened.status())) << opened.status();
  EXPECT_TRUE(absl::IsDataLoss(Dataset::Open(folder_, {.verify = true}).status()));
}

}  // namespace
}  // namespace anyorder::data
