// Labelled examples from JSON lines to a dataset, through the program.

#include "data/prep/examples/example_prep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "data/dataset/dataset.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

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
    EXPECT_STREQ(ExampleTaskName(dataset->examples()->task()), task);
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

TEST_F(ExamplePrepTest, AnswersMustStandInTheirPassage) {
  const std::string start = "{\"question\":\"x\",\"passage\":\"y z\",\"answers\":";
  ExpectRefused("q.jsonl", start + "[{\"text\":\"z\",\"start\":1}]}",
                "q.jsonl:1: the answer 'z' does not stand at character 1 of the passage");
  ExpectRefused("q.jsonl", start + "[{\"text\":\"z\"}]}", "holds what is no answer");
  ExpectRefused("q.jsonl", start + "[{\"text\":\"z\",\"start\":18446744073709551615}]}",
                "does not stand at");
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
  ExpectRefused("a.jsonl", "{\"text\":\"x\",\"label\":1.5}", "the field 'label' is not");
  ExpectRefused("a.jsonl", "{\"context\":\"x\"}", "no field 'choices'");
  ExpectRefused("a.jsonl", "{\"context\":\"x\",\"choices\":[\"y\"]}", "'choices' is not a list");
  ExpectRefused("a.jsonl", "{\"context\":\"x\",\"choices\":[\"y\",3]}", "'choices[1]' is not");
  ExpectRefused("a.jsonl", "{\"context\":\"x\",\"choices\":[\"y\",\"z\"],\"label\":2}",
                "'label' is 2, not the number of a choice, 0 to 1");
  const std::string nest = std::string(100'000, '[') + std::string(100'000, ']');
  ExpectRefused("a.jsonl", "{\"context\":\"x\",\"choices\":[\"y\",\"z\"],\"label\":" + nest + "}",
                "'label' is array, not the number of a choice, 0 to 1");
  ExpectRefused("a.jsonl", "{\"text\":\"x\",\"label\":" + nest + "}", "'label' is not");
  ExpectRefused("a.jsonl", good + kEntailment, "a.jsonl:2: an example of entailment");
  ExpectRefused("a.jsonl", good + good, "a.jsonl' have one label only, '");
  ExpectRefused("a.jsonl", "\n \n", "no example");
  ExpectRefused("a.txt", good, "examples must be in files that end in .jsonl, .csv or .tsv", {},
                64);
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
