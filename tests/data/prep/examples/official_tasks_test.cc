// `anyorder prep --task` through the program: what the families' own tests do not see.

#include "data/prep/examples/official_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"

#include "data/dataset/dataset.h"
#include "data/dataset/stored_examples.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kRte[] = "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n";

class TaskOptionTest : public PrepFolderTest {
 protected:
  ProgramResult Run(const std::string& task, const std::string& input, const std::string& output,
                    const std::vector<std::string>& more = {}) const {
    return RunPrepProgram(Joined(
        {"--task", task, "--input", input, "--output", output, "--vocab", TestModelPath()}, more));
  }
};

TEST(OfficialTasksTest, NamesAreUniqueAndAllAreListed) {
  std::set<std::string> names;
  const ProgramResult list = Done(RunPrepProgram({"--task", "list"}));
  for (const OfficialTask& task : OfficialTasks()) {
    EXPECT_TRUE(names.insert(task.name).second) << task.name;
    EXPECT_THAT(list.out, HasSubstr(absl::StrCat(task.name, " ")));
    EXPECT_EQ(task.classes.size() >= 2, HasClasses(task.kind) && task.name != "stsb") << task.name;
  }
}

TEST_F(TaskOptionTest, ClassesHaveTheOfficialOrderWhateverAFileHolds) {
  Done(Run("rte", Store("train.tsv", kRte), output_));
  const std::string test = Store("test.tsv", "index\tsentence1\tsentence2\n0\ta\tb\n1\tb\ta\n");
  Done(Run("rte", test, folder_ + "/test", {"--labels-from", output_}));
  for (const std::string& output : {output_, folder_ + "/test"}) {
    const DatasetIndex index = *ReadDatasetIndex(output);
    EXPECT_THAT(index.examples->classes, ElementsAre("entailment", "not_entailment"));
    EXPECT_EQ(index.settings.at("task"), "rte");
  }
  EXPECT_EQ(Dataset::Open(output_).value()->examples()->LabelOf(0), 1);
  EXPECT_EQ(Dataset::Open(folder_ + "/test").value()->examples()->LabelOf(1), -1);
  ExpectRefusal(Run("wnli", test, folder_ + "/no", {"--labels-from", output_}), 65,
                "has other classes than --task wnli, which always has 0, 1");
}

TEST_F(TaskOptionTest, ScoresAndIdentifiersAreStored) {
  const std::string texts =
      "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2";
  const std::string rows = "7\tg\tf\ty\to\ts\ts\ta b\tb a\t3.75\n9\tg\tf\ty\to\ts\ts\ta\tb\t0\n";
  const ProgramResult result =
      Done(Run("stsb", Store("dev.tsv", absl::StrCat(texts, "\tscore\n", rows)), output_));
  EXPECT_THAT(result.out, HasSubstr("--set objective.num_classes=1\n"));
  EXPECT_THAT(result.out, HasSubstr("2 of similarity, 0 without a label"));
  const auto dataset = Dataset::Open(output_, {.verify = true}).value();
  const StoredExamples& examples = *dataset->examples();
  EXPECT_EQ(examples.num_classes(), 1);
  EXPECT_EQ(examples.ScoreOf(0), 3.75f);
  EXPECT_EQ(examples.ScoreOf(1), 0.0f);
  EXPECT_EQ(ReadFile(output_ + "/" + kOriginsFile), "{\"id\":\"7\"}\n{\"id\":\"9\"}\n");
  const std::string test = absl::StrCat(texts, "\n1\tg\tf\ty\to\ts\ts\ta\tb\n");
  Done(Run("stsb", Store("test.tsv", test), folder_ + "/test"));
  EXPECT_FALSE(Dataset::Open(folder_ + "/test").value()->examples()->HasLabel(0));
}

TEST_F(TaskOptionTest, WhatOfficialCodeSkipsIsReported) {
  const ProgramResult result =
      Done(Run("qqp",
               Store("train.tsv",
                     "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t1\t2\ta\tb\t0\n2\n"),
               output_, {"--json"}));
  EXPECT_THAT(result.error, HasSubstr("train.tsv:3' (the row has 1 cell, but"));
  EXPECT_THAT(result.out, HasSubstr("\"files_left_out\":[{"));
}

TEST_F(TaskOptionTest, WrongUseIsNamed) {
  const std::string train = Store("train.tsv", kRte);
  ExpectRefusal(Run("nli", train, output_), 64, "--task 'nli' is not a task whose files are known");
  ExpectRefusal(Run("rte", train, output_, {"--input", train}), 64, "reads one --input, but 2");
  ExpectRefusal(Run("rte", train, output_, {"--quoting", "none"}), 64, "--quoting");
  ExpectRefusal(Run("rte", Store("bad.tsv", absl::StrCat(kRte, "1\ta\n")), output_), 65,
                "bad.tsv:3: the row has 2 cells");
  ExpectRefusal(RunPrepProgram({"--task", "rte", "--output", output_}), 64, "--input");
  ExpectRefusal(RunPrepProgram({"--input", train, "--output", output_, "--labels-from", folder_}),
                64, "--labels-from is about examples");
  EXPECT_FALSE(std::filesystem::exists(output_));
}

}  // namespace
}  // namespace anyorder::data
