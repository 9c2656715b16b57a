// Preparation split over programs, as over machines: plan, slices, merge.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;
using Tree = std::vector<std::pair<std::string, std::string>>;

class SplitPrepTest : public PrepFolderTest {
 protected:
  SplitPrepTest() {
    fs::create_directory(folder_ + "/in");
    // Six units: three of a file that is cut, the others of files of all kinds; the third is
    // encoded together with them.
    const std::string text = AsTxt(MakeDocuments(6500, 51));
    WriteFile(folder_ + "/in/1.txt", text);
    WriteFile(folder_ + "/in/2.jsonl", AsJsonl(MakeDocuments(40, 52)));
    WriteFile(folder_ + "/in/3.txt.gz", Gzip(AsTxt(MakeDocuments(40, 53))));
    WriteFile(folder_ + "/in/4.txt", text.substr(0, text.size() / 10));  // duplicates
  }

  // By default a small vocabulary is trained.
  static Words Default() {
    return {"--vocab-size", "200", "--vocab-sample-mb", "0.1", "--shard-tokens", "131072"};
  }
  ProgramResult Run(const Words& part, const Words& options = Default()) const {
    return RunPrepProgram(Arguments(part, options));
  }
  Words Arguments(const Words& part, const Words& options = Default()) const {
    const Words common{"--input", folder_ + "/in", "--output", output_, "--workers",
                       "1",       "--quiet"};
    return Joined(Joined(common, options), part);
  }
  void ExpectDone(const Words& part, const Words& options = Default()) const {
    const ProgramResult result = Run(part, options);
    EXPECT_EQ(result.exit_status, 0) << part[0] << " " << part.back() << ": " << result.error;
  }
  // One line that holds `message`, and nothing of the work changes.
  void ExpectRefused(const Words& part, int status, const std::string& message,
                     const Words& options = Default()) const {
    const Tree before = Work();
    ExpectRefusal(Run(part, options), status, message);
    EXPECT_TRUE(Work() == before) << message;
  }
  // Everything in the output directory but the slices' empty lock files.
  Tree Work() const {
    Tree tree = fs::exists(output_) ? ReadTree(output_) : Tree();
    std::erase_if(tree, [](const auto& file) {
      return file.first.find("/slice-") != std::string::npos && file.second.empty();
    });
    return tree;
  }
  static Words Slice(int slice, int of) { return {"--slice", absl::StrCat(slice, "/", of)}; }
  // What one program makes of it.
  const Tree& Expected() const {
    static const auto* const expected = [this] {
      EXPECT_EQ(Run({}).exit_status, 0);
      auto* tree = new Tree(ReadTree(output_));
      fs::remove_all(output_);
      return tree;
    }();
    return *expected;
  }
};

TEST_F(SplitPrepTest, AnyNumberOfSlicesInAnyOrderGivesTheBytesOfASingleRun) {
  Expected();
  for (const int slices : {1, 2, 3, 5, 9}) {
    ExpectDone({"--plan"});
    for (int i = slices; i >= 1; --i) ExpectDone(Slice(i, slices));
    ExpectDone({"--merge", absl::StrCat(slices)});
    EXPECT_TRUE(ReadTree(output_) == Expected()) << slices << " slices";
    fs::remove_all(output_);
  }
}

TEST_F(SplitPrepTest, SlicesMayRunAtTheSameTime) {
  Expected();
  ExpectDone({"--plan"});
  std::vector<int> programs;
  for (int i = 1; i <= 3; ++i) programs.push_back(StartPrepProgram(Arguments(Slice(i, 3))));
  for (const int pid : programs) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  ExpectDone({"--merge", "3"});
  EXPECT_TRUE(ReadTree(output_) == Expected());
}

TEST_F(SplitPrepTest, AFinishedSliceThatRunsAgainEncodesNothing) {
  ExpectDone({"--plan"});
  const Words again = Joined(Slice(1, 2), {"--json"});
  const ProgramResult first = Done(Run(again));
  const ProgramResult second = Done(Run(again));
  EXPECT_EQ(nlohmann::json::parse(first.out)["units_encoded"], 5);
  EXPECT_EQ(nlohmann::json::parse(second.out)["units_encoded"], 0);
  EXPECT_EQ(nlohmann::json::parse(second.out)["num_units"], 5);
}

TEST_F(SplitPrepTest, AMergeNamesTheSlicesThatAreMissing) {
  const Words given{"--vocab", TestModelPath()};
  ExpectDone({"--plan"}, given);
  ExpectRefused({"--merge", "3"}, 65, "3 of 3 slices of '" + output_ + "'", given);
  ExpectDone(Slice(1, 3), given);
  ExpectDone(Slice(3, 3), given);
  ExpectRefused({"--merge", "3"}, 65, "not finished: slice 2 (1 unit); run --slice 2/3, then merge",
                given);
  ExpectDone(Slice(2, 3), given);
  ExpectDone({"--merge", "3"}, given);
}

TEST_F(SplitPrepTest, ASingleRunFinishesWhatSlicesBegan) {
  const Tree& expected = Expected();
  ExpectDone({"--plan"});
  ExpectDone(Slice(2, 4));
  EXPECT_EQ(nlohmann::json::parse(Done(Run({"--json"})).out)["units_encoded"], 5);
  EXPECT_TRUE(ReadTree(output_) == expected);
}

TEST_F(SplitPrepTest, KilledSlicesAndPlansGoOnToTheSameBytes) {
  const Tree& expected = Expected();
  const std::pair<Words, const char*> kills[] = {{{"--plan"}, "sample-000001"},
                                                 {{"--plan"}, "spiece.model"},
                                                 {Slice(1, 2), "unit-000000"},
                                                 {Slice(1, 2), "unit-000002.tmp"},
                                                 {Slice(2, 2), "unit-000001.tmp"}};
  int killed = 0;
  for (const auto& [part, name] : kills) {
    killed += StartAndKill(Arguments(part), name);
    // A slice is requeued by itself, before or after its siblings.
    ExpectDone(part);
  }
  EXPECT_GE(killed, 3);
  ExpectDone({"--merge", "2"});
  EXPECT_TRUE(ReadTree(output_) == expected);
}

TEST_F(SplitPrepTest, PartsOutOfTurnAreRefusedAndLeaveNothing) {
  ExpectRefused(Slice(1, 2), 65, "no preparation is planned in '" + output_ + "'");
  ExpectRefused({"--merge", "2"}, 65, "run it with --plan");
  EXPECT_FALSE(fs::exists(output_));
  ExpectRefused({"--slice", "3/2"}, 64, "--slice 3/2: the first number must be 1 to 2");
  ExpectRefused({"--slice", "0/2"}, 64, "must be 1 to 2");
  ExpectRefused({"--slice", "two"}, 64, "two is not K/N");
  ExpectRefused({"--slice", "1/2", "--plan"}, 64, "--plan");
  ExpectRefused({"--merge", "0"}, 64, "--merge");
  EXPECT_FALSE(fs::exists(output_));
}

TEST_F(SplitPrepTest, OtherInputOrOptionsThanPlannedAreRefused) {
  ExpectDone({"--plan"});
  ExpectRefused(Slice(1, 2), 64, "was begun with ", {"--vocab", TestModelPath()});
  // Longer, then of the same length but other letters.
  const std::string file = folder_ + "/in/4.txt";
  std::string text = ReadFile(file);
  WriteFile(file, text + "more\n");
  ExpectRefused(Slice(1, 2), 65, "4.txt' has ");
  text[text.size() / 2] = text[text.size() / 2] == 'e' ? 'a' : 'e';
  WriteFile(file, text);
  ExpectDone(Slice(2, 2));  // does not read it
  ExpectRefusal(Run(Slice(1, 2)), 65, "4.txt' changed while it was read");
  WriteFile(folder_ + "/in/5.txt", "one file more\n");
  ExpectRefused(Slice(1, 2), 65, "planned with 4 input files, now there are 5");
}

TEST_F(SplitPrepTest, ADamagedScanIsNamed) {
  ExpectDone({"--plan"});
  const std::string path = output_ + "/.anyorder-prep/scan";
  FlipBit(path, fs::file_size(path) / 2);
  ExpectRefused(Slice(1, 2), 65, "scan' is damaged; run --plan again");
  ExpectDone({"--plan"});
  ExpectDone(Slice(1, 2));
}

}  // namespace
}  // namespace anyorder::data
