// Words with tags from JSON lines to a dataset, through the program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "data/dataset/dataset.h"
#include "tests/data/prep/corpus_text.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kNews[] =
    "{\"words\":[\"Eu\",\"unbelievable\",\"2,000\",\"caf\\u00e9\"],"
    "\"tags\":[\"B-ORG\",\"O\",\"O\",\"B-MISC\"]}\n"
    "\n"
    "{\"tags\":null,\"words\":[\" New  York\",\"left\"]}\n";

class TaggedWordsTest : public ExampleFolderTest {
 protected:
  // What the tokens of the words have.
  std::vector<int32_t> OnFirstPieces(const std::vector<std::string>& words,
                                     const std::vector<int32_t>& tags) const {
    std::vector<int32_t> result;
    for (size_t i = 0; i < words.size(); ++i) {
      result.push_back(tags[i]);
      result.resize(result.size() + Ids(words[i]).size() - 1, kNoTag);
    }
    return result;
  }
};

TEST_F(TaggedWordsTest, TheFirstPieceOfAWordHasItsTag) {
  const ProgramResult result = Done(Run(Store("a.jsonl", kNews), output_));
  EXPECT_THAT(result.out, HasSubstr("examples: 2 of token_classification, 1 without a label"));
  const auto dataset = Dataset::Open(output_, {.verify = true}).value();
  const StoredExamples& examples = *dataset->examples();
  EXPECT_EQ(examples.task(), ExampleTask::kTokens);
  EXPECT_EQ(examples.num_classes(), 3);
  EXPECT_THAT(dataset->index().examples->classes, ElementsAre("O", "B-MISC", "B-ORG"));
  const Example known = examples.ReadExample(0).value();
  // The pieces of the whole text.
  EXPECT_THAT(known.parts, ElementsAre(Ids("Eu unbelievable 2,000 cafe")));
  EXPECT_EQ(known.tags, OnFirstPieces({"Eu", "unbelievable", "2,000", "cafe"}, {2, 0, 0, 1}));
  EXPECT_GT(known.tags.size(), 4u);
  EXPECT_EQ(known.label, 0);
  const Example unknown = examples.ReadExample(1).value();
  EXPECT_THAT(unknown.parts, ElementsAre(Ids("New York left")));
  EXPECT_EQ(unknown.tags, OnFirstPieces({"New York", "left"}, {kUnknownTag, kUnknownTag}));
  EXPECT_EQ(unknown.label, -1);
  EXPECT_EQ(dataset->index().counts.at("examples_unlabelled"), 1u);
}

TEST_F(TaggedWordsTest, TheSameInputGivesTheSameBytes) {
  Done(Run(Store("a.jsonl", kNews), output_));
  Done(Run(Store("a.jsonl.gz", Gzip(kNews)), folder_ + "/again"));
  EXPECT_TRUE(ReadTree(output_) == ReadTree(folder_ + "/again"));
}

TEST_F(TaggedWordsTest, TheDigestIsThatOfWordsAndTags) {
  std::vector<std::string> digests;
  for (const char* line :
       {"{\"words\":[\"a\",\"b\"],\"tags\":[\"O\",\"B\"]}",
        "{\"words\":[\"a\",\"b\"],\"tags\":[\"B\",\"O\"]}", "{\"words\":[\"a\",\"b\"]}",
        "{\"words\":[\"a b\"]}", "{\"words\":[\"a\"],\"tags\":[\"b\"]}"}) {
    const std::string output = absl::StrCat(folder_, "/of-", digests.size());
    const std::string rest = "\n{\"words\":[\"x\",\"y\"],\"tags\":[\"B\",\"O\"]}\n";
    Done(Run(Store("a.jsonl", line + rest), output));
    const std::string digest = ReadDatasetIndex(output)->corpus_digest;
    EXPECT_THAT(digests, testing::Not(testing::Contains(digest))) << line;
    digests.push_back(digest);
  }
}

TEST_F(TaggedWordsTest, HeldOutTagsHaveTheNumbersOfTheTrainingData) {
  Done(Run(Store("train.jsonl", kNews), output_));
  const std::vector<std::string> more = {"--labels-from", output_};
  const std::string dev = Store("dev.jsonl",
                                "{\"words\":[\"a\"],\"tags\":[\"B-ORG\"]}\n"
                                "{\"words\":[\"a\"]}");
  const ProgramResult result = Done(Run(dev, folder_ + "/dev", more));
  const auto dataset = Dataset::Open(folder_ + "/dev").value();
  EXPECT_THAT(dataset->index().examples->classes, ElementsAre("O", "B-MISC", "B-ORG"));
  EXPECT_EQ(dataset->examples()->ReadExample(0)->tags, OnFirstPieces({"a"}, {2}));
  EXPECT_EQ(dataset->examples()->ReadExample(1)->tags, OnFirstPieces({"a"}, {kUnknownTag}));
  ExpectRefusal(
      Run(Store("bad.jsonl", "{\"words\":[\"a\"],\"tags\":[\"B-LOC\"]}"), folder_ + "/bad", more),
      65, "bad.jsonl:1: the label 'B-LOC' is not one of --labels-from");
  ExpectRefusal(
      Run(Store("other.jsonl", "{\"text\":\"a\",\"label\":\"O\"}"), folder_ + "/bad", more), 65,
      "classification among those of token_classification");
}

TEST_F(TaggedWordsTest, FieldsMayHaveOtherNamesAndTagsBeNumbers) {
  const std::string line = "\"tokens\":[\"a\",\"b\",\"a\"],\"ner_tags\":[10,9,0]}\n";
  const std::vector<std::string> names = {"--field", "words=tokens", "tags=ner_tags"};
  Done(Run(Store("a.jsonl", "{\"id\":\"7\"," + line), output_, names));
  EXPECT_THAT(ReadDatasetIndex(output_)->examples->classes, ElementsAre("0", "9", "10"));
  // --field words=NAME makes it a task of words, although there is a text.
  const std::string beside = folder_ + "/beside";
  Done(Run(Store("b.jsonl", "{\"text\":\"a b a\"," + line), beside, names));
  EXPECT_EQ(ReadDatasetIndex(beside)->corpus_digest, ReadDatasetIndex(output_)->corpus_digest);
  // Without it the field `words` is ignored, whatever it holds.
  const std::string counted =
      "{\"text\":\"a\",\"words\":1,\"label\":0}\n{\"text\":\"b\",\"words\":1,\"label\":1}\n";
  Done(Run(Store("c.jsonl", counted), folder_ + "/counted"));
  EXPECT_EQ(ReadDatasetIndex(folder_ + "/counted")->examples->task, ExampleTask::kClassification);
}

TEST_F(TaggedWordsTest, BadInputIsNamedByFileLineAndField) {
  const std::string good = "{\"words\":[\"a\"],\"tags\":[\"O\"]}\n";
  for (const char* words : {"\"a b\"", "[]", "3", "null"}) {
    ExpectRefused("a.jsonl", absl::StrCat(good, "{\"words\":", words, "}"),
                  "a.jsonl:2: the field 'words' is not a list of one word or more, such as [");
  }
  ExpectRefused("a.jsonl", "{\"words\":[\"a\",7]}",
                "a.jsonl:1: the field 'words[1]' is not a string; put quotes");
  ExpectRefused("a.jsonl", "{\"words\":[\"a\",\" \\t\"]}",
                "a.jsonl:1: the field 'words[1]' holds no text; leave the word out, and its tag");
  ExpectRefused("a.jsonl", "{\"words\":[\"a\\u0000\"]}", "the field 'words[0]' holds NUL");
  const std::string half(40'000, 'x');
  ExpectRefused("a.jsonl", absl::StrCat("{\"words\":[\"", half, "\",\"", half, "\"]}"),
                "with the field 'words[1]' the words have 80001 bytes but may have 65536");
  // SentencePiece drops it.
  ExpectRefused("a.jsonl", "{\"words\":[\"a\",\"\\u0001\"]}",
                "(number 1, from 0) has no piece of the vocabulary; leave it out");
  ExpectRefused("a.jsonl", "{\"words\":[\"a\"],\"tags\":\"O\"}",
                "a.jsonl:1: the field 'tags' is not a list of tags, one for each word");
  ExpectRefused("a.jsonl", "{\"words\":[\"a\",\"b\"],\"tags\":[\"O\"]}",
                "the field 'tags' has 1 tags, but the field 'words' has 2 words; give each word");
  for (const char* tag : {"\"\"", "1.5", "null", "[\"O\"]"}) {
    ExpectRefused("a.jsonl", absl::StrCat("{\"words\":[\"a\"],\"tags\":[", tag, "]}"),
                  "'tags[0]' is not the name or the whole number of a class");
  }
  ExpectRefused("a.jsonl", good, "a.jsonl' have one tag only, 'O', but telling classes apart");
  ExpectRefused("a.jsonl", "{\"words\":[\"a\"]}",
                "have no tag, but telling classes apart takes two at least; where the tags are "
                "called otherwise, pass --field tags=NAME");
  ExpectRefused("a.jsonl", good + "{\"text\":\"x\"}", "a.jsonl:2: an example of classification");
  ExpectRefused("a.csv", "words,tags\na b,O O\n",
                "a.csv:2: the field 'words' is not a list of one word or more, which tables do not "
                "have; write the examples as .jsonl");
}

TEST_F(TaggedWordsTest, AnOfficialTaskBecomesADataset) {
  const std::string rows = "EU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\nPeter NNP I-NP I-PER\n";
  const ProgramResult result =
      Done(RunPrepProgram({"--task", "conll2003", "--input", Store("eng.testa", rows), "--output",
                           output_, "--vocab", TestModelPath()}));
  EXPECT_THAT(result.out, HasSubstr("--set objective.num_classes=9\n"));
  const auto dataset = Dataset::Open(output_, {.verify = true}).value();
  EXPECT_EQ(dataset->index().settings.at("task"), "conll2003");
  EXPECT_EQ(dataset->examples()->ReadExample(0)->tags, OnFirstPieces({"EU", "rejects"}, {3, 0}));
  EXPECT_EQ(dataset->examples()->ReadExample(1)->tags, OnFirstPieces({"Peter"}, {1}));
}

}  // namespace
}  // namespace anyorder::data
