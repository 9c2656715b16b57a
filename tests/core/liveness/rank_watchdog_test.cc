#include "core/liveness/rank_watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace anyorder::liveness {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Two nodes with two ranks each, and what they tell four times a second, in no time. Ranks tick
// unless they are stopped.
class RankWatchdogTest : public ::testing::Test {
 protected:
  RankWatchdogTest() {
    for (int node = 0; node < 2; ++node) {
      NodeReport& report = health_.emplace_back();
      report.node = node;
      report.host = names_[node];
      report.now = absl::UnixEpoch() + absl::Hours(node);  // clocks have nothing to do with another
      for (int i = 0; i < 2; ++i) {
        RankReport& rank = report.ranks.emplace_back();
        rank.is_connected = true;
        rank.state.rank = 2 * node + i;
        rank.state.process_id = 100 + rank.state.rank;
        rank.state.host = names_[node];
        rank.state.phase = "step 12";
        rank.state.num_phases = 12;
        rank.state.times.steps = 11;
      }
    }
  }

  RankState& rank(int i) { return report_of(i).state; }
  RankReport& report_of(int i) { return health_[i / 2].ranks[i % 2]; }
  void Enter(int i, int64_t number) {
    rank(i).number = number;
    rank(i).collective = "AllGather";
    rank(i).in_collective = true;
  }

  // What is said within the next `duration` of the launcher's time.
  void Pass(absl::Duration duration) {
    for (absl::Duration t; t < duration; t += kTick) {
      now_ += kTick;
      for (NodeReport& node : health_) {
        if (silent_nodes_.count(node.node) > 0) continue;
        node.now += kTick;
        for (RankReport& rank : node.ranks)
          if (stopped_.count(rank.state.rank) == 0 && rank.is_connected) ++rank.state.ticks;
      }
      Look();
    }
  }
  void PassWithoutEnd(absl::Duration duration) {
    Pass(duration);
    EXPECT_THAT(ends_, IsEmpty());
  }
  // While the file system of node 1 has not answered for `begin` and longer, until `end`.
  void PassStalled(absl::Duration begin, absl::Duration end) {
    for (absl::Duration stall = begin; stall < end; stall += absl::Seconds(1)) {
      health_[1].file_wait = stall;
      Pass(absl::Seconds(1));
    }
  }
  void Look() {
    const Verdict verdict = watchdog_.Judge(health_, now_);
    reports_.insert(reports_.end(), verdict.reports.begin(), verdict.reports.end());
    if (!verdict.end.empty()) ends_.push_back(verdict.end);
  }

  static constexpr absl::Duration kTick = absl::Milliseconds(250);
  const std::vector<std::string> names_ = {"node1", "node2"};
  RankWatchdog watchdog_{WatchLimits(), 4, names_};
  std::vector<NodeReport> health_;
  std::set<int> stopped_, silent_nodes_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(100);
  std::vector<std::string> reports_, ends_;
};

TEST_F(RankWatchdogTest, RanksThatGoOnAreLeftAlone) {
  for (int step = 0; step < 100; ++step) {
    Pass(absl::Seconds(30));
    for (int i = 0; i < 4; ++i) ++rank(i).times.steps;
  }
  EXPECT_THAT(reports_, IsEmpty());
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_GT(watchdog_.newest_step(), 0);
}

TEST_F(RankWatchdogTest, OneReportSaysWhoWaitsAndForWhom) {
  Pass(absl::Seconds(10));
  for (const int i : {0, 1, 3}) Enter(i, 57);
  rank(2).number = 56;
  rank(2).collective = "Exchange";
  Pass(absl::Seconds(50));
  EXPECT_THAT(reports_, IsEmpty());
  PassWithoutEnd(absl::Minutes(10));
  ASSERT_THAT(reports_, ElementsAre(HasSubstr("collective 57 (AllGather) has run for 1m")));
  EXPECT_THAT(reports_[0],
              AllOf(HasSubstr("in phase 'step 12'; 3 of 4 ranks wait in it; missing: "
                              "rank 2 on node2 (process 102): in phase 'step 12', after "
                              "collective 56 (Exchange), runs, but has not reached it"),
                    Not(HasSubstr("rank 0")), Not(HasSubstr("rank 3"))));
  Pass(absl::Minutes(10));
  EXPECT_THAT(ends_, ElementsAre(HasSubstr("collective 57 (AllGather) has run for 15m")));
}

TEST_F(RankWatchdogTest, NamesEachReasonWhyARankIsMissing) {
  Pass(absl::Seconds(1));
  Enter(0, 57);
  rank(1).has_ended = true;
  stopped_ = {2};
  Enter(2, 57);  // it would have come there
  Enter(3, 57);
  Pass(absl::Seconds(62));
  ASSERT_THAT(reports_, Not(IsEmpty()));
  EXPECT_THAT(reports_.back(),
              AllOf(HasSubstr("rank 1 on node1 (process 101): in phase 'step 12', has ended"),
                    HasSubstr("in collective 57 (AllGather), stopped or lost: no sign of life for"),
                    HasSubstr("2 of 4 ranks wait")));
}

TEST_F(RankWatchdogTest, AHangWithoutAMissingRankSaysSo) {
  Pass(absl::Seconds(1));
  for (int i = 0; i < 4; ++i) Enter(i, 57);
  Pass(absl::Seconds(62));
  EXPECT_THAT(reports_, ElementsAre(HasSubstr("all ranks run and are in it")));
}

TEST_F(RankWatchdogTest, WhatStartedTheRanksMayNotStayWithoutThem) {
  for (int i = 0; i < 4; ++i) rank(i).has_ended = i > 0;
  Pass(absl::Seconds(70));
  for (int i = 0; i < 4; ++i) report_of(i) = {rank(i), /*is_connected=*/false};
  rank(0).has_ended = true;
  PassWithoutEnd(absl::Seconds(55));
  Pass(absl::Seconds(10));
  EXPECT_THAT(ends_, ElementsAre(HasSubstr("all ranks have ended 1m ago")));
}

TEST_F(RankWatchdogTest, AFrozenRankIsNamedAndEndsTheStart) {
  Pass(absl::Seconds(1));
  stopped_ = {3};
  PassWithoutEnd(absl::Seconds(70));
  ASSERT_THAT(reports_, ElementsAre(HasSubstr("rank 3 on node2 (process 103): in phase 'step 12', "
                                              "hangs: no sign of life for 1m")));
  stopped_ = {};
  Pass(absl::Seconds(1));
  stopped_ = {3};
  PassWithoutEnd(absl::Minutes(14));
  ASSERT_GE(reports_.size(), 2u);
  EXPECT_THAT(reports_[1], HasSubstr("hangs"));  // a second silence is a second report
  Pass(absl::Minutes(2));
  EXPECT_THAT(ends_, ElementsAre(HasSubstr("rank 3")));
}

TEST_F(RankWatchdogTest, ARankThatWentWithoutAWordIsLost) {
  Pass(absl::Seconds(1));
  report_of(1).is_connected = false;
  report_of(2).is_connected = false;
  rank(2).has_ended = true;  // in order
  PassWithoutEnd(absl::Seconds(19));
  Pass(absl::Seconds(2));
  EXPECT_THAT(ends_, ElementsAre(AllOf(HasSubstr("rank 1 on node1 (process 101)"),
                                       HasSubstr("is lost: its process ended 20s ago"))));
}

TEST_F(RankWatchdogTest, ANodeWithoutReportsIsNamedAndEndsTheStart) {
  Pass(absl::Seconds(1));
  silent_nodes_ = {1};
  PassWithoutEnd(absl::Seconds(40));
  EXPECT_THAT(reports_, ElementsAre(HasSubstr("checkpoint service on node2 for 30s")));
  Pass(absl::Seconds(25));
  EXPECT_THAT(ends_, ElementsAre(HasSubstr("service on node2 for 1m")));
}

TEST_F(RankWatchdogTest, OwnStandstillIsNobodysSilence) {
  for (int i = 0; i < 4; ++i) Enter(i, 57);
  stopped_ = {3};
  silent_nodes_ = {0};
  Pass(absl::Seconds(20));
  for (int hour = 0; hour < 5; ++hour) {  // a machine that is suspended again and again
    now_ += absl::Hours(1);
    for (NodeReport& node : health_) node.now += absl::Hours(1);
    silent_nodes_ = {};
    Pass(kTick);
  }
  EXPECT_THAT(reports_, IsEmpty());
  EXPECT_THAT(ends_, IsEmpty());
}

TEST_F(RankWatchdogTest, AStalledFileSystemIsReportedAndEndsNobody) {
  Pass(absl::Seconds(1));
  Enter(0, 57);  // the others read their shards
  PassStalled(absl::ZeroDuration(), absl::Seconds(290));
  EXPECT_THAT(reports_, ElementsAre(AllOf(HasSubstr("file system stalls on node2"),
                                          HasSubstr("not ended before 5m"))));
  health_[1].file_wait = absl::ZeroDuration();
  PassWithoutEnd(absl::Seconds(1));
  EXPECT_THAT(reports_.back(), HasSubstr("answers again on node2, after 4m"));
  Pass(absl::Seconds(50));
  EXPECT_EQ(reports_.size(), 2u);  // the stall did not count as waiting
}

TEST_F(RankWatchdogTest, AStallBeyondItsLimitIsNoExcuse) {
  Pass(absl::Seconds(1));
  Enter(0, 57);
  PassStalled(absl::ZeroDuration(), absl::Minutes(19));
  EXPECT_THAT(ends_, IsEmpty());
  PassStalled(absl::Minutes(19), absl::Minutes(21));
  EXPECT_THAT(ends_, ElementsAre(HasSubstr("collective 57")));
}

class StartOfRanksTest : public RankWatchdogTest {
 protected:
  StartOfRanksTest() {
    for (int i = 0; i < 4; ++i) {
      rank(i).times = {};
      rank(i).phase = "set-up";
    }
  }
};

TEST_F(StartOfRanksTest, RanksThatDoNotComeEndIt) {
  health_[1].ranks.clear();
  for (int minute = 0; minute < 9; ++minute) {
    Pass(absl::Minutes(1));
    for (int i = 0; i < 2; ++i) ++rank(i).progress;
  }
  EXPECT_THAT(ends_, IsEmpty());
  Pass(absl::Minutes(2));
  EXPECT_THAT(ends_, ElementsAre(HasSubstr("rank 2, 3 of 4 has not come up within 10m")));
}

TEST_F(StartOfRanksTest, ServicesThatDoNotComeEndIt) {
  silent_nodes_ = {0, 1};
  health_.clear();
  PassWithoutEnd(absl::Minutes(9));
  Pass(absl::Minutes(2));
  EXPECT_THAT(ends_, ElementsAre(HasSubstr("nothing heard from the checkpoint service on node1")));
}

TEST_F(StartOfRanksTest, APhaseThatStallsIsNamedAndEndsIt) {
  Pass(absl::Minutes(2));
  ASSERT_THAT(reports_, ElementsAre(HasSubstr("stuck or slow: rank 0 on node1 (process 100): in "
                                              "phase 'set-up', no progress for 1m")));
  for (int i = 1; i < 4; ++i) Enter(i, 1);
  PassWithoutEnd(absl::Minutes(7));
  Pass(absl::Minutes(2));
  EXPECT_THAT(ends_, ElementsAre(AllOf(HasSubstr("rank 0"), HasSubstr("no progress for 10m"))));
}

TEST_F(StartOfRanksTest, LoadingMayTakeHoursAsLongAsItGoesOn) {
  Pass(absl::Seconds(1));
  for (int i = 1; i < 4; ++i) Enter(i, 1);
  for (int i = 0; i < 200; ++i) {
    rank(0).progress += 1 << 20;
    Pass(absl::Seconds(30));
  }
  EXPECT_THAT(reports_, IsEmpty());
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_EQ(watchdog_.newest_step(), 0);
  Pass(absl::Minutes(11));
  EXPECT_THAT(ends_, ElementsAre(HasSubstr("rank 0")));
}

TEST_F(RankWatchdogTest, ALongStepOfATrainedRankIsOnlyReported) {
  PassWithoutEnd(absl::Minutes(60));
  EXPECT_THAT(reports_, ElementsAre(HasSubstr("stuck or slow: rank 0")));
}

TEST_F(RankWatchdogTest, ThousandSilentRanksMakeAShortLine) {
  RankWatchdog watchdog(WatchLimits(), 1024, names_);
  std::vector<NodeReport> health;
  NodeReport& node = health.emplace_back();
  node.ranks.resize(1024);
  for (int i = 0; i < 1024; ++i) {
    RankReport& rank = node.ranks[i];
    rank.is_connected = true;
    rank.state.rank = i;
    rank.state.number = i == 0 ? 2 : 1;
    rank.state.in_collective = i == 0;
    rank.state.times.steps = 1;
  }
  Verdict verdict;
  for (int second = 0; second < 100 && verdict.reports.empty(); ++second) {
    node.now += absl::Seconds(1);
    for (RankReport& rank : node.ranks) ++rank.state.ticks;
    verdict = watchdog.Judge(health, absl::UnixEpoch() + absl::Seconds(second));
  }
  ASSERT_THAT(verdict.reports, ElementsAre(HasSubstr("; and 1015 more")));
  EXPECT_LT(verdict.reports[0].size(), 2000u);
}

}  // namespace
}  // namespace anyorder::liveness
