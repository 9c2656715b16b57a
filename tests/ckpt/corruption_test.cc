// Damage of every kind and at every place of a small checkpoint: found before use, file and tensor
// named, the older good one used and the bad one set aside.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "ckpt/chunk_sums.h"
#include "tests/ckpt/staged_save.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::ckpt {
namespace {

class CorruptionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    PrepareWithTwoCommits(&fs_, 3);
    ASSERT_TRUE(Save(&fs_, 200, 3).ok());
  }

  static std::string PathOf(int64_t step, const std::string& name) {
    return JoinPath(CheckpointPath(kRunDir, step), name);
  }
  static std::string RankFile(int rank) { return RankFileName(rank, kWorldSize); }
  static std::vector<std::string> FilesOfACheckpoint() {
    return {kManifestName, RankFile(0), RankFile(1), RankFile(2)};
  }

  absl::Status VerifyNewest() {
    const auto checkpoint = Checkpoint::Open(CheckpointPath(kRunDir, 200), &fs_);
    return checkpoint.ok() ? checkpoint->Verify() : checkpoint.status();
  }

  // With `content` in place of `name` in the newest checkpoint: damage is reported with the file's
  // name. With `loads` the whole way is walked, too: the older one is used, the bad one set aside.
  void ExpectFound(const std::string& name, const std::string& content, bool loads = false) {
    const std::string path = PathOf(200, name);
    const std::string good = fs_.Contents(path);
    ASSERT_NE(good, content) << "no damage";
    fs_.Overwrite(path, content);
    ASSERT_THAT(VerifyNewest(), Fails(absl::IsDataLoss, name));
    ++num_damages_;
    if (loads) {
      const std::string newest = CheckpointPath(kRunDir, 200);
      ASSERT_EQ(LoadNewest(&fs_), 100);
      ASSERT_FALSE(fs_.ListDirectory(newest).ok());
      // Under its generation, unless damage hides that.
      const std::string aside = newest + ".g100000002000.quarantine";
      const bool is_known = fs_.ListDirectory(aside).ok();
      ASSERT_TRUE(fs_.Rename(is_known ? aside : newest + ".quarantine", newest).ok());
    }
    fs_.Overwrite(path, good);
  }

  ModelFileSystem fs_;
  int num_damages_ = 0;
};

TEST_F(CorruptionTest, OneFlippedBitAnywhere) {
  ASSERT_TRUE(VerifyNewest().ok());
  for (const std::string& name : FilesOfACheckpoint()) {
    const std::string good = fs_.Contents(PathOf(200, name));
    for (size_t i = 0; i < good.size(); ++i) {
      SCOPED_TRACE(absl::StrCat(name, " byte ", i));
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 1 << i % 8);
      ExpectFound(name, bad, /*loads=*/i % 211 == 0);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(num_damages_, 3 * 8000);
  RecordProperty("flipped_bits", num_damages_);
  EXPECT_EQ(LoadNewest(&fs_), 200);
}

TEST_F(CorruptionTest, ATruncationAnywhere) {
  for (const std::string& name : FilesOfACheckpoint()) {
    const std::string good = fs_.Contents(PathOf(200, name));
    const size_t stride = name == kManifestName ? 1 : 16;
    for (size_t length = 0; length < good.size(); length += stride) {
      SCOPED_TRACE(absl::StrCat(name, " cut to ", length));
      ExpectFound(name, good.substr(0, length), length % 1024 == 0);
      if (HasFatalFailure()) return;
    }
    ExpectFound(name, good.substr(0, good.size() - 1), true);
  }
}

TEST_F(CorruptionTest, ZeroesAndExtraBytes) {
  for (const std::string& name : FilesOfACheckpoint()) {
    const std::string good = fs_.Contents(PathOf(200, name));
    for (const size_t sector : {512, 4096}) {
      for (size_t at = 0; at < good.size(); at += sector) {
        std::string bad = good;
        const size_t length = std::min(sector, good.size() - at);
        bad.replace(at, length, length, '\0');
        SCOPED_TRACE(absl::StrCat(name, " zeroes at ", at));
        ExpectFound(name, bad, at == 0);
        if (HasFatalFailure()) return;
      }
    }
    ExpectFound(name, std::string(good.size(), '\0'), true);
    for (const size_t extra : {1, 512, 4096})
      ExpectFound(name, good + std::string(extra, '\0'), true);
    ExpectFound(name, good + good, true);
  }
}

TEST_F(CorruptionTest, AFileOfAnotherRankGenerationStepOrRun) {
  // The same step saved once more by a later start, and by another run with the same values.
  ModelFileSystem others;
  PrepareRun(&others);
  ASSERT_TRUE(Save(&others, 200, 3, 2).ok());
  ModelFileSystem other_run;
  PrepareRun(&other_run);
  const StagedSave foreign(200, 3, 1, "tset");
  ASSERT_TRUE(VoteOnNodes(&other_run, foreign, 0, 3).ok());
  ASSERT_TRUE(CommitVoted(&other_run, foreign).ok());
  for (int rank = 0; rank < kWorldSize; ++rank) {
    const std::string name = RankFile(rank);
    SCOPED_TRACE(name);
    ExpectFound(name, fs_.Contents(PathOf(200, RankFile((rank + 1) % kWorldSize))), true);
    ExpectFound(name, fs_.Contents(PathOf(100, name)), true);
    ExpectFound(name, others.Contents(PathOf(200, name)), true);
    ExpectFound(name, other_run.Contents(PathOf(200, name)), true);
  }
  // A manifest put in place of another fits none of the files.
  for (ModelFileSystem* source : {&others, &other_run}) {
    const std::string path = PathOf(200, kManifestName);
    const std::string good = fs_.Contents(path);
    fs_.Overwrite(path, source->Contents(path));
    EXPECT_TRUE(absl::IsDataLoss(VerifyNewest())) << VerifyNewest();
    fs_.Overwrite(path, good);
  }
  const std::string path = PathOf(200, kManifestName);
  fs_.Overwrite(path, fs_.Contents(PathOf(100, kManifestName)));
  EXPECT_TRUE(absl::IsDataLoss(VerifyNewest()));
  EXPECT_EQ(LoadNewest(&fs_), 100);
}

// Votes decide what is committed, so damage to them must be found before.
TEST_F(CorruptionTest, AnyDamageToAVoteStopsTheCommit) {
  const StagedSave save(300, 3);
  ASSERT_TRUE(VoteOnNodes(&fs_, save, 0, 3).ok());
  CommitLog log(&fs_, kRunDir, 1);
  const std::string path = JoinPath(TemporaryPath(kRunDir, save.id()), VoteName(1));
  const std::string good = fs_.Contents(path);
  for (size_t i = 0; i < good.size(); ++i) {
    for (const bool is_cut : {false, true}) {
      std::string bad = is_cut ? good.substr(0, i) : good;
      if (!is_cut) bad[i] = static_cast<char>(bad[i] ^ 1 << i % 8);
      fs_.Overwrite(path, bad);
      ASSERT_THAT(log.CollectVotes(save.id()).status(), Fails(absl::IsDataLoss, VoteName(1))) << i;
    }
  }
  // Another node's vote, and the same node's of another save.
  for (const std::string& other :
       {fs_.Contents(JoinPath(TemporaryPath(kRunDir, save.id()), VoteName(0))),
        fs_.Contents(PathOf(200, VoteName(1)))}) {
    fs_.Overwrite(path, other);
    EXPECT_TRUE(absl::IsDataLoss(log.CollectVotes(save.id()).status()));
  }
  fs_.Overwrite(path, good);
  EXPECT_TRUE(log.CollectVotes(save.id()).ok());
  for (int node = 0; node < 3; ++node)
    fs_.Overwrite(JoinPath(TemporaryPath(kRunDir, save.id()), VoteName(node)),
                  fs_.Contents(PathOf(200, VoteName(node))));
  EXPECT_TRUE(absl::IsDataLoss(log.CollectVotes(save.id()).status()));
}

// Files of several chunks: every chunk is looked at, and the message says which tensor lies in it.
TEST(ChunkCorruptionTest, AFlippedBitInAnyChunkNamesTheTensorsInIt) {
  ModelFileSystem fs;
  PrepareRun(&fs);
  const SaveIdentity id = {"test", 1, kGenerationsPerAttempt + 10, 1, 1, 1};
  const std::vector<float> first(400'000, 1.0f);
  const std::vector<uint8_t> second(2'900'000, 7);
  const std::vector<TensorRange> ranges = {
      {"first", DType::kFloat32, {400'000}, 0, 400'000, first.data()},
      {"second", DType::kUint8, {2'900'000}, 0, 2'900'000, second.data()}};
  ASSERT_TRUE(SaveDirectly(kRunDir, id, ranges, "", &fs).ok());
  const std::string path = JoinPath(CheckpointPath(kRunDir, 1), RankFileName(0, 1));
  const std::string good = fs.Contents(path);
  const auto checkpoint = Checkpoint::Open(CheckpointPath(kRunDir, 1), &fs).value();
  ASSERT_TRUE(checkpoint.Verify().ok());
  const std::vector<std::string> parts = {"(header, tensor 'first',",
                                          "(tensor 'first', tensor 'second',", "(tensor 'second',",
                                          "(tensor 'second',", "(tensor 'second',"};
  ASSERT_EQ(NumCrcChunks(static_cast<int64_t>(good.size())), std::ssize(parts));
  std::string all_bad = good;
  for (size_t chunk = 0; chunk < parts.size(); ++chunk) {
    std::string bad = good;
    const size_t at = std::min((chunk << 20) + 777'777, good.size() - 1);
    bad[at] = static_cast<char>(bad[at] ^ 0x40);
    all_bad[at] = bad[at];
    fs.Overwrite(path, bad);
    EXPECT_THAT(checkpoint.Verify(),
                Fails(absl::IsDataLoss, absl::StrCat("bytes [", chunk << 20, ", "), parts[chunk]))
        << chunk;
  }
  fs.Overwrite(path, all_bad);
  EXPECT_THAT(checkpoint.Verify(), Says("and 4 more chunks are bad"));
}

}  // namespace
}  // namespace anyorder::ckpt
