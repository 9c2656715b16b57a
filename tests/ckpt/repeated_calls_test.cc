// NFS repeats calls whose answers were lost: the protocol takes no second answer for a refusal.

#include "tests/testing/repeated_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "ckpt/lease.h"
#include "tests/ckpt/staged_save.h"
#include "tests/testing/fault_file_system.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::ckpt {
namespace {

namespace fs = std::filesystem;

class RepeatedCallsTest : public ::testing::Test {
 protected:
  // With its vote or votes; committed, if so asked.
  void Save(int64_t step, int64_t attempt, bool commits) {
    const StagedSave save(step, 1, attempt);
    WriteTimes times;
    ASSERT_TRUE(log_.WriteAndVote(save.JobOf(0), &times).ok());
    if (!commits) return;
    const absl::Status committed = log_.Commit(log_.CollectVotes(save.id()).value(), NotFenced);
    ASSERT_TRUE(committed.ok()) << committed;
  }

  const TemporaryDirectory directory_;
  const std::string run_ = directory_.path();
  FileSystem* const posix_ = FileSystem::Posix();
  CommitLog log_{posix_, run_, 1};
};

TEST_F(RepeatedCallsTest, AClaimantDoesNotRefuseItself) {
  const RepeatedCalls repeated;
  for (int64_t attempt = 1; attempt <= 2; ++attempt) {
    auto lease =
        Lease::Acquire(posix_, run_, DescribeThisProcess("r", attempt, ""), absl::Seconds(1));
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_TRUE((*lease)->Renew().ok());
    EXPECT_TRUE((*lease)->CheckHeld().ok());
    EXPECT_TRUE((*lease)->Release().ok());
  }
}

TEST_F(RepeatedCallsTest, ASaveIsCommittedRecoveredRetiredAndSetAside) {
  const RepeatedCalls repeated;
  ASSERT_TRUE(log_.PrepareRunDirectory().ok());
  for (const int64_t step : {50, 100, 150}) Save(step, 1, /*commits=*/true);
  ASSERT_TRUE(log_.Retire(2, 0, StagedSave(150, 1).id().generation).ok());
  EXPECT_EQ(ListSteps(run_).value(), (std::vector<int64_t>{150, 100}));
  Save(200, 1, /*commits=*/false);
  const auto recovered = Recover(log_, 2);
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_TRUE(recovered->has_value());
  Save(250, 2, /*commits=*/false);
  log_.Abandon(StagedSave(250, 1, 2).id(), 0, {0, 1, 2}, "why", /*is_coordinator=*/true);
  ASSERT_TRUE(log_.RemoveLeftovers(3).ok());
  EXPECT_EQ(LoadNewest(posix_, run_), 200);
  const int64_t generation = StagedSave(200, 1).id().generation;
  EXPECT_TRUE(Quarantine(CheckpointPath(run_, 200), generation, posix_).ok());
  EXPECT_EQ(ListSteps(run_).value(), (std::vector<int64_t>{150, 100}));
  const fs::directory_iterator left(CheckpointsPath(run_));
  EXPECT_EQ(std::distance(begin(left), end(left)), 3) << "and what was set aside";
}

// Another's success is none of ours: the name that we wanted is there, but is not what we moved.
TEST_F(RepeatedCallsTest, WhatIsNotOursIsARefusalAsBefore) {
  ASSERT_TRUE(WriteFileAtomically(posix_, run_ + "/theirs", "x").ok());
  EXPECT_TRUE(absl::IsNotFound(posix_->Rename(run_ + "/ours", run_ + "/theirs")));
}

// The directory that "is there already" is this call's own, and its name not durable yet.
TEST(RepeatedMakeDirectoryTest, TheDirectoryOfCheckpointsSurvivesAPowerCut) {
  ModelFileSystem model;
  MakeRun(&model);
  FaultFileSystem faulty(&model);
  faulty.BreakCall(0, EEXIST, /*is_sticky=*/false, /*happens=*/true);
  ASSERT_TRUE(CommitLog(&faulty, kRunDir, 1).PrepareRunDirectory().ok());
  ASSERT_EQ(faulty.fault(), FaultyCall::kMakeDirectory);
  model.Restart(CrashMode::kLoseUnsynced, 0);
  EXPECT_TRUE(model.ListDirectory(CheckpointsPath(kRunDir)).ok());
}

}  // namespace
}  // namespace anyorder::ckpt
