// Loading from a real disk. Damage at every place and of every kind: corruption_test.cc.

#include "ckpt/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "ckpt/layout.h"
#include "ckpt/manifest.h"
#include "tests/ckpt/service_fixture.h"

namespace anyorder::ckpt {
namespace {

using ::testing::ElementsAre;

class ReaderTest : public ServiceTest {
 protected:
  // Two commits by two ranks: step 100 is what loading falls back to, step 200 is damaged.
  void SetUp() override {
    CommitStep(100, State(1), 2, 1);
    CommitStep(200, State(2), 2, 2);
  }

  std::string FileOf(const std::string& name) const { return StepPath(200) + "/" + name; }
  std::string RankFile(int rank) const { return FileOf(RankFileName(rank, 2)); }

  void ExpectFallback(const std::string& fault) {
    const absl::StatusOr<Checkpoint> named = Checkpoint::Open(StepPath(200));
    EXPECT_THAT(named.ok() ? named->Verify() : named.status(), Fails(absl::IsDataLoss, fault));
    // Looking does not touch it; quarantining moves it aside and deletes nothing.
    EXPECT_EQ(*FindNewestGood(run_dir(), false), StepPath(100));
    EXPECT_TRUE(std::filesystem::exists(StepPath(200)));
    EXPECT_EQ(*FindNewestGood(run_dir(), true), StepPath(100));
    EXPECT_FALSE(std::filesystem::exists(StepPath(200)));
    // Under the generation of what was bad, if its manifest tells.
    const int64_t generation = named.ok() ? named->generation() : 0;
    const std::string aside =
        JoinPath(CheckpointsPath(run_dir()), QuarantineName(StepName(200), generation));
    EXPECT_TRUE(std::filesystem::exists(aside + "/MANIFEST.json")) << aside;
    ExpectHolds(Checkpoint::Open(StepPath(100)).value(), State(1), 3);
  }
};

TEST_F(ReaderTest, AFlippedPayloadBitNamesFileAndTensor) {
  FlipByte(RankFile(1), 1'500'000);
  const Checkpoint checkpoint = Checkpoint::Open(StepPath(200)).value();
  // Reading the chunk finds it, and reading elsewhere does not.
  float value = 0;
  const int64_t first_of_rank1 = 700'001 / 4;
  EXPECT_THAT(checkpoint.Read("master", 600'000, 600'001, &value),
              Fails(absl::IsDataLoss, "'rank-00001-of-00002.safetensors': CRC",
                    "bytes [1048576, 2097152) (tensor 'master'"));
  EXPECT_TRUE(checkpoint.Read("master", first_of_rank1, first_of_rank1 + 1, &value).ok());
  ExpectFallback("tensor 'master'");
}

TEST_F(ReaderTest, ATruncatedFileIsFoundWithoutReadingIt) {
  std::filesystem::resize_file(RankFile(1), std::filesystem::file_size(RankFile(1)) - 1);
  const Checkpoint checkpoint = Checkpoint::Open(StepPath(200)).value();
  EXPECT_TRUE(absl::IsDataLoss(checkpoint.CheckFiles()));
  float value = 0;
  EXPECT_TRUE(checkpoint.Read("master", 0, 1, &value).ok());  // of rank 0's file
  EXPECT_TRUE(absl::IsDataLoss(checkpoint.Read("master", 700'000, 700'001, &value)));
  ExpectFallback("bytes instead of");
}

TEST_F(ReaderTest, AReaderOpensTheFilesThatItReadsAndNoOthers) {
  std::set<std::string> opened;
  fault_fs_.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call == FaultyCall::kOpen) opened.insert(BaseName(path));
  });
  const Checkpoint checkpoint = Checkpoint::Open(StepPath(200), &fault_fs_).value();
  EXPECT_THAT(opened, ElementsAre(kManifestName));
  float value = 0;
  ASSERT_TRUE(checkpoint.Read("master", 0, 1, &value).ok());
  EXPECT_THAT(opened, ElementsAre(kManifestName, RankFileName(0, 2)));
  opened.clear();
  ASSERT_TRUE(checkpoint.Verify({.files = {RankFileName(1, 2)}}).ok());
  EXPECT_THAT(opened, ElementsAre(RankFileName(1, 2)));
}

TEST_F(ReaderTest, WhatIsReadPieceByPieceIsReadOnce) {
  std::atomic<int> num_reads = 0;
  fault_fs_.set_before_call([&](int64_t, FaultyCall call, const std::string&) {
    if (call == FaultyCall::kRead) ++num_reads;
  });
  const Checkpoint checkpoint = Checkpoint::Open(StepPath(200), &fault_fs_).value();
  num_reads = 0;
  std::vector<float> values(700'001);
  for (int64_t begin = 0; begin < 700'001; begin += 1000) {
    const int64_t end = std::min<int64_t>(700'001, begin + 1000);
    ASSERT_TRUE(checkpoint.Read("master", begin, end, &values[begin]).ok());
  }
  EXPECT_EQ(values, State(2).master);
  // 700 kB and 2.1 MB in files of their own.
  EXPECT_EQ(num_reads, 1 + 3);
}

TEST_F(ReaderTest, VerifyingTellsHowFarItIsAndCanBeEnded) {
  const Checkpoint checkpoint = Checkpoint::Open(StepPath(200)).value();
  std::atomic<int64_t> most = 0;
  std::atomic<int> num_calls = 0;
  const auto proceed = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, checkpoint.num_bytes());
    if (done == total) most = done;
    ++num_calls;
    return true;
  };
  ASSERT_TRUE(checkpoint.Verify({.proceed = proceed}).ok());
  EXPECT_EQ(most, checkpoint.num_bytes());
  EXPECT_EQ(num_calls, 2);  // a block for each rank's file
  EXPECT_TRUE(absl::IsCancelled(checkpoint.Verify({.proceed = [](auto, auto) { return false; }})));
}

TEST_F(ReaderTest, AMissingFileIsFound) {
  std::filesystem::remove(RankFile(0));
  ExpectFallback("is missing");
}

// Whatever somebody put under a name of ours is set aside like any damage, and waited for by
// nobody.
TEST_F(ReaderTest, SomethingElseUnderANameIsDamage) {
  namespace fs = std::filesystem;
  const std::vector<std::pair<const char*, std::function<void(const std::string&)>>> kinds = {
      {"a file", [](const std::string& path) { std::ofstream(path) << "junk"; }},
      {"a directory", [](const std::string& path) { fs::create_directory(path); }},
      {"a pipe", [](const std::string& path) { ASSERT_EQ(mkfifo(path.c_str(), 0644), 0); }},
      {"a link to nothing", [](const std::string& path) { fs::create_symlink("gone", path); }},
      {"a link to itself", [](const std::string& path) { fs::create_symlink(path, path); }},
      {"a link to a file", [](const std::string& path) { fs::create_symlink("/dev/null", path); }},
      {"a link to another step",
       [&](const std::string& path) { fs::create_directory_symlink(StepPath(100), path); }}};
  // A newer step, and the two kinds of files of the newest one.
  for (const std::string& name : {StepName(300), StepName(200) + "/" + kManifestName,
                                  StepName(200) + "/" + RankFileName(1, 2)}) {
    for (const auto& [kind, make] : kinds) {
      SCOPED_TRACE(absl::StrCat(kind, " as ", name));
      const TemporaryDirectory run;
      fs::copy(CheckpointsPath(run_dir()), CheckpointsPath(run.path()),
               fs::copy_options::recursive);
      const std::string path = CheckpointsPath(run.path()) + "/" + name;
      fs::remove(path);
      make(path);
      // Nor is a place in the way where something was set aside before.
      fs::create_directories(CheckpointPath(run.path(), 300) + ".quarantine/full");
      const std::string expected = CheckpointPath(run.path(), name == StepName(300) ? 200 : 100);
      for (const bool quarantine_bad : {false, true})
        EXPECT_EQ(FindNewestGood(run.path(), quarantine_bad).value_or("none"), expected);
      EXPECT_TRUE(Checkpoint::Open(StepPath(100))->Verify().ok());
    }
  }
}

TEST_F(ReaderTest, FilesThatTheManifestDoesNotNameAreIgnored) {
  std::ofstream(FileOf("rank-00002-of-00003.safetensors")) << "junk";
  std::ofstream(run_dir() + "/checkpoints/notes.txt") << "junk";
  EXPECT_EQ(*FindNewestGood(run_dir(), true), StepPath(200));
}

TEST_F(ReaderTest, CurrentIsOnlyAHint) {
  std::ofstream(run_dir() + "/CURRENT") << "step-000000100";
  EXPECT_EQ(*FindNewestGood(run_dir(), true), StepPath(200));
}

TEST_F(ReaderTest, WithNoGoodCheckpointLeftNobodyStartsAfresh) {
  FlipByte(RankFile(0), 5000);
  std::filesystem::remove(StepPath(100) + "/" + kManifestName);
  EXPECT_TRUE(absl::IsDataLoss(FindNewestGood(run_dir(), true).status()));
  // Also when all that is left is quarantined, or only CURRENT tells of a commit.
  EXPECT_TRUE(absl::IsDataLoss(FindNewestGood(run_dir(), true).status()));
  std::filesystem::remove_all(run_dir() + "/checkpoints");
  EXPECT_TRUE(absl::IsDataLoss(FindNewestGood(run_dir(), true).status()));
  std::filesystem::remove(run_dir() + "/CURRENT");
  EXPECT_TRUE(absl::IsNotFound(FindNewestGood(run_dir(), true).status()));
}

TEST_F(ReaderTest, BadRequestsAreRefused) {
  const Checkpoint checkpoint = Checkpoint::Open(StepPath(200)).value();
  float value = 0;
  EXPECT_TRUE(absl::IsNotFound(checkpoint.Read("nothing", 0, 1, &value)));
  EXPECT_TRUE(absl::IsOutOfRange(checkpoint.Read("master", 0, 700'002, &value)));
  EXPECT_TRUE(absl::IsOutOfRange(checkpoint.Read("master", 2, 1, &value)));
  EXPECT_TRUE(absl::IsNotFound(Checkpoint::Open(run_dir()).status()));
}

TEST_F(ReaderTest, DifferentStatesHaveDifferentDigests) {
  EXPECT_NE(*Checkpoint::Open(StepPath(100))->StateDigest(),
            *Checkpoint::Open(StepPath(200))->StateDigest());
}

}  // namespace
}  // namespace anyorder::ckpt
