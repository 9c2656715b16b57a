// Preparations that are repeated with other text: what is finished of unchanged text is kept, and
// the bytes are those of a preparation that never saw the old one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "tests/data/dataset/dataset_files.h"
#include "tests/data/prep/corpus_text.h"

namespace anyorder::data {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr char kBad[] = "a bad\xFF line of several words\n";
constexpr char kGood[] = "a bad! line of several words\n";

class RepairTest : public PrepFolderTest {
 protected:
  RepairTest() { fs::create_directory(folder_ + "/in"); }

  std::vector<std::string> Arguments(const std::string& output,
                                     const std::vector<std::string>& more = {}) const {
    return Joined({"--input", folder_ + "/in", "--output", output, "--workers", "1"}, more);
  }
  std::vector<std::string> Given() const { return {"--vocab", TestModelPath()}; }
  // How many files of units are in the staging folder.
  int64_t NumUnitFiles() const {
    const auto files = ReadTree(output_ + "/.anyorder-prep");
    return std::count_if(files.begin(), files.end(),
                         [](const auto& file) { return file.first.starts_with("unit-"); });
  }
  // Finishes, with the bytes of a new preparation; returns the summary.
  nlohmann::json Finish(const std::vector<std::string>& options) const {
    const std::string fresh = folder_ + "/fresh";
    Done(RunPrepProgram(Arguments(fresh, options)));
    const auto result = Done(RunPrepProgram(Arguments(output_, Joined(options, {"--json"}))));
    EXPECT_TRUE(ReadTree(output_) == ReadTree(fresh));
    fs::remove_all(fresh);
    auto summary = nlohmann::json::parse(result.out);
    summary["said"] = result.error;
    return summary;
  }
};

TEST_F(RepairTest, OnlyUnitsWhoseBytesChangedAreEncodedAgain) {
  // Four units: three of a.txt, of which the last is bad, and one of b.jsonl, which is not reached.
  std::string text = AsTxt(MakeDocuments(6500, 61));
  ASSERT_GT(text.size(), 9u << 18);  // 2.25 MiB
  ASSERT_LT(text.size(), 3u << 20);
  text += kBad;
  const std::string middle = text.substr((3 << 19) + 40, 60);
  const std::string in = folder_ + "/in/";
  const auto rewrite = [&](const char* from, const char* to) {
    WriteFile(in + "a.txt", absl::StrReplaceAll(text, {{from, to}}));
  };
  struct Case {
    const char* change;
    std::function<void()> make;
    int num_units, units_encoded;
    std::vector<std::string> options;
  };
  const Case cases[] = {
      {"a line repaired", [&] { rewrite(kBad, kGood); }, 4, 2, {}},
      {"bad bytes replaced", [] {}, 4, 2, {"--invalid-utf8", "replace"}},
      // The rest of the file is cut elsewhere.
      {"text put in before",
       [&] {
         WriteFile(in + "a.txt", absl::StrReplaceAll(text, {{kBad, kGood}, {middle, "longer"}}));
       },
       4,
       3,
       {}},
      {"a file before", [&] { rewrite(kBad, kGood), Store("in/0.txt", kGood); }, 5, 3, {}},
      {"a file less", [&] { rewrite(kBad, ""), fs::remove(in + "b.jsonl"); }, 3, 1, {}},
      {"another name",
       [&] {
         fs::remove(in + "a.txt"), Store("in/c.txt", text.substr(0, text.size() - sizeof kBad + 1));
       },
       4,
       2,
       {}},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.change);
    WriteFile(in + "a.txt", text);
    WriteFile(in + "b.jsonl", AsJsonl(MakeDocuments(40, 62)));
    const std::vector<std::string> options = Joined(Given(), test.options);
    ExpectRefusal(RunPrepProgram(Arguments(output_, Given())), 65, "invalid UTF-8");
    EXPECT_EQ(NumUnitFiles(), 2);
    test.make();
    const auto summary = Finish(options);
    EXPECT_EQ(summary["num_units"], test.num_units);
    EXPECT_EQ(summary["units_encoded"], test.units_encoded);
    EXPECT_EQ(summary["counts"]["invalid_utf8_replaced"], test.options.empty() ? 0 : 1);
    EXPECT_THAT(summary["said"].get<std::string>(),
                HasSubstr(absl::StrCat(test.num_units - test.units_encoded, " of ", test.num_units,
                                       " units are kept\n")));
    for (const auto& entry : fs::directory_iterator(in)) fs::remove(entry);
    fs::remove_all(output_);
  }
}

TEST_F(RepairTest, SmallFilesShareAFileOfUnitsAndAreKeptOneByOne) {
  constexpr int kFiles = 60;
  const auto documents = MakeDocuments(kFiles, 63);
  for (int i = 0; i < kFiles; ++i)
    Store(absl::StrCat("in/", 100 + i, ".txt"), AsTxt({documents[static_cast<size_t>(i)]}));
  Store("in/bad.txt", kBad);
  ExpectRefusal(RunPrepProgram(Arguments(output_, Given())), 65, "bad.txt:1: byte 5");
  EXPECT_EQ(NumUnitFiles(), 1);
  // All in another order, one with another text, one twice.
  for (int i = 0; i < kFiles; ++i)
    fs::rename(absl::StrCat(folder_, "/in/", 100 + i, ".txt"),
               absl::StrCat(folder_, "/in/", 900 - i, ".txt"));
  Store("in/870.txt", kGood);
  fs::copy(folder_ + "/in/871.txt", folder_ + "/in/another.txt");
  Store("in/bad.txt", "a line of other words\n");
  const auto summary = Finish(Given());
  EXPECT_EQ(summary["num_units"], kFiles + 2);
  EXPECT_EQ(summary["units_encoded"], 2);
}

TEST_F(RepairTest, AVocabularyThatIsTrainedOnTheTextStartsOverAndSaysSo) {
  const std::vector<std::string> train = {"--vocab-size",   "200",   "--vocab-sample-mb", "0.1",
                                          "--shard-tokens", "131072"};
  const std::string text = AsTxt(MakeDocuments(3600, 64));
  const std::string input = Store("in/a.txt", text);
  ASSERT_TRUE(StartAndKill(Arguments(output_, train), "unit-000000"));
  WriteFile(input, AsTxt(MakeDocuments(400, 65)) + "\n" + text);
  const auto result = Done(RunPrepProgram(Joined(Arguments(output_, train), {"--plan"})));
  EXPECT_THAT(result.error, HasSubstr("0 of 2 units are kept; the vocabulary is trained on"));
  Finish(train);
}

TEST_F(RepairTest, WhatWasMadeOfAllOfTheOldTextGoes) {
  Store("in/a.txt", AsTxt(MakeDocuments(400, 66)));
  Store("in/b.txt", kBad);
  const std::vector<std::string> options = Joined(Given(), {"--shard-tokens", "6400"});
  ExpectRefusal(RunPrepProgram(Arguments(output_, options)), 65, "b.txt:1");
  // As if a longer text had come so far: its shards made, some moved.
  for (const char* name : {"/shard-00090.h5", "/.anyorder-prep/out/shard-00091.h5"})
    WriteFile(output_ + name, "of the old text");
  fs::copy(output_ + "/.anyorder-prep", folder_ + "/saved", fs::copy_options::recursive);
  Store("in/b.txt", kGood);
  Finish(options);
  // Nor is a finished dataset, of which only the staging folder was left, taken for that of other
  // text.
  fs::copy(folder_ + "/saved", output_ + "/.anyorder-prep", fs::copy_options::recursive);
  ExpectRefusal(RunPrepProgram(Arguments(output_, options)), 65,
                "the input has changed since the work in '" + output_ +
                    "' began; its dataset is complete: choose another --output");
}

TEST_F(RepairTest, APlanIsMadeAnewAndSlicesAreKept) {
  const std::vector<std::string> options = Joined(Given(), {"--quiet"});
  const auto run = [&](const std::vector<std::string>& part) {
    return RunPrepProgram(Arguments(output_, Joined(options, part)));
  };
  Store("in/a.txt", AsTxt(MakeDocuments(3600, 67)));
  Store("in/b.txt", kBad);
  Done(run({"--plan"}));
  Done(run({"--slice", "1/2"}));
  ExpectRefusal(run({"--slice", "2/2"}), 65, "b.txt:1: byte 5");
  Store("in/b.txt", kGood);
  ExpectRefusal(run({"--slice", "2/2"}), 65, "with --plan first): finished units of unchanged");
  Store("in/b.txt", "a line of another length\n");
  ExpectRefusal(run({"--slice", "2/2"}), 65, "or run --plan again: finished units of unchanged");
  Done(run({"--plan"}));
  for (const auto& [slice, encoded] : {std::pair{"1/2", 0}, std::pair{"2/2", 1}}) {
    const auto result = Done(run({"--slice", slice, "--json"}));
    EXPECT_EQ(nlohmann::json::parse(result.out)["units_encoded"], encoded);
  }
  Done(run({"--merge", "2"}));
  const std::string fresh = folder_ + "/fresh";
  Done(RunPrepProgram(Arguments(fresh, Given())));
  EXPECT_TRUE(ReadTree(output_) == ReadTree(fresh));
}

}  // namespace
}  // namespace anyorder::data
