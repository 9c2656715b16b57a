#include "dist/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

#include "dist/collective_watch.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::dist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HeartbeatTest : public ::testing::Test {
 protected:
  std::unique_ptr<Heartbeat> Make(int rank, int64_t attempt = 1) {
    auto heartbeat = Heartbeat::Create(directory_, rank, 3, attempt, "node7");
    EXPECT_TRUE(heartbeat.ok()) << heartbeat.status();
    heartbeat.value()->Tick();
    return *std::move(heartbeat);
  }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path() + "/ranks";
};

TEST_F(HeartbeatTest, OthersReadWhatTheRankDoes) {
  auto heartbeat = Make(2, 5);
  heartbeat->SetPhase("step 12");
  heartbeat->Begin("AllGather", 57);
  absl::StatusOr<RankBeat> beat = ReadRankBeat(directory_, 2);
  ASSERT_TRUE(beat.ok()) << beat.status();
  EXPECT_EQ(beat->attempt, 5);
  EXPECT_EQ(beat->ticks, 1);
  EXPECT_FALSE(beat->has_ended);
  EXPECT_THAT(beat->ToString(),
              AllOf(HasSubstr("rank 2 on node7 (process "),
                    HasSubstr("in phase 'step 12', in collective 57 (AllGather)")));
  heartbeat->End();
  heartbeat->SetPhase(std::string(1000, 'x'));
  beat = ReadRankBeat(directory_, 2);
  EXPECT_THAT(beat->ToString(), HasSubstr("after collective 57 (AllGather)"));
  EXPECT_EQ(beat->phase, std::string(127, 'x'));
  heartbeat.reset();
  EXPECT_TRUE(ReadRankBeat(directory_, 2)->has_ended);
}

TEST_F(HeartbeatTest, NamesWhoIsBehindAndWhoIsSilent) {
  const auto here = Make(0);
  const auto behind = Make(1);
  auto silent = Make(2);
  behind->Begin("Barrier", 8);
  silent->Begin("Exchange", 9);
  here->Begin("Exchange", 9);
  EXPECT_THAT(here->DescribeMissing(9, absl::Hours(1)),
              AllOf(HasSubstr("rank 1 on node7"), HasSubstr("has not reached it"),
                    Not(HasSubstr("rank 2"))));
  absl::SleepFor(absl::Milliseconds(20));
  here->Tick();
  behind->Tick();
  behind->Begin("Exchange", 9);
  EXPECT_THAT(here->DescribeMissing(9, absl::Milliseconds(20)),
              AllOf(HasSubstr("rank 2 on node7"), HasSubstr("stopped or lost")));
  silent.reset();
  EXPECT_THAT(here->DescribeMissing(9, absl::Hours(1)), HasSubstr("rank 2 on node7"));
}

TEST_F(HeartbeatTest, FilesOfOtherStartsAndOtherFilesCountForNothing) {
  const auto here = Make(0, 2);
  const auto old = Make(1, 1);
  std::ofstream(directory_ + "/rank-00002") << "something else";
  EXPECT_EQ(here->DescribeMissing(9, absl::Hours(1)).find("rank 1"), std::string::npos);
  EXPECT_TRUE(absl::IsDataLoss(ReadRankBeat(directory_, 2).status()));
  EXPECT_TRUE(absl::IsNotFound(ReadRankBeat(directory_, 3).status()));
}

// The watch of a waiting rank names the one it waits for.
TEST_F(HeartbeatTest, ReportOfAHangNamesTheMissingRank) {
  const auto mine = Make(0);
  const auto stopped = Make(1);
  stopped->SetPhase("step 3");
  std::string report;
  CollectiveWatchOptions options;
  options.report_after = absl::Milliseconds(20);
  options.exit_after = absl::Milliseconds(60);
  options.heartbeat = mine.get();
  absl::Notification has_exited;
  options.report = [&](const std::string& line) { report += line + "\n"; };
  options.exit = [&] { has_exited.Notify(); };
  CollectiveWatch watch(options, 0, "node0");
  watch.Begin("Barrier");
  has_exited.WaitForNotification();
  watch.End();
  EXPECT_THAT(report, AllOf(HasSubstr("rank 0 on node0: collective 1 (Barrier)"),
                            HasSubstr("missing: "), HasSubstr("rank 1 on node7"),
                            HasSubstr("in phase 'step 3'"), HasSubstr("giving up")));
}

}  // namespace
}  // namespace anyorder::dist
