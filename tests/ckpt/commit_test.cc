// The commit protocol on a file system that loses power: every operation of a save is a crash point.

#include "ckpt/commit.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "ckpt/rank_file.h"
#include "ckpt/reader.h"
#include "tests/testing/model_file_system.h"

namespace anyorder::ckpt {
namespace {

constexpr char kRunDir[] = "/run";
constexpr int kWorldSize = 3;

SaveIdentity IdentityOf(int64_t step, int num_nodes) {
  return {
      "test", 1, kGenerationsPerIncarnation + step * kAttemptsPerStep, step, kWorldSize, num_nodes};
}

// A save of three ranks whose values tell the step.
class StagedSave {
 public:
  StagedSave(int64_t step, int num_nodes) : id_(IdentityOf(step, num_nodes)) {
    values_.assign(3000, static_cast<float>(step));
    for (int rank = 0; rank < kWorldSize; ++rank) {
      const TensorRange range = {"master",
                                 DType::kFloat32,
                                 {3000},
                                 rank * 1000,
                                 rank * 1000 + 1000,
                                 values_.data() + rank * 1000};
      const absl::StatusOr<RankFilePlan> plan = PlanRankFile(id_, rank, {range});
      EXPECT_TRUE(plan.ok()) << plan.status();
      files_.emplace_back(plan->layout.file_bytes);
      StagedFile file;
      file.rank = rank;
      file.crcs = CopyRankFile(*plan, {range}, files_.back().data());
      file.bytes = plan->layout.file_bytes;
      file.data = files_.back().data();
      file.pieces = plan->pieces;
      file.pieces[0].offset = plan->layout.offsets[0];
      staged_.push_back(file);
    }
  }

  // The job of `node` when ranks are dealt to nodes one each, or all to one node.
  SaveJob JobOf(int node) const {
    SaveJob job;
    job.id = id_;
    job.node = node;
    job.metadata = "{}";
    for (const StagedFile& file : staged_) {
      if (id_.num_nodes == 1 || file.rank == node) job.files.push_back(file);
    }
    return job;
  }

  const SaveIdentity& id() const { return id_; }

 private:
  const SaveIdentity id_;
  std::vector<float> values_;
  std::vector<std::vector<uint8_t>> files_;
  std::vector<StagedFile> staged_;
};

absl::Status Save(FileSystem* fs, int64_t step, int num_nodes) {
  const StagedSave save(step, num_nodes);
  CommitLog log(fs, kRunDir, /*num_threads=*/1);
  for (int node = 0; node < num_nodes; ++node) {
    WriteTimes times;
    const absl::Status voted = log.WriteAndVote(save.JobOf(node), &times);
    if (!voted.ok()) return voted;
  }
  const absl::StatusOr<Manifest> manifest = log.CollectVotes(save.id());
  if (!manifest.ok()) return manifest.status();
  const absl::Status committed = log.Commit(*manifest, [] { return absl::OkStatus(); });
  // Retiring is part of every save but not of its success.
  if (committed.ok()) log.Retire(2, 0, save.id().generation).IgnoreError();
  return committed;
}

// The step that a restart would load, its every value checked; -1 and a failure if there is none.
int64_t LoadNewest(FileSystem* fs) {
  const absl::StatusOr<std::string> newest = FindNewestGood(kRunDir, true, fs);
  EXPECT_TRUE(newest.ok()) << newest.status();
  if (!newest.ok()) return -1;
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(*newest, fs);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  if (!checkpoint.ok()) return -1;
  std::vector<float> values(3000);
  const absl::Status read = checkpoint->Read("master", 0, 3000, values.data());
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_EQ(values, std::vector<float>(3000, static_cast<float>(checkpoint->step())));
  return checkpoint->step();
}

void PrepareWithTwoCommits(ModelFileSystem* fs, int num_nodes) {
  ASSERT_TRUE(fs->MakeDirectory(kRunDir).ok());
  ASSERT_TRUE(fs->SyncDirectory("/").ok());
  ASSERT_TRUE(CommitLog(fs, kRunDir, 1).PrepareRunDirectory().ok());
  for (const int64_t step : {50, 100}) {
    const absl::Status saved = Save(fs, step, num_nodes);
    ASSERT_TRUE(saved.ok()) << saved;
  }
}

class CrashPointTest : public ::testing::TestWithParam<int> {};

TEST_P(CrashPointTest, EveryCrashLeavesTheNewestCommittedOrTheOneBefore) {
  const int num_nodes = GetParam();
  ModelFileSystem probe;
  PrepareWithTwoCommits(&probe, num_nodes);
  const int64_t first = probe.num_operations();
  ASSERT_TRUE(Save(&probe, 200, num_nodes).ok());
  const int64_t last = probe.num_operations();
  ASSERT_GT(last - first, 30);

  int num_new = 0;
  int num_old = 0;
  for (int64_t crash = first; crash <= last; ++crash) {
    for (int round = 0; round < 6; ++round) {
      const CrashMode mode = round == 0   ? CrashMode::kLoseUnsynced
                             : round == 1 ? CrashMode::kKeepAll
                                          : CrashMode::kTear;
      SCOPED_TRACE(absl::StrCat("crash at operation ", crash - first, ", round ", round));
      ModelFileSystem fs;
      PrepareWithTwoCommits(&fs, num_nodes);
      fs.CrashAt(crash);
      const absl::Status saved = Save(&fs, 200, num_nodes);
      fs.Restart(mode, static_cast<uint64_t>(crash * 10 + round));
      const absl::StatusOr<std::vector<CheckpointInfo>> infos = ListCheckpoints(kRunDir, &fs);
      ASSERT_TRUE(infos.ok());
      for (const CheckpointInfo& info : *infos)
        ASSERT_TRUE(info.opens) << "half made or half deleted: " << info.fault;
      const int64_t loaded = LoadNewest(&fs);
      ASSERT_TRUE(loaded == 200 || (loaded == 100 && !saved.ok())) << "loaded " << loaded;
      (loaded == 200 ? num_new : num_old)++;
      // Life goes on: what the crash left behind is no obstacle to the next start.
      ASSERT_TRUE(CommitLog(&fs, kRunDir, 1).RemoveLeftovers(2).ok());
      const absl::Status next = Save(&fs, 300, num_nodes);
      ASSERT_TRUE(next.ok()) << next;
      fs.Restart(CrashMode::kLoseUnsynced, 0);
      ASSERT_EQ(LoadNewest(&fs), 300);
    }
  }
  // Both outcomes must occur, or the crash points do not surround the commit.
  EXPECT_GT(num_new, 0);
  EXPECT_GT(num_old, 0);
}

INSTANTIATE_TEST_SUITE_P(Nodes, CrashPointTest, ::testing::Values(1, 3));

TEST(CommitTest, CommitNeedsTheVotesOfAllNodes) {
  ModelFileSystem fs;
  PrepareWithTwoCommits(&fs, 3);
  const StagedSave save(200, 3);
  CommitLog log(&fs, kRunDir, 1);
  WriteTimes times;
  ASSERT_TRUE(log.WriteAndVote(save.JobOf(0), &times).ok());
  ASSERT_TRUE(log.WriteAndVote(save.JobOf(2), &times).ok());
  EXPECT_TRUE(absl::IsUnavailable(log.CollectVotes(save.id()).status()));
  EXPECT_TRUE(absl::IsUnavailable(log.ReadOutcome(save.id())));
  ASSERT_TRUE(log.WriteAndVote(save.JobOf(1), &times).ok());
  EXPECT_TRUE(log.CollectVotes(save.id()).ok());
}

TEST(CommitTest, OneNodeGivingUpAbandonsTheSaveOnAll) {
  ModelFileSystem fs;
  PrepareWithTwoCommits(&fs, 3);
  const StagedSave save(200, 3);
  CommitLog log(&fs, kRunDir, 1);
  WriteTimes times;
  ASSERT_TRUE(log.WriteAndVote(save.JobOf(0), &times).ok());
  log.Abandon(save.id(), 1, {1}, "rank 1 went away");
  const absl::Status collected = log.CollectVotes(save.id()).status();
  EXPECT_TRUE(absl::IsAborted(collected));
  EXPECT_EQ(collected.message(), "node 1: rank 1 went away");
  EXPECT_TRUE(absl::IsAborted(log.ReadOutcome(save.id())));
}

TEST(CommitTest, StagedBytesThatChangedInMemoryAreNotCommitted) {
  ModelFileSystem fs;
  PrepareWithTwoCommits(&fs, 1);
  const StagedSave save(200, 1);
  SaveJob job = save.JobOf(0);
  const_cast<uint8_t*>(job.files[1].data)[job.files[1].bytes - 1] ^= 1;
  CommitLog log(&fs, kRunDir, 1);
  WriteTimes times;
  EXPECT_TRUE(absl::IsDataLoss(log.WriteAndVote(job, &times)));
}

TEST(CommitTest, AFencedCoordinatorDoesNotCommit) {
  ModelFileSystem fs;
  PrepareWithTwoCommits(&fs, 1);
  const StagedSave save(200, 1);
  CommitLog log(&fs, kRunDir, 1);
  WriteTimes times;
  ASSERT_TRUE(log.WriteAndVote(save.JobOf(0), &times).ok());
  const absl::StatusOr<Manifest> manifest = log.CollectVotes(save.id());
  ASSERT_TRUE(manifest.ok());
  EXPECT_TRUE(absl::IsAborted(log.Commit(*manifest, [] { return absl::AbortedError("taken"); })));
  EXPECT_EQ(LoadNewest(&fs), 100);
}

TEST(CommitTest, ACommittedStepIsNeverReplaced) {
  ModelFileSystem fs;
  PrepareWithTwoCommits(&fs, 1);
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

TEST(CommitTest, RetentionKeepsTheLastAndEveryMth) {
  ModelFileSystem fs;
  PrepareWithTwoCommits(&fs, 1);
  CommitLog log(&fs, kRunDir, 1);
  // Commit without Save's own Retire.
  for (const int64_t step : {200, 300, 400}) {
    const StagedSave save(step, 1);
    WriteTimes times;
    ASSERT_TRUE(log.WriteAndVote(save.JobOf(0), &times).ok());
    ASSERT_TRUE(log.Commit(*log.CollectVotes(save.id()), [] { return absl::OkStatus(); }).ok());
  }
  ASSERT_TRUE(log.Retire(2, 100, IdentityOf(400, 1).generation).ok());
  EXPECT_EQ(ListCheckpoints(kRunDir, &fs)->size(), 4u);  // 50 is gone
  ASSERT_TRUE(log.Retire(1, 200, IdentityOf(400, 1).generation).ok());
  std::vector<int64_t> steps;
  const absl::StatusOr<std::vector<CheckpointInfo>> infos = ListCheckpoints(kRunDir, &fs);
  ASSERT_TRUE(infos.ok());
  for (const CheckpointInfo& info : *infos)
    steps.push_back(info.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{400, 300, 200}));  // asked for one, two are kept
  const absl::StatusOr<std::vector<std::string>> left = fs.ListDirectory("/run/checkpoints");
  EXPECT_EQ(left->size(), 3u);
}

}  // namespace
}  // namespace anyorder::ckpt
