// The files of CoNLL's shared tasks, written here in their official form.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

#include "tests/data/prep/corpus_text.h"
#include "tests/data/prep/examples/official_reading.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class TaggingTest : public OfficialTaskTest {};

TEST_F(TaggingTest, EntitiesOfBothSchemesAreTheSame) {
  const std::string released =
      "-DOCSTART- -X- -X- O\n\n"
      "EU NNP I-NP I-ORG\nrejects VBZ I-VP O\nGerman JJ I-NP I-MISC\ncall NN I-NP O\n\n"
      "-DOCSTART- -X- O O\n\n"
      "Rome NNP I-NP I-LOC\nParis NNP I-NP B-LOC\nParis NNP I-NP I-LOC\nUN NNP I-NP I-ORG\n"
      "Fiat NNP I-NP I-PER\n. . O O\n";
  const OfficialResult iob1 = Read("conll2003", "eng.train", released);
  const ReadBack first = {"eng.train:3", "", {"EU rejects German call"}, "B-ORG O B-MISC O"};
  const ReadBack second = {
      "eng.train:10", "", {"Rome Paris Paris UN Fiat ."}, "B-LOC B-LOC I-LOC B-ORG B-PER O"};
  EXPECT_THAT(iob1.examples, ElementsAre(first, second));
  EXPECT_THAT(iob1.left_out, IsEmpty());
  const std::string copied =
      absl::StrReplaceAll(released, {{"I-ORG", "B-ORG"},
                                     {"I-MISC", "B-MISC"},
                                     {"Rome NNP I-NP I-LOC", "Rome\tNNP\tI-NP B-LOC"},
                                     {"I-PER", "B-PER"},
                                     {"\n", " \r\n"}});
  EXPECT_EQ(Read("conll2003", "eng.train", copied).examples, iob1.examples);
}

TEST_F(TaggingTest, FilesMayHaveAnyName) {
  const std::string rows = "He PRP B-NP\nleft VBD B-VP\n. . O\n";
  const std::string expected = "B-NP B-VP O";
  for (const char* name : {"train.txt", "test", "wsj.15-18", "a.json"}) {
    const OfficialResult plain = Read("conll2000", name, rows);
    EXPECT_THAT(plain.examples,
                ElementsAre(ReadBack{absl::StrCat(name, ":1"), "", {"He left ."}, expected}));
    const OfficialResult packed = Read("conll2000", absl::StrCat(name, ".gz"), Gzip(rows));
    EXPECT_EQ(packed.examples.at(0).label, expected);
  }
  EXPECT_EQ(Read("conll2000", "test.txt.zst", Zstd(rows)).examples.at(0).label, expected);
  ExpectFault("conll2000", "", "is a directory, but --task conll2000 reads one file");
  ExpectFault("conll2000", "", "it holds a.json, a.json.gz");
}

TEST_F(TaggingTest, ClassesHaveTheirOrder) {
  EXPECT_THAT(
      (*FindOfficialTask("conll2003"))->classes,
      ElementsAre("O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"));
  const std::vector<std::string>& chunks = (*FindOfficialTask("conll2000"))->classes;
  ASSERT_EQ(chunks.size(), 23u);
  EXPECT_EQ(chunks[1], "B-ADJP");
  EXPECT_EQ(chunks[22], "I-VP");
}

TEST_F(TaggingTest, TestDataMayHaveNoTags) {
  const OfficialResult test =
      Read("conll2003", "eng.testb", "\n\n-DOCSTART- -X- O\n\nEU NNP I-NP\nleft VBD I-VP\n \t\n\n");
  EXPECT_THAT(test.examples, ElementsAre(ReadBack{"eng.testb:5", "", {"EU left"}, ""}));
  ExpectFault("conll2003", "f.txt", "EU NNP I-NP I-ORG\n\nleft VBD I-VP\n",
              "f.txt:3: the row has 3 columns, but the rows before it have 4; all have a tag or");
  ExpectFault("conll2000", "f.txt", "EU NNP\nleft VBD B-VP\n",
              "f.txt:2: the row has 3 columns, but the rows before it have 2");
}

TEST_F(TaggingTest, BadRowsAreNamedByFileAndLine) {
  const std::string good = "EU NNP I-NP I-ORG\n";
  ExpectFault("conll2003", "f.txt", good + "left VBD\n",
              "f.txt:2: the row has 2 columns, but those of --task conll2003 have 4, or 3 without "
              "the tag; name eng.train");
  ExpectFault("conll2003", "f.txt", good + "left\n", "f.txt:2: the row has 1 column, but");
  ExpectFault("conll2000", "f.txt", good, "f.txt:1: the row has 4 columns");
  ExpectFault("conll2003", "f.txt", good + "left VBD I-VP I-VP\n",
              "f.txt:2: the tag 'I-VP' is none of O, B-PER, I-PER, B-ORG");
  for (const char* tag : {"I", "o", "B-", "I-org", "E-ORG"}) {
    ExpectFault("conll2003", "f.txt", absl::StrCat("EU NNP I-NP ", tag, "\n"),
                absl::StrCat("f.txt:1: the tag '", tag, "' is none of"));
  }
  ExpectFault("conll2003", "f.txt", good + "\xCC\x81 NNP I-NP O\n",
              "f.txt:2: the field 'word' holds no text");
  ExpectFault("conll2003", "f.txt", good + "\xFF NNP I-NP O\n", "f.txt:2: invalid UTF-8");
  ExpectFault("conll2003", "f.txt", "", "f.txt' is empty");
}

TEST_F(TaggingTest, RandomSentencesComeBack) {
  std::mt19937_64 random(5);
  static const char* const kKinds[] = {"PER", "ORG", "LOC", "MISC"};
  std::string iob1, iob2;
  std::vector<std::string> expected;
  for (int sentence = 0; sentence < 300; ++sentence) {
    std::vector<std::string> tags;
    for (size_t words = 1 + random() % 8; words > 0; --words) {
      const std::string kind = kKinds[random() % 2 + 2 * (random() % 2)];
      const bool follows = !tags.empty() && tags.back().substr(1) == "-" + kind;
      const std::string tag =
          random() % 3 == 0 ? "O" : absl::StrCat(follows && random() % 2 == 0 ? "I-" : "B-", kind);
      // There B-X only tells two chunks of a kind apart.
      const std::string in_iob1 = tag[0] == 'B' && !follows ? "I-" + kind : tag;
      tags.push_back(tag);
      absl::StrAppend(&iob1, "word NN I-NP ", in_iob1, "\n");
      absl::StrAppend(&iob2, "word NN I-NP ", tag, "\n");
    }
    iob1 += "\n";
    iob2 += "\n";
    expected.push_back(absl::StrJoin(tags, " "));
  }
  for (const std::string& bytes : {iob1, iob2}) {
    const OfficialResult result = Read("conll2003", "r.txt", bytes);
    ASSERT_EQ(result.examples.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(result.examples[i].label, expected[i]);
  }
}

}  // namespace
}  // namespace anyorder::data
