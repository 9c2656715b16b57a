// Labelled examples from JSON lines to a dataset, through the program.

#include "data/prep/examples/example_prep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"

#include "data/dataset/dataset.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kEntailment[] =
    "{\"premise\": \"he  ran\\nhome\", \"hypothesis\": \"he moved\", \"label\": \"yes\"}\n"
    "\n"
    "{\"hypothesis\": \"it rained\", \"label\": \"no\", \"premise\": \"the sun shone\", \"id\": "
    "7}\n"
    "{\"premise\": \"a b\", \"hypothesis\": \"b\", \"label\": null}";

class ExamplePrepTest : public ExampleFolderTest {};

TEST_F(ExamplePrepTest, ExamplesComeBackAsTheyWereWritten) {
  const ProgramResult result =
      Done(Run(Store("a.jsonl", std::string("\xEF\xBB\xBF") + kEntailment), output_));
  EXPECT_THAT(result.out, HasSubstr("examples: 3 of entailment, 1 without a label"));
  const auto dataset = Dataset::Open(output_, {.verify = true}).value();
  const StoredExamples* examples = dataset->examples();
  ASSERT_NE(examples, nullptr);
  ASSERT_EQ(examples->num_examples(), 3);
  EXPECT_THAT(dataset->index().examples->classes, ElementsAre("no", "yes"));
  const auto first = examples->ReadExample(0);
  EXPECT_THAT(first->parts, ElementsAre(Ids("he ran home"), Ids("he moved")));
  EXPECT_EQ(first->label, 1);
  const auto second = examples->ReadExample(1);
  EXPECT_THAT(second->parts, ElementsAre(Ids("the sun shone"), Ids("it rained")));
  EXPECT_EQ(second->label, 0);
  EXPECT_EQ(examples->ReadExample(2)->label, -1);
  // An example is a document whose texts are its sentences, so that any reader of text can read it.
  EXPECT_EQ(dataset->index().num_documents, 3u);
  std::vector<int32_t> tokens(static_cast<size_t>(dataset->num_tokens()));
  ASSERT_TRUE(dataset->ReadTokens(0, dataset->num_tokens(), tokens.data()).ok());
  EXPECT_EQ(tokens.back(), dataset->index().vocab_ids.eod);
}

// How many texts a length of sequences cuts is said, special tokens included. Of the vocabulary
// "it" is three pieces.
TEST_F(ExamplePrepTest, TellsHowManyTextsALengthCuts) {
  std::string lines;
  for (const int words : {1, 41, 42, 100, 170}) {
    std::string text;
    for (int i = 0; i < words; ++i) text += i == 0 ? "it" : " it";
    lines += "{\"text\":\"" + text + "\",\"label\":\"" + (words % 2 == 0 ? "a" : "b") + "\"}\n";
  }
  const ProgramResult result = Done(Run(Store("a.jsonl", lines), output_));
  EXPECT_THAT(
      result.out,
      HasSubstr("to train on it: --set sampling.seq_len=N --set objective.num_classes=2\n"
                "N tokens, at most the model's max_positions; longer texts, with up to 3 special "
                "tokens, are cut: none with 513, 3 of 5 with 128, 1 of 5 with 512\n"));
  // Each choice is read with the context alone.
  std::string text = "\"it";
  for (int i = 1; i < 20; ++i) text += " it";
  text += '"';
  const std::string question = absl::StrCat("{\"context\":", text, ",\"choices\":[", text, ",",
                                            text, ",", text, "],\"label\":1}");
  EXPECT_THAT(Done(Run(Store("c.jsonl", question), folder_ + "/choices")).out,
              HasSubstr("longer texts, with up to 4 special tokens, are cut: none with 124\n"));
}

TEST_F(ExamplePrepTest, AllTasksAreToldByTheirFields) {
  const std::pair<const char*, const char*> cases[] = {
      {"classification", "{\"text\":\"good\",\"label\":10}\n{\"text\":\"bad\",\"label\":9}\n"},
      {"similarity",
       "{\"a\":\"x\",\"b\":\"y\",\"label\":true}\n{\"a\":\"x\",\"b\":\"y\",\"label\":false}"},
      {"multiple_choice", "{\"context\":\"x\",\"choices\":[\"y\",\"z\",\"w\"],\"label\":2}"},
      {"generation", "{\"source\":\"x\",\"target\":\"y\"}"},
      {"span_extraction",
       "{\"question\":\"x\",\"passage\":\"y z\",\"answers\":[{\"text\":\"z\",\"start\":2}]}\n"
       "{\"question\":\"x\",\"passage\":\"y "
       "z\",\"answers\":[]}\n{\"question\":\"x\",\"passage\":\"y\"}"},
  };
  for (const auto& [task, lines] : cases) {
    const std::string output = folder_ + "/" + task;
    Done(Run(Store("t.jsonl", lines), output));
    const auto dataset = Dataset::Open(output).value();
    EXPECT_STREQ(EnumName(dataset->examples()->task()), task);
  }
  // Numbers in their own order.
  EXPECT_THAT(ReadDatasetIndex(folder_ + "/classification")->examples->classes,
              ElementsAre("9", "10"));
  EXPECT_EQ(Dataset::Open(folder_ + "/multiple_choice").value()->examples()->LabelOf(0), 2);
  const auto spans = Dataset::Open(folder_ + "/span_extraction").value();
  for (const int64_t i : {0, 1, 2})
    EXPECT_EQ(spans->examples()->LabelOf(i), i == 0 ? 1 : i == 1 ? 0 : -1);
}

TEST_F(ExamplePrepTest, HeldOutLabelsHaveTheNumbersOfTheTrainingData) {
  Done(Run(Store("train.jsonl",
                 "{\"text\":\"x\",\"label\":\"a\"}\n{\"text\":\"x\",\"label\":\"b\"}\n"
                 "{\"text\":\"x\",\"label\":\"c\"}"),
           output_));
  const std::string dev = Store("dev.jsonl", "{\"text\":\"x\",\"label\":\"c\"}");
  const ProgramResult result = Done(Run(dev, folder_ + "/dev", {"--labels-from", output_}));
  const auto dataset = Dataset::Open(folder_ + "/dev");
  EXPECT_EQ((*dataset)->examples()->LabelOf(0), 2);
  EXPECT_THAT((*dataset)->index().examples->classes, ElementsAre("a", "b", "c"));
  const auto run_bad = [&](const std::string& input) {
    return Run(input, folder_ + "/bad", {"--labels-from", output_});
  };
  ExpectRefusal(run_bad(Store("bad.jsonl", "{\"text\":\"x\",\"label\":\"d\"}")), 65,
                "bad.jsonl:1: the label 'd' is not one of --labels-from");
  ExpectRefusal(run_bad(Store("other.jsonl", kEntailment)), 65,
                "entailment among those of classification");
}

// A table of labels, with the class or score of each that comes back, or what is refused.
TEST_F(ExamplePrepTest, LabelsAreClassesOrScores) {
  struct Case {
    const char* name;
    std::vector<std::string> labels;
    const char* kind;  // --label-kind
    std::vector<std::string> classes;
    std::vector<double> scores;
    const char* refusal = "";
  };
  const std::vector<std::string> names = {"\" yes\"", "\"yes\\u00a0\"", "\"no\\t\""};
  const std::vector<std::string> fractions = {"1", "1.0", "2.5", "null", "\"-3e-1\""};
  const Case cases[] = {
      {"l.jsonl", names, "", {"no", "yes"}, {}},
      {"l.jsonl", {"1", "1.0", "0.0", "\"0\""}, "", {"0", "1"}, {}},
      {"l.jsonl", {"true", "false"}, "", {"false", "true"}, {}},
      {"l.jsonl", {"3", "1", "7"}, "score", {}, {3, 1, 7}},
      {"l.jsonl", fractions, "", {}, {1, 1, 2.5, -0.3f}},
      {"l.jsonl", fractions, "class", {"-3e-1", "1", "2.5"}, {}},
      {"l.tsv", {"0.5", " 4 ", "", " ", "2"}, "", {}, {0.5, 4, 2}},
      {"l.csv", {"a ", " a", "b"}, "", {"a", "b"}, {}},
      {"l.csv", {"2.5", "n/a", "3"}, "class", {"2.5", "3", "n/a"}, {}},
      {"l.csv",
       {"2.5", "n/a", "3"},
       "",
       {},
       {},
       "l.csv:3: the label 'n/a' is no number, but others are"},
      {"l.csv",
       {"1", "nan"},
       "score",
       {},
       {},
       "l.csv:3: the label 'nan' is no number, but others are"},
      {"l.jsonl", {"\"inf\"", "0.5"}, "", {}, {}, "l.jsonl:1: the label 'inf' is no number"},
      {"l.jsonl",
       {"1", "\" \""},
       "",
       {},
       {},
       "l.jsonl:2: the field 'label' is not the name or the whole number of a class"},
  };
  int number = 0;
  for (const Case& one : cases) {
    const bool is_json = std::string(one.name).ends_with("jsonl");
    const std::string separator = std::string(one.name).ends_with("tsv") ? "\t" : ",";
    std::string lines = is_json ? "" : "text" + separator + "label\n";
    for (const std::string& label : one.labels)
      lines +=
          is_json ? "{\"text\":\"x\",\"label\":" + label + "}\n" : "x" + separator + label + "\n";
    std::vector<std::string> more;
    if (*one.kind != '\0') more = {"--label-kind", one.kind};
    SCOPED_TRACE(lines);
    if (*one.refusal != '\0') {
      ExpectRefused(one.name, lines, one.refusal, more);
      continue;
    }
    const std::string output = folder_ + "/labels" + std::to_string(number++);
    const ProgramResult result = Done(Run(Store(one.name, lines), output, more));
    EXPECT_EQ(result.out.find("labels: scores") != std::string::npos, !one.scores.empty());
    const size_t outputs = std::max<size_t>(1, one.classes.size());
    EXPECT_THAT(result.out, HasSubstr("objective.num_classes=" + std::to_string(outputs) + "\n"));
    const auto dataset = Dataset::Open(output, {.verify = true}).value();
    EXPECT_EQ(dataset->index().examples->classes, one.classes);
    std::vector<double> scores;
    for (int64_t i = 0; i < dataset->examples()->num_examples(); ++i) {
      const double score = dataset->examples()->ScoreOf(i);
      if (!std::isnan(score)) scores.push_back(score);
    }
    EXPECT_EQ(scores, one.scores);
  }
  ExpectRefused("c.jsonl", "{\"context\":\"x\",\"choices\":[\"y\",\"z\"],\"label\":1.0}",
                "--label-kind score is not for multiple_choice", {"--label-kind", "score"}, 64);
  const std::string choices = folder_ + "/choices";
  Done(Run(Store("c.jsonl", "{\"context\":\"x\",\"choices\":[\"y\",\"z\"],\"label\":1.0}"),
           choices));
  EXPECT_EQ(Dataset::Open(choices).value()->examples()->LabelOf(0), 1);
}

TEST_F(ExamplePrepTest, HeldOutLabelsAreScoresWhereThoseOfTheTrainingDataAre) {
  Done(Run(Store("train.csv", "text,label\nx,0.5\ny,2\n"), output_));
  const std::string dev = Store("dev.csv", "text,label\nx,1\ny,\n");
  Done(Run(dev, folder_ + "/dev", {"--labels-from", output_}));
  EXPECT_EQ(Dataset::Open(folder_ + "/dev").value()->examples()->ScoreOf(0), 1.0f);
  ExpectRefusal(Run(Store("bad.csv", "text,label\nx,1\ny,good\n"), folder_ + "/bad",
                    {"--labels-from", output_}),
                65, "bad.csv:3: the label 'good' is no number, but the training data have scores");
  ExpectRefusal(Run(dev, folder_ + "/bad", {"--labels-from", output_, "--label-kind", "class"}), 64,
                "excludes");
}

TEST_F(ExamplePrepTest, LabelsThatMayBeMeantAsOneAreNamed) {
  const auto warning = [&](const std::vector<std::string>& labels) {
    std::string lines = "text\tlabel\n";
    for (const std::string& label : labels) lines += "x\t" + label + "\n";
    std::filesystem::remove_all(output_);
    return Done(Run(Store("l.tsv", lines), output_)).error;
  };
  EXPECT_THAT(warning({"Yes", "no", "yes "}),
              HasSubstr("[prep] warning: the labels 'Yes', 'yes' differ in case, blanks or the "
                        "form of a character "
                        "only, but are 2 classes"));
  EXPECT_THAT(warning({"caf\u00e9", "cafe\u0301"}), HasSubstr("are 2 classes"));
  EXPECT_THAT(warning({"not good", "not  good"}), HasSubstr("are 2 classes"));
  EXPECT_THAT(warning({"1", "1.0"}), HasSubstr("'1', '1.0'"));
  EXPECT_THAT(warning({"1000001", "1000002"}), Not(HasSubstr("differ")));
  // Hindi's vowel signs tell words apart.
  EXPECT_THAT(warning({"\u0915\u093f", "\u0915\u0940", "a", "b"}), Not(HasSubstr("differ")));
  std::vector<std::string> numbers;
  for (int i = 0; i < 30; ++i) numbers.push_back(std::to_string(i * 3 % 29));
  EXPECT_THAT(warning(numbers), HasSubstr("the labels of 30 examples are 29 numbers, each of which "
                                          "is a class; if they are scores, pass --label-kind"));
}

TEST_F(ExamplePrepTest, MarksThatCleaningDropsAreCounted) {
  const std::string words = Store("t.tsv", "text\tlabel\n\u0e19\u0e49\u0e33 a\tx\nb\ty\n");
  EXPECT_THAT(Done(Run(words, output_)).error,
              HasSubstr("warning: letters that lost marks by --clean xlnet: Thai 1 of 2; "));
}

TEST_F(ExamplePrepTest, AnswersMustStandInTheirPassage) {
  const std::string start = "{\"question\":\"x\",\"passage\":\"y z\",\"answers\":";
  ExpectRefused("q.jsonl", start + "[{\"text\":\"z\",\"start\":1}]}",
                "q.jsonl:1: the answer 'z' does not stand at character 1 of the passage");
  ExpectRefused("q.jsonl", start + "[{\"text\":\"z\"}]}", "holds what is no answer");
  ExpectRefused("q.jsonl", start + "[{\"text\":\"z\",\"start\":18446744073709551615}]}",
                "holds what is no answer");
  Done(Run(Store("f.jsonl", start + "[{\"text\":\"z\",\"start\":2.0}]}"), folder_ + "/float"));
  ExpectRefused("q.jsonl", start + "\"z\"}", "q.jsonl:1: the field 'answers' is not a list");
  ExpectRefused("q.jsonl", "{\"question\":\"x\"}", "no field 'passage'");
  // A name of one's own, which elsewhere is the first of multiple_choice.
  Done(Run(Store("n.jsonl", "{\"question\":\"x\",\"context\":\"y z\",\"answers\":[]}"), output_,
           {"--field", "passage=context"}));
}

TEST_F(ExamplePrepTest, BadInputIsNamedByFileLineAndField) {
  const std::string good = "{\"text\":\"x\",\"label\":\"a\"}\n";
  ExpectRefused("a.jsonl", good + "{\"text\":\"x\"", "a.jsonl:2: not valid JSON");
  ExpectRefused("a.jsonl", good + "[1]",
                "a.jsonl:2: not a JSON object; write one example per line. A JSON array is turned "
                "into lines");
  ExpectRefused("a.jsonl", "{\"body\":\"x\"}", "a.jsonl:1: the object has none of the fields");
  ExpectRefused("a.jsonl", "{\"text\":7}", "the field 'text' is not a string");
  ExpectRefused("a.jsonl", "{\"text\":\" \\n\"}", "the field 'text' holds no text");
  ExpectRefused("a.jsonl", "{\"text\":\"a\\u0000b\"}", "the field 'text' holds NUL");
  ExpectRefused("a.jsonl", "{\"text\":\"\xFF\"}",
                "a.jsonl:1: invalid UTF-8 or NUL in the line; repair the file or pass "
                "--invalid-utf8 replace. Text in Latin-1 is turned into UTF-8 by: iconv");
  ExpectRefused("a.jsonl", "{\"text\":\"" + std::string(70000, 'x') + "\"}", "65536");
  ExpectRefused("a.jsonl", "{\"premise\":\"x\"}", "no field 'hypothesis'");
  ExpectRefused("a.jsonl", "{\"text\":\"x\",\"label\":{}}", "the field 'label' is not");
  ExpectRefused("a.jsonl", "{\"context\":\"x\"}", "no field 'choices'");
  ExpectRefused("a.jsonl", "{\"context\":\"x\",\"choices\":[\"y\"]}", "'choices' is not a list");
  ExpectRefused("a.jsonl", "{\"context\":\"x\",\"choices\":[\"y\",3]}", "'choices[1]' is not");
  ExpectRefused("a.jsonl", "{\"context\":\"x\",\"choices\":[\"y\",\"z\"],\"label\":2}",
                "'label' is 2, not the number of a choice, 0 to 1");
  const std::string nest = std::string(100'000, '[') + std::string(100'000, ']');
  ExpectRefused("a.jsonl", "{\"context\":\"x\",\"choices\":[\"y\",\"z\"],\"label\":" + nest + "}",
                "nested deeper than 64 levels");
  ExpectRefused("a.jsonl", "{\"text\":\"x\",\"label\":" + nest + "}",
                "nested deeper than 64 levels");
  ExpectRefused("a.jsonl", good + kEntailment, "a.jsonl:2: an example of entailment");
  ExpectRefused("a.jsonl", good + good, "a.jsonl' have one label only, '");
  ExpectRefused("a.jsonl", "\n \n", "no example");
  ExpectRefused("a.txt", good, "examples must be in files that end in .jsonl, .ndjson, .json (an",
                {}, 64);
  ExpectRefused("a.jsonl", good, "--field body=x is not FIELD=NAME; the fields are ",
                {"--field", "body=x"}, 64);
  ExpectRefused("a.jsonl", good, "body is not FIELD=NAME", {"--field", "body"}, 64);
  ExpectRefused("a.jsonl", good, "workers", {"--workers", "2"}, 64);
  ExpectRefused("a.jsonl", good, "/none' does not exist", {"--labels-from", folder_ + "/none"}, 64);
}

TEST_F(ExamplePrepTest, TablesAndPackedFilesGiveTheDatasetOfTheSameJsonLines) {
  const std::string jsonl =
      "{\"text\":\"good, \\\"really\\\"\",\"label\":1}\n{\"text\":\"bad\\nend\",\"label\":0}\n"
      "{\"text\":\"unknown\"}\n";
  Done(Run(Store("a.jsonl", jsonl), output_));
  struct Table {
    const char* name;
    std::string bytes;
    std::vector<std::string> options;
  };
  const std::string quoted =
      "idx,sentence,label\n7,\"good, \"\"really\"\"\",1\n8,\"bad\nend\",0\n9,unknown,\n";
  const std::string plain = "1\tgood, \"really\"\n0\tbad end\n\tunknown\n";
  const Table tables[] = {
      {"a.jsonl.gz", Gzip(jsonl), {}},
      {"a.csv", quoted, {"--text-field", "sentence"}},
      {"b.csv.gz", Gzip(AsUtf16(quoted, false, true)), {"--field", "text=sentence"}},
      {"a.tsv", plain, {"--no-header", "--field", "text=2", "label=1"}},
      {"b.tsv", "label\ttext\n" + plain, {"--quoting", "none"}},
  };
  for (const Table& table : tables) {
    const std::string output = folder_ + "/of-" + table.name;
    Done(Run(Store(table.name, table.bytes), output, table.options));
    EXPECT_TRUE(ReadTree(output) == ReadTree(output_)) << table.name;
  }
}

TEST_F(ExamplePrepTest, FieldsOfEveryTaskMayHaveOtherNames) {
  const std::string text = "sentence1,sentence2,gold_label\na,b,yes\nc,d,no\n";
  Done(Run(Store("nli.csv", text), folder_ + "/nli",
           {"--field", "premise=sentence1", "hypothesis=sentence2", "label=gold_label"}));
  EXPECT_THAT(ReadDatasetIndex(folder_ + "/nli")->examples->classes, ElementsAre("no", "yes"));
  const std::vector<std::string> choices = {"--field", "context=sent", "choices=end0,end1"};
  Done(Run(Store("swag.csv", "sent,end0,end1,label\na,b,c,1\n"), folder_ + "/swag", choices));
  EXPECT_EQ(Dataset::Open(folder_ + "/swag").value()->examples()->LabelOf(0), 1);
  ExpectRefused("swag.csv", "sent,end0,end1,label\na,b,c,2\n",
                "swag.csv:2: the field 'label' is \"2\", not the number of a choice, 0 to 1",
                choices);
  // Several texts, in columns or in a list; a column may have a comma in its name.
  Done(Run(Store("faq.csv", "a,b,c,d,label\nw,x,y,z,0\nz,y,x,w,1\n"), folder_ + "/faq",
           {"--field", "text=a,c,d"}));
  EXPECT_EQ(Dataset::Open(folder_ + "/faq").value()->examples()->most_parts(), 3);
  Done(Run(Store("faq.jsonl",
                 "{\"text\":[\"w\",\"y\",\"z\"],\"label\":0}\n"
                 "{\"text\":[\"z\",\"x\",\"w\"],\"label\":1}\n"),
           folder_ + "/list"));
  EXPECT_EQ(ReadDatasetIndex(folder_ + "/list")->corpus_digest,
            ReadDatasetIndex(folder_ + "/faq")->corpus_digest);
  Done(Run(Store("odd.csv", "\"a,b\",label\nx,0\ny,1\n"), folder_ + "/odd",
           {"--field", "text=a,b"}));
  ExpectRefused("faq.csv", "a,b,label\nx,y,1\n", "has no column 'e'", {"--field", "text=a,e"});
  ExpectRefused("faq.jsonl", "{\"text\":[],\"label\":0}\n",
                "the field 'text' is not a list of 1 to 26 texts");
  for (const char* label : {"B", "-1", "1st"}) {
    ExpectRefused("swag.csv", absl::StrCat("sent,end0,end1,label\na,b,c,", label, "\n"),
                  "not the number of a choice, 0 to 1", choices);
  }
  ExpectRefused("a.csv", "sentence,label\nx,1\n",
                "a.csv:1: the table has none of the fields of an example: text;");
  ExpectRefused("a.csv", "\npremise,label\nx,1\n", "a.csv:2: the table has no column 'hypothesis'");
  ExpectRefused("a.csv", "text;label\nx;1\n", "If its cells stand between semicolons or tabs");
  ExpectRefused("a.csv", "sentence,label\nx,1\n", "it has label, sentence: say what is what");
  ExpectRefused("a.csv", "text,gold\nx,1\n", "has no column 'golden'; it has text, gold",
                {"--field", "label=golden"});
  ExpectRefused("a.csv", "text,gold\nx,1\n", "a.csv' have no label, but");
  ExpectRefused("a.tsv", "text\tlabel\nx\t1\n\"y\" z\t0\n", "a.tsv:3: text follows a quoted cell");
}

TEST_F(ExamplePrepTest, FilesOfADirectoryThatAreNoExamplesAreNamed) {
  fs::create_directory(folder_ + "/in");
  Store("in/a.jsonl", kEntailment);
  Store("in/readme.txt", "about it\n");
  const ProgramResult result = Done(Run(folder_ + "/in", output_, {"--json"}));
  EXPECT_THAT(result.error,
              HasSubstr("left out: '" + folder_ + "/in/readme.txt' (unknown ending)"));
  EXPECT_THAT(result.out, HasSubstr("\"files_left_out\":[{"));
}

TEST_F(ExamplePrepTest, AFullDirectoryAndAMissingVocabularyAreRefused) {
  const std::string input = Store("a.jsonl", kEntailment);
  ExpectRefusal(RunPrepProgram({"--examples", input, "--output", output_}), 64, "--vocab MODEL");
  Done(Run(input, output_));
  ExpectRefusal(Run(input, output_), 64, "is not empty");
}

}  // namespace
}  // namespace anyorder::data
