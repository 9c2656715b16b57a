// Saves on a file system that loses power: every operation is a crash point, and what was not
// synced by then may be lost, torn or reordered.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "tests/ckpt/staged_save.h"
#include "tests/testing/fault_file_system.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::ckpt {
namespace {

// What the services had reported when the power went.
struct Reported {
  int64_t voted = 100;      // by all nodes
  int64_t committed = 100;  // to the trainers
};

// Two saves with all that belongs to them. On several nodes the others write the second while the
// coordinator still retires what the first made superfluous.
Reported SaveTwice(FileSystem* fs, int num_nodes) {
  Reported reported;
  const StagedSave first(200, num_nodes);
  const StagedSave second(300, num_nodes);
  if (!VoteOnNodes(fs, first, 0, num_nodes).ok()) return reported;
  reported.voted = 200;
  if (!CommitVoted(fs, first).ok()) return reported;
  reported.committed = 200;
  const bool others_voted = VoteOnNodes(fs, second, 1, num_nodes).ok();
  RetireOld(fs, first).IgnoreError();
  if (!others_voted || !VoteOnNodes(fs, second, 0, 1).ok()) return reported;
  reported.voted = 300;
  if (!CommitVoted(fs, second).ok()) return reported;
  reported.committed = 300;
  RetireOld(fs, second).IgnoreError();
  return reported;
}

void ExpectAllOpen(FileSystem* fs) {
  const std::vector<CheckpointInfo> infos = ListCheckpoints(kRunDir, fs).value();
  for (const CheckpointInfo& info : infos)
    ASSERT_TRUE(info.opens) << "half made or half deleted: " << info.status;
}

constexpr CrashMode kModes[] = {CrashMode::kLoseUnsynced, CrashMode::kKeepAll, CrashMode::kTear,
                                CrashMode::kReorder};

class PowerCutTest : public ::testing::TestWithParam<int> {};

TEST_P(PowerCutTest, EveryCrashLeavesTheNewestCommittedOrTheOneBefore) {
  const int num_nodes = GetParam();
  RunWithTwoCommits probe(num_nodes);
  const int64_t first = probe.num_operations();
  ASSERT_EQ(SaveTwice(&probe, num_nodes).committed, 300);
  const int64_t last = probe.num_operations();
  ASSERT_GT(last - first, 80);

  int num_crashes = 0;
  int num_old = 0;
  int num_new = 0;
  int num_recovered = 0;
  for (int64_t crash = first; crash <= last; ++crash) {
    for (int round = 0; round < 16; ++round) {
      const CrashMode mode = kModes[round / 2 % 4];
      SCOPED_TRACE(absl::StrCat("crash at operation ", crash - first, ", round ", round));
      RunWithTwoCommits fs(num_nodes);
      fs.CrashAt(crash, /*reaches_drive=*/round % 2 == 0);
      const Reported reported = SaveTwice(&fs, num_nodes);
      fs.Restart(mode, static_cast<uint64_t>(crash * 100 + round));
      ++num_crashes;
      ExpectAllOpen(&fs);
      if (HasFatalFailure()) return;
      const int64_t loaded = LoadNewest(&fs);
      ASSERT_GE(loaded, reported.committed);
      ASSERT_LE(loaded, reported.committed == 100 ? 200 : 300);
      // The next start finishes what all nodes had voted for, removes the rest, and saves again.
      const absl::Status started = StartAgain(&fs, 2);
      ASSERT_TRUE(started.ok()) << started;
      ExpectAllOpen(&fs);
      if (HasFatalFailure()) return;
      const int64_t recovered = LoadNewest(&fs);
      ASSERT_GE(recovered, std::max(loaded, reported.voted));
      ASSERT_TRUE(HalfMade(&fs).empty()) << HalfMade(&fs)[0];
      const absl::Status next = Save(&fs, 400, num_nodes, 2);
      ASSERT_TRUE(next.ok()) << next;
      fs.Restart(CrashMode::kLoseUnsynced, 0);
      ASSERT_EQ(LoadNewest(&fs), 400);
      (loaded == 100 ? num_old : num_new)++;
      num_recovered += recovered > loaded ? 1 : 0;
    }
  }
  // All outcomes must occur, or the crash points do not surround the commits.
  EXPECT_GT(num_old, 0);
  EXPECT_GT(num_new, 0);
  EXPECT_GT(num_recovered, 0);
  RecordProperty("power_cuts", num_crashes);
}

// Recovery is itself a series of crash points, and the start after it must finish its work.
TEST_P(PowerCutTest, EveryCrashOfARecoveryIsRecovered) {
  const int num_nodes = GetParam();
  const StagedSave voted(200, num_nodes);
  const auto prepare = [&](ModelFileSystem* fs) {
    PrepareWithTwoCommits(fs, num_nodes);
    ASSERT_TRUE(VoteOnNodes(fs, voted, 0, num_nodes).ok());
    fs->Restart(CrashMode::kLoseUnsynced, 0);
  };
  ModelFileSystem probe;
  prepare(&probe);
  const int64_t first = probe.num_operations();
  ASSERT_TRUE(StartAgain(&probe, 2).ok());
  ASSERT_EQ(LoadNewest(&probe), 200);
  const int64_t last = probe.num_operations();
  for (int64_t crash = first; crash < last; ++crash) {
    for (int round = 0; round < 16; ++round) {
      SCOPED_TRACE(absl::StrCat("crash at operation ", crash - first, ", round ", round));
      ModelFileSystem fs;
      prepare(&fs);
      fs.CrashAt(crash, round % 2 == 0);
      StartAgain(&fs, 2).IgnoreError();
      fs.Restart(kModes[round / 2 % 4], static_cast<uint64_t>(crash * 100 + round));
      const int64_t loaded = LoadNewest(&fs);
      ASSERT_TRUE(loaded == 100 || loaded == 200) << loaded;
      const absl::Status started = StartAgain(&fs, 3);
      ASSERT_TRUE(started.ok()) << started;
      ASSERT_EQ(LoadNewest(&fs), 200);
      ASSERT_TRUE(HalfMade(&fs).empty()) << HalfMade(&fs)[0];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, PowerCutTest, ::testing::Values(1, 3));

TEST(RecoverVotedTest, WhatIsNotWholeIsNotRecovered) {
  const StagedSave save(200, 3);
  const std::string folder = TemporaryPath(kRunDir, save.id());
  using Damage = std::function<void(ModelFileSystem*)>;
  const auto flip_in = [&](const std::string& file) -> Damage {
    return [path = JoinPath(folder, file)](ModelFileSystem* fs) {
      std::string content = fs->Contents(path);
      content[content.size() / 2] ^= 1;
      fs->Overwrite(path, content);
    };
  };
  const std::pair<const char*, Damage> cases[] = {
      {"a flipped vote", flip_in(VoteName(1))},
      {"a flipped rank file", flip_in(RankFileName(2, kWorldSize))},
      {"a missing vote",
       [&](ModelFileSystem* fs) {
         ASSERT_TRUE(fs->RemoveFile(JoinPath(folder, VoteName(1))).ok());
       }},
      {"given up by a node after its vote",
       [&](ModelFileSystem* fs) {
         CommitLog(fs, kRunDir, 1).Abandon(save.id(), 2, {2}, "no decision", false);
       }},
      {"given up by a coordinator that died before it took the votes away",
       [&](ModelFileSystem* fs) {
         ASSERT_TRUE(WriteFileAtomically(fs, JoinPath(folder, kDecidedAgainstName), "late").ok());
       }},
      {"under the name of another save",
       [&](ModelFileSystem* fs) {
         SaveIdentity other = save.id();
         ++other.generation;
         ASSERT_TRUE(fs->Rename(folder, TemporaryPath(kRunDir, other)).ok());
       }},
      {"older than what is committed",
       [](ModelFileSystem* fs) {
         const StagedSave newer(300,
                                3);  // which has not been read back, so that nothing was retired
         ASSERT_TRUE(VoteOnNodes(fs, newer, 0, 3).ok());
         ASSERT_TRUE(CommitVoted(fs, newer).ok());
       }},
  };
  for (const auto& [what, damage] : cases) {
    SCOPED_TRACE(what);
    RunWithTwoCommits fs(3);
    ASSERT_TRUE(VoteOnNodes(&fs, save, 0, 3).ok());
    damage(&fs);
    ASSERT_TRUE(StartAgain(&fs, 2).ok());
    // Not even for a moment: loading would find it bad, but until then it would be called
    // committed.
    EXPECT_FALSE(fs.ListDirectory(CheckpointPath(kRunDir, 200)).ok());
    EXPECT_NE(LoadNewest(&fs), 200);
    EXPECT_TRUE(HalfMade(&fs).empty());
  }
}

TEST(RecoverVotedTest, ADiskThatDoesNotAnswerCostsNothing) {
  RunWithTwoCommits model(3);
  ASSERT_TRUE(VoteOnNodes(&model, StagedSave(200, 3), 0, 3).ok());
  // Another run, and a start that is not later, do not recover it.
  CommitLog log(&model, kRunDir, 1);
  EXPECT_FALSE(Recover(log, 1)->has_value());
  EXPECT_FALSE(Recover(log, 2, NotFenced, "other")->has_value());
  EXPECT_TRUE(
      absl::IsAborted(Recover(log, 2, [] { return absl::AbortedError("taken"); }).status()));
  ASSERT_TRUE(StartAgain(&model, 3).ok());
  EXPECT_EQ(LoadNewest(&model), 200);

  // Whatever call fails, once or for good: the start after it finds what was voted for.
  for (const bool is_sticky : {false, true}) {
    bool has_failed = true;
    for (int64_t index = 0; has_failed; ++index) {
      RunWithTwoCommits disk(3);
      ASSERT_TRUE(VoteOnNodes(&disk, StagedSave(200, 3), 0, 3).ok());
      FaultFileSystem fs(&disk);
      fs.BreakCall(index, EIO, is_sticky);
      StartAgain(&fs, 2).IgnoreError();
      has_failed = fs.num_faults() > 0;
      SCOPED_TRACE(absl::StrCat("call ", index, " on ", fs.fault_path()));
      ASSERT_TRUE(StartAgain(&disk, 3).ok());
      ASSERT_EQ(LoadNewest(&disk), 200);
    }
  }
}

TEST(RecoverVotedTest, TheNewestOfSeveralIsRecovered) {
  RunWithTwoCommits fs(1);
  for (const int64_t step : {200, 400, 300})
    ASSERT_TRUE(VoteOnNodes(&fs, StagedSave(step, 1), 0, 1).ok());
  CommitLog log(&fs, kRunDir, 1);
  EXPECT_EQ(Recover(log, 2)->value().step, 400);
  ASSERT_TRUE(StartAgain(&fs, 2).ok());
  EXPECT_EQ(LoadNewest(&fs), 400);
  EXPECT_TRUE(HalfMade(&fs).empty());
}

// It gives the save up when all has been read, and finds nothing under the names that it knows.
TEST(RecoverVotedTest, WhatTheOldServiceDoesIsTooLate) {
  RunWithTwoCommits model(3);
  const StagedSave save(200, 3);
  ASSERT_TRUE(VoteOnNodes(&model, save, 0, 3).ok());
  FaultFileSystem fs(&model);
  fs.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call == FaultyCall::kRename && BaseName(path) == StepName(200))
      CommitLog(&model, kRunDir, 1).Abandon(save.id(), 0, {0}, "late", /*is_coordinator=*/true);
  });
  ASSERT_TRUE(StartAgain(&fs, 2).ok());
  EXPECT_EQ(LoadNewest(&model), 200);
}

// A start that was only judged dead goes on with what it began.
TEST(RecoverVotedTest, WhatALaterStartHasClaimedIsItsOwn) {
  RunWithTwoCommits fs(3);
  const StagedSave save(200, 3);
  ASSERT_TRUE(VoteOnNodes(&fs, save, 0, 3).ok());
  const std::string claimed =
      JoinPath(CheckpointsPath(kRunDir), ClaimedName(200, save.id().generation, 3));
  ASSERT_TRUE(fs.Rename(TemporaryPath(kRunDir, save.id()), claimed).ok());
  CommitLog log(&fs, kRunDir, 1);
  EXPECT_FALSE(Recover(log, 2)->has_value());
  ASSERT_TRUE(log.RemoveLeftovers(2).ok());
  ASSERT_TRUE(log.Retire(2, 0, StagedSave(300, 3, 2).id().generation).ok());
  EXPECT_TRUE(fs.ListDirectory(claimed).ok());
  ASSERT_TRUE(StartAgain(&fs, 4).ok());
  EXPECT_EQ(LoadNewest(&fs), 200);
}

// What else may stand under the names of saves and trash: it hides no voted save, and goes; what a
// link names is not ours.
TEST(RecoverVotedTest, StrayFilesAndLinksAreNoObstacle) {
  namespace fs = std::filesystem;
  const TemporaryDirectory directory;
  CommitLog log(FileSystem::Posix(), directory.path(), 1);
  ASSERT_TRUE(log.PrepareRunDirectory().ok());
  const StagedSave save(200, 1);
  WriteTimes times;
  ASSERT_TRUE(log.WriteAndVote(save.JobOf(0), &times).ok());
  const std::string outside = directory.path() + "/outside";
  fs::create_directory(outside);
  std::ofstream(outside + "/mine") << "precious";
  const std::string parent = CheckpointsPath(directory.path()) + "/";
  for (const std::string& name :
       {TrashName(7), RetiredName(8), TemporaryName(StagedSave(300, 1).id())})
    std::ofstream(parent + name) << "junk";
  for (const std::string& name :
       {TrashName(9), RetiredName(10), TemporaryName(StagedSave(400, 1).id())})
    fs::create_directory_symlink(outside, parent + name);
  std::ofstream(parent + StepName(500)) << "junk";
  const auto recovered = Recover(log, 2);
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_TRUE(recovered->has_value());
  const absl::Status tidy = log.RemoveLeftovers(2);
  EXPECT_TRUE(tidy.ok()) << tidy;
  EXPECT_EQ(LoadNewest(FileSystem::Posix(), directory.path()), 200);
  EXPECT_TRUE(fs::exists(outside + "/mine"));
  for (const auto& entry : fs::directory_iterator(parent))
    EXPECT_TRUE(ParseStepName(BaseName(entry.path().string())) ||
                absl::EndsWith(entry.path().string(), ".quarantine"))
        << entry.path() << " stays";
}

}  // namespace
}  // namespace anyorder::ckpt
