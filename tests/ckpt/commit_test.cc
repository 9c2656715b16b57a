// The two phases of a commit, one call at a time. Power cuts: power_cut_test.cc; failing calls:
// io_error_test.cc.

#include "ckpt/commit.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "ckpt/reader.h"
#include "tests/ckpt/staged_save.h"
#include "tests/testing/fault_file_system.h"
#include "tests/testing/model_file_system.h"

namespace anyorder::ckpt {
namespace {

TEST(CommitTest, CommitNeedsTheVotesOfAllNodes) {
  RunWithTwoCommits fs(3);
  const StagedSave save(200, 3);
  CommitLog log(&fs, kRunDir, 1);
  ASSERT_TRUE(VoteOnNodes(&fs, save, 0, 1).ok());
  ASSERT_TRUE(VoteOnNodes(&fs, save, 2, 3).ok());
  EXPECT_TRUE(absl::IsUnavailable(log.CollectVotes(save.id()).status()));
  EXPECT_TRUE(absl::IsUnavailable(log.ReadOutcome(save.id())));
  ASSERT_TRUE(VoteOnNodes(&fs, save, 1, 2).ok());
  EXPECT_TRUE(log.CollectVotes(save.id()).ok());
}

TEST(CommitTest, OneNodeGivingUpAbandonsTheSaveOnAll) {
  RunWithTwoCommits model(3);
  FaultFileSystem fs(&model);
  const StagedSave save(200, 3);
  const std::string folder = TemporaryPath(kRunDir, save.id());
  const auto has = [&](const std::string& name) {
    return model.OpenForRead(JoinPath(folder, name)).ok();
  };
  CommitLog log(&fs, kRunDir, 1);
  ASSERT_TRUE(VoteOnNodes(&model, save, 0, 3).ok());
  ASSERT_TRUE(model.RemoveFile(JoinPath(folder, VoteName(2))).ok());
  log.Abandon(save.id(), 2, {2}, "its disk is full", false);
  EXPECT_FALSE(has(RankFileName(2, 3)));
  const absl::Status collected = log.CollectVotes(save.id()).status();
  EXPECT_TRUE(absl::IsAborted(collected));
  EXPECT_EQ(collected.message(), "node 2: its disk is full");
  // The coordinator, which decides, may be committing the files of one that has voted.
  log.Abandon(save.id(), 1, {1}, "no decision", false);
  EXPECT_TRUE(has(RankFileName(1, 3)));
  EXPECT_TRUE(absl::IsUnavailable(log.ReadOutcome(save.id())));
  EXPECT_TRUE(log.VoteStands(save.id(), 0));
  fs.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call != FaultyCall::kRemove || absl::EndsWith(path, ".tmp")) return;
    EXPECT_TRUE(has(kDecidedAgainstName)) << path << " goes before the record";
  });
  log.Abandon(save.id(), 0, {0}, std::string(collected.message()), true);
  EXPECT_EQ(log.ReadOutcome(save.id()), collected);
  EXPECT_FALSE(log.VoteStands(save.id(), 0));  // which tells the others to look
  EXPECT_EQ(model.ListDirectory(folder).value(),
            (std::vector<std::string>{AbandonedName(1), AbandonedName(2), kDecidedAgainstName}));
}

// What has all its votes and half its files must not be there for a moment.
TEST(CommitTest, GivingUpOnOneNodeTakesTheNameAwayBeforeTheFiles) {
  RunWithTwoCommits model(1);
  FaultFileSystem fs(&model);
  const StagedSave save(200, 1);
  ASSERT_TRUE(VoteOnNodes(&model, save, 0, 1).ok());
  fs.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call == FaultyCall::kRemove && absl::StrContains(path, kRankFilePrefix))
      model.CrashAt(model.num_operations(), /*reaches_drive=*/true);
  });
  CommitLog(&fs, kRunDir, 1).Abandon(save.id(), 0, {0, 1, 2}, "no space", true);
  model.Restart(CrashMode::kLoseUnsynced, 0);
  EXPECT_EQ(HalfMade(&model), std::vector<std::string>{TrashName(save.id().generation)});
}

// A name that is visible means that all its files are on disk, also after a power cut.
TEST(CommitTest, WhatAVoteAManifestAndAStepVouchForIsOnDiskBeforeThem) {
  for (const std::string& name : {VoteName(0), std::string(kManifestName), StepName(200)}) {
    RunWithTwoCommits model(1);
    FaultFileSystem fs(&model);
    const std::string folder = TemporaryPath(kRunDir, StagedSave(200, 1).id());
    std::map<std::string, std::string> files;
    fs.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
      if (call != FaultyCall::kRename || BaseName(path) != name) return;
      const auto names = model.ListDirectory(folder).value();
      for (const std::string& file : names)
        if (!absl::EndsWith(file, ".tmp")) files[file] = model.Contents(JoinPath(folder, file));
      model.CrashAt(model.num_operations(), /*reaches_drive=*/false);
    });
    EXPECT_FALSE(Save(&fs, 200, 1).ok());
    model.Restart(CrashMode::kLoseUnsynced, 0);
    EXPECT_GE(files.size(), 3u);
    for (const auto& [file, content] : files) {
      ASSERT_TRUE(model.OpenForRead(JoinPath(folder, file)).ok()) << file << " before " << name;
      EXPECT_EQ(model.Contents(JoinPath(folder, file)), content) << file << " before " << name;
    }
  }
}

TEST(CommitTest, AnotherNodesCommitIsTheSavesOwnAndDurable) {
  RunWithTwoCommits fs(3);
  const StagedSave save(200, 3);
  CommitLog log(&fs, kRunDir, 1);
  ASSERT_TRUE(VoteOnNodes(&fs, save, 0, 3).ok());
  const std::string folder = TemporaryPath(kRunDir, save.id());
  const Manifest manifest = log.CollectVotes(save.id()).value();
  ASSERT_TRUE(
      WriteFileAtomically(&fs, JoinPath(folder, kManifestName), SerializeManifest(manifest)).ok());
  // The coordinator stops before its sync.
  ASSERT_TRUE(fs.Rename(folder, CheckpointPath(kRunDir, 200)).ok());
  SaveIdentity other = save.id();
  ++other.generation;
  EXPECT_TRUE(absl::IsUnavailable(log.ReadOutcome(other)));
  EXPECT_TRUE(log.ReadOutcome(save.id()).ok());
  fs.Restart(CrashMode::kLoseUnsynced, 0);
  EXPECT_EQ(LoadNewest(&fs), 200);
}

// A node votes and ends between two looks of the coordinator.
TEST(CommitTest, AVoteBeforeTheEndIsNotMissing) {
  RunWithTwoCommits model(3);
  FaultFileSystem fs(&model);
  const StagedSave save(200, 3);
  ASSERT_TRUE(VoteOnNodes(&model, save, 0, 2).ok());
  CommitLog log(&fs, kRunDir, 1);
  NodeRecords votes = log.VotesOf(save.id());
  EXPECT_TRUE(absl::IsUnavailable(log.CollectVotes(save.id(), votes).status()));
  fs.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call != FaultyCall::kOpen || BaseName(path) != EndedName(1, 2)) return;
    ASSERT_TRUE(VoteOnNodes(&model, save, 2, 3).ok());
    CommitLog(&model, kRunDir, 1).RecordEnd(1, 2, /*is_coordinator=*/false);
  });
  EXPECT_EQ(log.EndedWithout(1, votes), std::nullopt);
  EXPECT_TRUE(log.CollectVotes(save.id(), votes).ok());
}

TEST(CommitTest, StagedBytesThatChangedInMemoryAreNotCommitted) {
  RunWithTwoCommits fs(1);
  const StagedSave save(200, 1);
  SaveJob job = save.JobOf(0);
  const_cast<uint8_t*>(job.files[1].data)[job.files[1].bytes - 1] ^= 1;
  CommitLog log(&fs, kRunDir, 1);
  WriteTimes times;
  EXPECT_TRUE(absl::IsDataLoss(log.WriteAndVote(job, &times)));
}

TEST(CommitTest, AFencedCoordinatorDoesNotCommit) {
  RunWithTwoCommits fs(1);
  const StagedSave save(200, 1);
  CommitLog log(&fs, kRunDir, 1);
  ASSERT_TRUE(VoteOnNodes(&fs, save, 0, 1).ok());
  const Manifest manifest = log.CollectVotes(save.id()).value();
  EXPECT_TRUE(absl::IsAborted(log.Commit(manifest, [] { return absl::AbortedError("taken"); })));
  EXPECT_EQ(LoadNewest(&fs), 100);
}

TEST(CommitTest, ACommittedStepIsNeverReplaced) {
  RunWithTwoCommits fs(1);
  SaveJob job = StagedSave(100, 1).JobOf(0);
  job.id.generation += 7;
  CommitLog log(&fs, kRunDir, 1);
  WriteTimes times;
  EXPECT_TRUE(absl::IsAlreadyExists(log.WriteAndVote(job, &times)));
}

TEST(CommitTest, VotesThatLeaveAGapOrOverlapAreRefused) {
  const StagedSave save(200, 1);
  const SaveJob job = save.JobOf(0);
  Vote vote;
  vote.id = save.id();
  for (const StagedFile& file : job.files)
    vote.files.push_back(
        {{absl::StrCat("f", file.rank), file.bytes, file.crcs}, file.rank, file.pieces});
  ASSERT_TRUE(MergeVotes({vote}).ok());
  for (const int64_t shift : {-1, 1}) {
    Vote bad = vote;
    bad.files[1].pieces[0].begin += shift;
    bad.files[1].pieces[0].end += shift;
    EXPECT_TRUE(absl::IsDataLoss(MergeVotes({bad}).status())) << shift;
  }
  Vote twice = vote;
  twice.files[2].rank = 1;
  EXPECT_TRUE(absl::IsDataLoss(MergeVotes({twice}).status()));
  Vote other_dtype = vote;
  other_dtype.files[1].pieces[0].dtype = DType::kInt32;
  EXPECT_TRUE(absl::IsDataLoss(MergeVotes({other_dtype}).status()));
}

using Steps = std::vector<int64_t>;

// Of all checkpoints.
Steps StepsOf(ModelFileSystem& fs) {
  Steps steps;
  const std::vector<CheckpointInfo> checkpoints = ListCheckpoints(kRunDir, &fs).value();
  for (const CheckpointInfo& info : checkpoints) steps.push_back(info.step);
  return steps;
}

TEST(CommitTest, RetentionKeepsTheLastAndEveryMth) {
  RunWithTwoCommits fs(1);
  CommitLog log(&fs, kRunDir, 1);
  // Commit without Save's own Retire.
  for (const int64_t step : {200, 300, 400}) {
    const StagedSave save(step, 1);
    ASSERT_TRUE(VoteOnNodes(&fs, save, 0, 1).ok());
    ASSERT_TRUE(CommitVoted(&fs, save).ok());
  }
  // Newer ones than the one that was read back may be damaged: they do not count, but stay.
  ASSERT_TRUE(log.Retire(2, 0, StagedSave(100, 1).id().generation).ok());
  EXPECT_EQ(ListCheckpoints(kRunDir, &fs)->size(), 5u);
  ASSERT_TRUE(log.Retire(2, 100, StagedSave(400, 1).id().generation).ok());
  EXPECT_EQ(ListCheckpoints(kRunDir, &fs)->size(), 4u);  // 50 is gone
  fs.Overwrite(JoinPath(CheckpointPath(kRunDir, 300), kManifestName), "damaged");
  ASSERT_TRUE(log.Retire(1, 0, StagedSave(400, 1).id().generation).ok());
  // Asked for one, two are kept, and what is evidence.
  EXPECT_EQ(StepsOf(fs), (Steps{400, 300, 200}));
  const absl::StatusOr<std::vector<std::string>> left = fs.ListDirectory("/run/checkpoints");
  EXPECT_EQ(left->size(), 3u);
}

// Saves of a run whose steps are skipped would otherwise push out the last good one; and the newest
// that names a step which is there keeps it, while what is named no longer goes.
TEST(CommitTest, MetadataSaysWhatNoSavePushesOut) {
  struct Case {
    int64_t step;
    const char* metadata;
    Steps left;               // after all but two were retired
    int64_t named_step = -1;  // which metadata keep
  };
  const std::vector<Case> unproven = {{200, R"({"unproven":true})", {200, 100, 50}},
                                      {300, R"({"unproven":true})", {300, 100, 50}},
                                      {400, R"({"unproven":false})", {400, 300, 100}},
                                      {500, "{}", {500, 400}}};
  const std::vector<Case> named = {{200, R"({"keep_step":50})", {200, 100, 50}, 50},
                                   {300, R"({"keep_step":50})", {300, 200, 50}, 50},
                                   {400, R"({"keep_step":350})", {400, 300, 50}, 50},  // not saved
                                   {500, R"({"keep_step":500})", {500, 400}, 500},
                                   {600, R"({"keep_step":500})", {600, 500}, 500},
                                   {700, R"({"keep_step":500})", {700, 600, 500}, 500},
                                   {800, R"({"keep_step":"no number"})", {800, 700, 500}, 500}};
  for (const std::vector<Case>& saves : {unproven, named}) {
    ModelFileSystem fs;
    PrepareWithTwoCommits(&fs, 1);  // of steps 50 and 100
    for (const auto& [step, metadata, left, named_step] : saves) {
      StagedSave staged(step, 1);
      staged.set_metadata(metadata);
      EXPECT_TRUE(VoteOnNodes(&fs, staged, 0, 1).ok());
      EXPECT_TRUE(CommitVoted(&fs, staged).ok());
      EXPECT_TRUE(RetireOld(&fs, staged).ok());
      EXPECT_EQ(StepsOf(fs), left) << metadata;
      EXPECT_EQ(StepToKeep(ListCheckpoints(kRunDir, &fs).value()), named_step) << metadata;
    }
  }
}

// Between the listing and the rename, the newer ones turned out damaged and the next owner went on
// from what is being retired.
TEST(LateCallTest, ACheckpointThatWasRetiredTooLateIsTakenBack) {
  RunWithTwoCommits model(1);
  const StagedSave newest(200, 1);
  ASSERT_TRUE(VoteOnNodes(&model, newest, 0, 1).ok());
  ASSERT_TRUE(CommitVoted(&model, newest).ok());
  FaultFileSystem fs(&model);
  fs.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call != FaultyCall::kRename || !absl::StrContains(path, kRetiredPrefix)) return;
    for (const int64_t step : {100, 200}) {
      const int64_t generation = StagedSave(step, 1).id().generation;
      ASSERT_TRUE(Quarantine(CheckpointPath(kRunDir, step), generation, &model).ok());
    }
    ASSERT_EQ(LoadNewest(&model), 50);
  });
  ASSERT_TRUE(CommitLog(&fs, kRunDir, 1).Retire(2, 0, newest.id().generation).ok());
  EXPECT_EQ(LoadNewest(&model), 50);

  // The same, and the old owner ends right after the rename.
  ASSERT_TRUE(
      model.Rename(CheckpointPath(kRunDir, 50), JoinPath(CheckpointsPath(kRunDir), RetiredName(7)))
          .ok());
  ASSERT_TRUE(StartAgain(&model, 2).ok());
  EXPECT_EQ(LoadNewest(&model), 50);
}

TEST(LateCallTest, AStepThatWasCommittedAgainIsNotSetAsideForTheOldOne) {
  RunWithTwoCommits fs(1);
  const int64_t damaged = StagedSave(100, 1).id().generation;
  ASSERT_TRUE(Quarantine(CheckpointPath(kRunDir, 100), damaged, &fs).ok());
  ASSERT_TRUE(Save(&fs, 100, 1, /*attempt=*/2).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Quarantine(CheckpointPath(kRunDir, 100), damaged, &fs)));
  EXPECT_EQ(LoadNewest(&fs), 100);
  // If that one is bad, too, it has a name of its own.
  const int64_t later = StagedSave(100, 1, /*attempt=*/2).id().generation;
  EXPECT_TRUE(Quarantine(CheckpointPath(kRunDir, 100), later, &fs).ok());
}

absl::Status Save(FileSystem* fs) {
  std::vector<float> values(kNumValues);
  std::iota(values.begin(), values.end(), 1.0f);
  const std::vector<float> zeros(kNumValues);
  return SaveDirectly(kRunDir, {"test", 0, 0, 0, 1, 1},
                      {{"master", DType::kFloat32, {kNumValues}, 0, kNumValues, values.data()},
                       {"adam_m", DType::kFloat32, {kNumValues}, 0, kNumValues, zeros.data()}},
                      "{\"step\":0}", fs);
}

TEST(DirectSaveTest, SavedTensorsAndMetadataReadBack) {
  ModelFileSystem fs;
  MakeRun(&fs);
  ASSERT_TRUE(Save(&fs).ok());
  fs.Restart(CrashMode::kLoseUnsynced, 0);
  const std::string newest = FindNewestGood(kRunDir, false, &fs).value();
  const Checkpoint checkpoint = Checkpoint::Open(newest, &fs).value();
  EXPECT_EQ(checkpoint.step(), 0);
  EXPECT_EQ(checkpoint.metadata_json(), "{\"step\":0}");
  std::vector<float> read(kNumValues);
  ASSERT_TRUE(checkpoint.Read("master", 0, kNumValues, read.data()).ok());
  std::vector<float> expected(kNumValues);
  std::iota(expected.begin(), expected.end(), 1.0f);
  EXPECT_EQ(read, expected);
  ASSERT_TRUE(checkpoint.Read("adam_m", 0, kNumValues, read.data()).ok());
  EXPECT_EQ(read, std::vector<float>(kNumValues));
}

// Found when the tensor is read, which is when it is written.
TEST(DirectSaveTest, ATensorThatCannotBeReadLeavesNoCheckpoint) {
  ModelFileSystem fs;
  MakeRun(&fs);
  TensorRange range{"master", DType::kFloat32, {kNumValues}, 0, kNumValues};
  range.read = [](int64_t, int64_t, void*) { return absl::FailedPreconditionError("unequal"); };
  EXPECT_EQ(SaveDirectly(kRunDir, {"test", 0, 0, 0, 1, 1}, {range}, "", &fs),
            absl::FailedPreconditionError("unequal"));
  EXPECT_TRUE(absl::IsNotFound(FindNewest(kRunDir, false, &fs).status()));
  EXPECT_TRUE(fs.ListDirectory(CheckpointsPath(kRunDir)).value().empty());
}

TEST(DirectSaveTest, ACrashAnywhereLeavesAWholeCheckpointOrNone) {
  ModelFileSystem probe;
  MakeRun(&probe);
  const int64_t first = probe.num_operations();
  ASSERT_TRUE(Save(&probe).ok());
  const int64_t last = probe.num_operations();
  int num_whole = 0;
  int num_none = 0;
  for (int64_t crash = first; crash <= last; ++crash) {
    for (const CrashMode mode : {CrashMode::kLoseUnsynced, CrashMode::kKeepAll, CrashMode::kTear}) {
      SCOPED_TRACE(absl::StrCat("crash at operation ", crash - first));
      ModelFileSystem fs;
      MakeRun(&fs);
      fs.CrashAt(crash, /*reaches_drive=*/crash % 2 == 0);
      const absl::Status saved = Save(&fs);
      fs.Restart(mode, static_cast<uint64_t>(crash));
      const absl::StatusOr<std::string> newest = FindNewestGood(kRunDir, false, &fs);
      ASSERT_TRUE(newest.ok() || (absl::IsNotFound(newest.status()) && !saved.ok()))
          << newest.status();
      (newest.ok() ? num_whole : num_none)++;
    }
  }
  EXPECT_GT(num_whole, 0);
  EXPECT_GT(num_none, 0);
}

}  // namespace
}  // namespace anyorder::ckpt
