// The writer's thread on its own: what it does when the run is another's, what it looks at while it
// waits, and what reading back decides.

#include "ckpt/save_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

#include "ckpt/layout.h"
#include "core/base/monotonic_clock.h"
#include "core/base/mutex.h"
#include "tests/ckpt/staged_save.h"
#include "tests/testing/fault_file_system.h"
#include "tests/testing/model_file_system.h"

namespace anyorder::ckpt {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class SaveWriterTest : public ::testing::Test {
 protected:
  // Takes `save` to its end, under `options_`; "COMMITTED" or "ABANDONED: reason" is the last of
  // what it reports about it, but for "VERIFIED" and "DAMAGED: reason".
  std::vector<std::string> Write(QueuedSave save) {
    struct {
      Mutex mutex;
      std::vector<std::string> texts ABSL_GUARDED_BY(mutex);
    } reports;
    options_.node = save.job.node;
    options_.num_nodes = save.job.id.num_nodes;
    CommitLog log(&fs_, kRunDir, 1);
    const auto fence = [this] {
      return is_lost_ ? absl::AbortedError("taken by another") : absl::OkStatus();
    };
    {
      SaveWriter writer(&log, options_, fence, [&](const SaveProgress& progress) {
        const MutexLock lock(&reports.mutex);
        reports.texts.push_back(std::string(Name(progress.state)));
        if (!progress.reason.empty()) reports.texts.back() += ": " + progress.reason;
        if (progress.state == loses_at_) is_lost_ = true;
      });
      writer.Enqueue(std::move(save));
    }
    const MutexLock lock(&reports.mutex);
    return reports.texts;
  }
  std::vector<std::string> Write(const StagedSave& save, int node = 0) {
    return Write({.job = save.JobOf(node), .is_coordinator = node == 0, .began = MonotonicNow()});
  }
  bool IsThere(const std::string& name) {
    const auto names = model_.ListDirectory(CheckpointsPath(kRunDir)).value();
    return std::find(names.begin(), names.end(), name) != names.end();
  }
  // The first read of a checkpoint's payload meets damage, and whatever `then` does.
  void DamageWhatIsReadBack(
      const std::string& step_name, std::function<void()> then = [] {}) {
    fs_.set_before_call([=, this](int64_t, FaultyCall call, const std::string& path) {
      if (call != FaultyCall::kRead || !absl::StrContains(path, step_name + "/rank-")) return;
      if (std::exchange(is_damaged_, true)) return;
      std::string content = model_.Contents(path);
      content.back() ^= 1;
      model_.Overwrite(path, content);
      then();
    });
  }

  ModelFileSystem model_;
  FaultFileSystem fs_{&model_};
  ServiceOptions options_{.run_dir = kRunDir,
                          .run_id = "test",
                          .attempt = 1,
                          .vote_limit = absl::Seconds(10),
                          .ended_grace = absl::ZeroDuration(),
                          .fs = &fs_};
  SaveState loses_at_ = SaveState::kCopying;  // the run is another's from this report on
  std::atomic<bool> is_lost_ = false;
  bool is_damaged_ = false;
};

TEST_F(SaveWriterTest, GivesUpNothingOfARunThatIsAnothers) {
  for (const int num_nodes : {1, 3}) {
    for (const bool is_lost : {true, false}) {
      ModelFileSystem fresh;
      model_.CopyFrom(fresh);
      PrepareWithTwoCommits(&model_, num_nodes);
      const StagedSave save(200, num_nodes);
      ASSERT_TRUE(VoteOnNodes(&model_, save, 0, num_nodes).ok());
      const uint64_t before = model_.Fingerprint("/");
      is_lost_ = is_lost;
      const auto reports = Write(
          {.job = {.id = save.id()}, .is_coordinator = true, .abandon_reason = "a rank left"});
      EXPECT_THAT(reports, Contains("ABANDONED: a rank left"));
      EXPECT_EQ(model_.Fingerprint("/") == before, is_lost) << num_nodes;
    }
  }
}

TEST_F(SaveWriterTest, WaitsForNoVoteInARunThatIsAnothers) {
  PrepareWithTwoCommits(&model_, 3);
  loses_at_ = SaveState::kDurable;
  EXPECT_THAT(Write(StagedSave(200, 3)), Contains("ABANDONED: taken by another"));
}

TEST_F(SaveWriterTest, RetiresAndSetsAsideNothingInARunThatIsAnothers) {
  for (const bool is_bad : {false, true}) {
    for (const bool is_lost : {true, false}) {
      ModelFileSystem fresh;
      model_.CopyFrom(fresh);
      PrepareWithTwoCommits(&model_, 1);
      is_damaged_ = !is_bad;
      is_lost_ = false;
      loses_at_ = is_lost ? SaveState::kCommitted : SaveState::kCopying;
      DamageWhatIsReadBack(StepName(200));
      const auto reports = Write(StagedSave(200, 1));
      EXPECT_THAT(reports, Contains(HasSubstr(is_bad ? "DAMAGED" : "VERIFIED")));
      EXPECT_EQ(IsThere(StepName(50)),
                is_bad || is_lost);  // what was not read back retires nothing
      EXPECT_EQ(IsThere(StepName(200)), !is_bad || is_lost);
    }
  }
}

// The next owner has committed the step anew by then.
TEST_F(SaveWriterTest, SetsAsideOnlyWhatItReadBack) {
  PrepareWithTwoCommits(&model_, 1);
  DamageWhatIsReadBack(StepName(200), [this] {
    const std::string path = CheckpointPath(kRunDir, 200);
    ASSERT_TRUE(model_.Rename(path, path + ".quarantine").ok());
    ASSERT_TRUE(Save(&model_, 200, 1, /*attempt=*/2).ok());
  });
  EXPECT_THAT(Write(StagedSave(200, 1)), Contains(HasSubstr("DAMAGED")));
  EXPECT_EQ(LoadNewest(&model_), 200);
}

TEST_F(SaveWriterTest, ANodeThatDoesNotSayWhatItReadLeavesAllAsItIs) {
  PrepareWithTwoCommits(&model_, 3);
  const StagedSave save(200, 3);
  ASSERT_TRUE(VoteOnNodes(&model_, save, 1, 3).ok());
  options_.read_back_limit = absl::ZeroDuration();
  EXPECT_EQ(Write(save).back(), "COMMITTED");
  EXPECT_TRUE(IsThere(StepName(200)) && IsThere(StepName(50)));
}

// Its vote came after the decision, so that nobody takes it away.
TEST_F(SaveWriterTest, AVoteThatIsTooLateHearsOfTheDecision) {
  PrepareWithTwoCommits(&model_, 3);
  const StagedSave save(200, 3);
  CommitLog(&model_, kRunDir, 1).Abandon(save.id(), 0, {0}, "no vote of node 2", true);
  EXPECT_THAT(Write(save, 2), Contains("ABANDONED: no vote of node 2"));
}

// A coordinator that ends after the first look, having decided nothing: its end is all there is.
TEST_F(SaveWriterTest, ACoordinatorThatEndsLaterIsSeenToHaveEnded) {
  PrepareWithTwoCommits(&model_, 3);
  int num_looks = 0;
  fs_.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call != FaultyCall::kOpen || BaseName(path) != VoteName(2) || ++num_looks != 2) return;
    CommitLog(&model_, kRunDir, 1).RecordEnd(1, 0, /*is_coordinator=*/true);
  });
  EXPECT_THAT(Write(StagedSave(200, 3), 2),
              Contains("ABANDONED: the coordinator's service ended and has decided nothing"));
}

// It commits and ends between two looks at names of its.
TEST_F(SaveWriterTest, WhatTheCoordinatorDecidedBeforeItsEndCounts) {
  PrepareWithTwoCommits(&model_, 3);
  options_.verify_after_commit = false;
  const StagedSave save(200, 3);
  ASSERT_TRUE(VoteOnNodes(&model_, save, 0, 2).ok());
  fs_.set_before_call([&](int64_t, FaultyCall call, const std::string& path) {
    if (call != FaultyCall::kOpen || BaseName(path) != CoordinatorEndedName(1)) return;
    if (IsThere(StepName(200))) return;
    ASSERT_TRUE(CommitVoted(&model_, save).ok());
    CommitLog(&model_, kRunDir, 1).RecordEnd(1, 0, /*is_coordinator=*/true);
  });
  EXPECT_THAT(Write(save, 2), Contains("COMMITTED"));
}

}  // namespace
}  // namespace anyorder::ckpt
