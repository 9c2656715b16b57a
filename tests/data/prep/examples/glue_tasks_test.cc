// GLUE's files, written here in their official forms.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "tests/data/prep/examples/official_reading.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kMnliTexts[] =
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2";
constexpr char kStsbTexts[] =
    "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2";
constexpr char kPairs[] = "index\tsentence1\tsentence2\tlabel\n";
constexpr char kQnli[] = "index\tquestion\tsentence\tlabel\n";
constexpr char kQqp[] = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n";

class GlueTest : public OfficialTaskTest {
 protected:
  // The only example of a file.
  void ExpectOne(const std::string& task, const std::string& bytes, const ReadBack& expected) {
    const OfficialResult result = Read(task, "f.tsv", bytes);
    ASSERT_THAT(result.examples, SizeIs(1)) << task;
    EXPECT_EQ(result.examples[0], expected) << task << ": " << result.examples[0].id;
    EXPECT_THAT(result.left_out, IsEmpty());
  }
};

// RandomRowsComeBack reads the forms with labels that are not here.
TEST_F(GlueTest, EachOfficialFormIsRead) {
  ExpectOne("cola", "index\tsentence\n7\tHe sang.\n", {"f.tsv:2", "7", {"He sang."}, ""});
  ExpectOne("sst2", "sentence\tlabel\na \"dull\" film \t0\n",
            {"f.tsv:2", "", {"a \"dull\" film"}, "0"});
  ExpectOne("sst2", "index\tsentence\n0\tgood\n", {"f.tsv:2", "0", {"good"}, ""});
  ExpectOne(
      "mrpc",
      "\xEF\xBB\xBFQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t5\t6\t\"He ran.\tHe did.\r\n",
      {"f.tsv:2", "", {"\"He ran.", "He did."}, "1"});
  ExpectOne("mrpc", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n3\t5\t6\ta\tb\n",
            {"f.tsv:2", "3", {"a", "b"}, ""});
  const std::string stsb = "0\tcaptions\tf\t2012\t0001\tnone\tnone\tA cat.\tA dog.";
  ExpectOne("stsb", absl::StrCat(kStsbTexts, "\tscore\n", stsb, "\t3.250\n"),
            {"f.tsv:2", "0", {"A cat.", "A dog."}, "3.25"});
  ExpectOne("stsb", absl::StrCat(kStsbTexts, "\n", stsb, "\n"),
            {"f.tsv:2", "0", {"A cat.", "A dog."}, ""});
  ExpectOne("qqp", "id\tquestion1\tquestion2\n0\tWhy?\tHow?\n",
            {"f.tsv:2", "0", {"Why?", "How?"}, ""});
  const std::string mnli =
      "4\t1\t1e\tfiction\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tIt rains.\tIt pours.";
  const std::vector<std::string> pair = {"It rains.", "It pours."};
  ExpectOne("mnli",
            absl::StrCat(kMnliTexts, "\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label\n", mnli,
                         "\tneutral\tneutral\tneutral\tentailment\tcontradiction\tentailment\n"),
            {"f.tsv:2", "4", pair, "entailment"});
  ExpectOne("mnli", absl::StrCat(kMnliTexts, "\n", mnli, "\n"), {"f.tsv:2", "4", pair, ""});
  ExpectOne("qnli", "index\tquestion\tsentence\n9\tWho?\tHe did.\n",
            {"f.tsv:2", "9", {"Who?", "He did."}, ""});
  for (const char* task : {"rte", "wnli", "ax"})
    ExpectOne(task, "index\tsentence1\tsentence2\n2\ta\tb\n", {"f.tsv:2", "2", {"a", "b"}, ""});
}

TEST_F(GlueTest, BadRowsAreNamedByFileAndLine) {
  const std::string good = absl::StrCat(kPairs, "0\ta\tb\tentailment\n");
  ExpectFault("rte", "f.tsv", good + "1\ta\tb\n",
              "f.tsv:3: the row has 3 cells, but the table has 4");
  ExpectFault("rte", "f.tsv", good + "1\ta\tb\tneutral\n",
              "f.tsv:3: the label 'neutral' is none of entailment, not_entailment");
  ExpectFault("rte", "f.tsv", good + "1\ta\tb\t\n", "f.tsv:3: the label '' is none of");
  ExpectFault("rte", "f.tsv", good + "1\t \tb\tentailment\n",
              "f.tsv:3: the field 'sentence1' holds no text");
  ExpectFault("rte", "f.tsv", good + "\ta\tb\tentailment\n", "f.tsv:3: the cell 'index' is empty");
  ExpectFault("rte", "f.tsv", good + "0\ta\tb\tentailment\n",
              "f.tsv:3: the identifier '0' was used before, in " + folder_ + "/f.tsv:2");
  ExpectFault("rte", "f.tsv", good + "1\ta\xFF\tb\tentailment\n", "f.tsv:3: invalid UTF-8 or NUL");
  ExpectFault(
      "rte", "f.tsv", "index\tsentence1\tsentence\tlabel\n",
      "f.tsv:1: the header \"index, sentence1, sentence, label\" is not that of --task rte, "
      "which is \"index, sentence1, sentence2, label\" or \"index, sentence1, sentence2\"");
  ExpectFault(
      "cola", "f.tsv", "gj04\t1\tHe sang.\n",
      "f.tsv:1: the row has 3 cells, but those of --task cola have 4, or the header of test "
      "data: index, sentence");
  const std::string stsb = absl::StrCat(kStsbTexts, "\tscore\n0\tc\tf\t2012\t1\tn\tn\ta\tb\t");
  for (const char* score : {"5.001", "-0.1", "nan", "", "much"}) {
    ExpectFault("stsb", "f.tsv", stsb + score + "\n",
                absl::StrCat("f.tsv:2: the score '", score, "' is not a number from 0 to 5"));
  }
  ExpectFault("rte", "f.csv", good, "f.csv' is no .tsv file; --task rte reads train.tsv, dev.tsv");
  Store("dev.tsv", good);
  ExpectFault("rte", "",
              "is a directory, but --task rte reads one file, so that training and test "
              "data stay apart; it holds dev.tsv, f.tsv. Name one of");
}

TEST_F(GlueTest, RowsThatOfficialCodeSkipsAreLeftOutAndNamed) {
  const OfficialResult result = Read("qqp", "train.tsv",
                                     absl::StrCat(kQqp, "1\t1\t2\tWhy?\tHow?\t0\n2\t3\t4\tWhat\n",
                                                  "is it?\tWho?\t1\n3\t5\t6\t\tHow?\t0\n"));
  EXPECT_THAT(result.examples, SizeIs(1));
  ASSERT_THAT(result.left_out, SizeIs(3));
  EXPECT_EQ(result.left_out[0].path, folder_ + "/train.tsv:3");
  EXPECT_THAT(result.left_out[1].reason, HasSubstr("the row has 3 cells"));
  EXPECT_EQ(result.left_out[2].reason, "the field 'question1' holds no text");
  // A submission needs every row of test data.
  ExpectFault("qqp", "test.tsv", "id\tquestion1\tquestion2\n0\tWhy?\n",
              "test.tsv:2: the row has 2");
  ExpectFault("qqp", "train.tsv", absl::StrCat(kQqp, "1\t1\t2\tWhy?\tHow?\t2\n"),
              "train.tsv:2: the label '2' is none of 0, 1");
  const std::string row = "\t1\t1e\tf\t(a)\t(b)\t(R a)\t(R b)\ta\tb\tneutral\t";
  const OfficialResult mnli =
      Read("mnli", "train.tsv",
           absl::StrCat(kMnliTexts, "\tlabel1\tgold_label\n0", row, "-\n1", row, "neutral\n"));
  // The takers leave it out, but to predict.
  ASSERT_THAT(mnli.examples, SizeIs(2));
  EXPECT_EQ(mnli.examples[0].label, "");
  ASSERT_THAT(mnli.left_out, SizeIs(1));
  EXPECT_EQ(mnli.left_out[0].path, folder_ + "/train.tsv:2");
}

TEST_F(GlueTest, RankingComparesTheCandidatesOfOneQuestion) {
  const OfficialResult result = Read(
      "qnli-rank", "train.tsv",
      absl::StrCat(kQnli, "0\tWho?\tIt rains.\tnot_entailment\n1\tWhen?\tAt noon.\tentailment\n",
                   "2\tWho?\tHe did.\tentailment\n3\tWho?\tHim.\tentailment\n",
                   "4\tWho?\tNo.\tnot_entailment\n5\tWhy?\tYes.\tentailment\n",
                   "6\tWhy?\tSo.\tentailment\n"));
  const ReadBack first = {"train.tsv:4", "0,2,4", {"Who?", "It rains.", "He did.", "No."}, "1"};
  const ReadBack second = {"train.tsv:5", "0,3,4", {"Who?", "It rains.", "Him.", "No."}, "1"};
  EXPECT_THAT(result.examples, ElementsAre(first, second));
  ASSERT_THAT(result.left_out, SizeIs(1));
  EXPECT_THAT(result.left_out[0].reason, HasSubstr("2 of 3 questions have one candidate only"));
  EXPECT_THAT(result.left_out[0].reason, HasSubstr("the first is in line 3"));
  const OfficialResult test =
      Read("qnli-rank", "test.tsv", "index\tquestion\tsentence\n0\tWho?\tNo.\n1\tWho?\tHe.\n");
  const ReadBack unknown = {"test.tsv:2", "0,1", {"Who?", "No.", "He."}, ""};
  EXPECT_THAT(test.examples, ElementsAre(unknown));
  const OfficialResult wnli =
      Read("wnli-rank", "train.tsv",
           absl::StrCat(kPairs, "0\tIt fell.\tA fell.\t1\n1\tIt fell.\tB fell.\t0\n"));
  const ReadBack schema = {"train.tsv:2", "0,1", {"It fell.", "A fell.", "B fell."}, "0"};
  EXPECT_THAT(wnli.examples, ElementsAre(schema));
  ExpectFault("wnli-rank", "f.tsv", absl::StrCat(kPairs, "0\ta\tb\tyes\n"),
              "f.tsv:2: the label 'yes'");
}

// Any row of texts comes back, whatever quotes, commas and spaces it holds.
TEST_F(GlueTest, RandomRowsComeBack) {
  std::mt19937_64 random(20261127);
  const auto word = [&] {
    static const char* const kWords[] = {"a",     "\"", "it's", "\"said\"", "x,y", "\\n",
                                         "3,000", ";",  "(",    "\xC3\x9F", "#",   "no"};
    return std::string(kWords[random() % std::size(kWords)]);
  };
  const auto text = [&] {
    std::vector<std::string> words(1 + random() % 8);
    for (std::string& one : words) one = word();
    return absl::StrJoin(words, " ");
  };
  for (const OfficialTask& task : OfficialTasks()) {
    if (task.description.find("(GLUE)") == std::string::npos || task.classes.empty()) continue;
    if (task.name == "ax") continue;  // has no labels
    const bool is_single = task.kind == ExampleTask::kClassification;
    const std::string header =
        task.name == "cola"   ? ""
        : task.name == "sst2" ? "sentence\tlabel\n"
        : task.name == "mrpc" ? "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
        : task.name == "qqp"  ? kQqp
        : task.name == "qnli" ? kQnli
        : task.name == "mnli" ? absl::StrCat(kMnliTexts, "\tlabel1\tgold_label\n")
                              : kPairs;
    std::string bytes = header;
    std::vector<ReadBack> expected;
    for (int row = 0; row < 200; ++row) {
      const std::string a = text(), b = text(),
                        label = task.classes[random() % task.classes.size()];
      const std::string id = absl::StrCat(row);
      const std::string line =
          task.name == "cola"   ? absl::StrCat("s\t", label, label == "0" ? "\t*\t" : "\t\t", a)
          : task.name == "sst2" ? absl::StrCat(a, "\t", label)
          : task.name == "mrpc" ? absl::StrCat(label, "\t1\t2\t", a, "\t", b)
          : task.name == "qqp"  ? absl::StrCat(id, "\t1\t2\t", a, "\t", b, "\t", label)
          : task.name == "mnli"
              ? absl::StrCat(id, "\t1\t1e\tg\t(a)\t(b)\t(R)\t(R)\t", a, "\t", b, "\t-\t", label)
              : absl::StrCat(id, "\t", a, "\t", b, "\t", label);
      absl::StrAppend(&bytes, line, row % 7 == 0 ? "\r\n" : "\n");
      const bool has_id = !is_single && task.name != "mrpc";
      expected.push_back({absl::StrCat("r.tsv:", row + (header.empty() ? 1 : 2)), has_id ? id : "",
                          is_single ? std::vector<std::string>{a} : std::vector<std::string>{a, b},
                          label});
    }
    const OfficialResult result = Read(task.name, "r.tsv", bytes);
    EXPECT_TRUE(result.examples == expected) << task.name;
  }
}

}  // namespace
}  // namespace anyorder::data
