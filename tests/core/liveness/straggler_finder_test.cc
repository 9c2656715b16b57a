#include "core/liveness/straggler_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace anyorder::liveness {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kMs = 1'000'000;

struct Step {
  double compute_ms = 100;
  double data_wait_ms = 5;
};

// Ranks that report after each step, from step 101 of the run on.
class Ranks {
 public:
  explicit Ranks(int num_ranks, double ratio = 1.2)
      : finder_(ratio, num_ranks), states_(num_ranks) {
    for (int i = 0; i < num_ranks; ++i) {
      states_[i].rank = i;
      states_[i].process_id = 1000 + i;
      states_[i].host = "n7";
      states_[i].times.steps = 100;
    }
  }

  // Adds a step to what rank `i` will tell.
  void Do(int i, const Step& step) {
    RankTimes& times = states_[i].times;
    ++times.steps;
    times.compute_ns += static_cast<int64_t>(step.compute_ms * kMs);
    times.data_wait_ns += static_cast<int64_t>(step.data_wait_ms * kMs);
    times.communication_ns += 20 * kMs;
  }
  void Tell(int i) { finder_.Take(states_[i]); }
  RankState& state(int i) { return states_[i]; }
  StragglerFinder& finder() { return finder_; }

  // `steps` steps of all; `step_of`: of a rank, in a step counted from 1. What was said, as "rank 3
  // after 14: ..." or "rank 3 over after 30".
  std::vector<std::string> Run(int steps, const std::function<Step(int, int)>& step_of) {
    std::vector<std::string> said;
    for (int step = 1; step <= steps; ++step) {
      for (size_t i = 0; i < states_.size(); ++i) {
        Do(static_cast<int>(i), step_of(static_cast<int>(i), step));
        Tell(static_cast<int>(i));
      }
      for (const StragglerNotice& notice : finder_.Judge()) {
        EXPECT_EQ(notice.step, states_[0].times.steps);
        said.push_back("rank " + std::to_string(notice.rank) + (notice.is_over ? " over" : "") +
                       " after " + std::to_string(step) + ": " + notice.detail);
      }
    }
    return said;
  }

 private:
  StragglerFinder finder_;
  std::vector<RankState> states_;
};

Step Normal(int /*rank*/, int /*step*/) { return {}; }
// Rank 1 computes for 30 % longer.
Step SlowRank1(int rank, int /*step*/) { return {rank == 1 ? 130.0 : 100.0, 5}; }

TEST(StragglerFinderTest, NamesASlowRankWithinTwentySteps) {
  for (const int num_ranks : {2, 3, 4, 1024}) {
    Ranks ranks(num_ranks);
    EXPECT_THAT(ranks.Run(40, Normal), IsEmpty()) << num_ranks;
    const std::vector<std::string> said = ranks.Run(20, SlowRank1);
    EXPECT_THAT(said,
                ElementsAre(HasSubstr("compute 130.0 ms a step, the median is 100.0 ms (own time "
                                      "1.29 times the median)")))
        << num_ranks;
    EXPECT_THAT(said, ElementsAre(HasSubstr("rank 1 after 14:"))) << num_ranks;
  }
}

TEST(StragglerFinderTest, NamesARankThatIsSlowFromTheStartOn) {
  EXPECT_THAT(Ranks(4).Run(20, SlowRank1), ElementsAre(HasSubstr("rank 1 after 17")));
}

TEST(StragglerFinderTest, SaysOnceThatItIsOver) {
  Ranks ranks(4);
  EXPECT_EQ(ranks.Run(100, SlowRank1).size(), 1u);
  EXPECT_TRUE(ranks.finder().Paces()[1].is_straggler);
  EXPECT_THAT(ranks.Run(100, Normal), ElementsAre(HasSubstr("rank 1 over after")));
  EXPECT_FALSE(ranks.finder().Paces()[1].is_straggler);
}

// Twice as slow, but by few milliseconds: rank 0 writes down each step, or other programs run
// there.
TEST(StragglerFinderTest, ShortStepsNameNobody) {
  const auto twice = [](int rank, int) { return Step{rank == 0 ? 9.0 : 4.5, 0.1}; };
  EXPECT_THAT(Ranks(4).Run(2000, twice), IsEmpty());
}

// 16 steps are two windows, but not long enough to speak of.
TEST(StragglerFinderTest, AWindowLastsASecond) {
  const auto stalled = [](int rank, int step) {
    return Step{rank == 1 && step > 300 && step <= 316 ? 10.0 : 2.0, 0.1};
  };
  EXPECT_THAT(Ranks(2).Run(1000, stalled), IsEmpty());
}

TEST(StragglerFinderTest, NobodyIsNamedWithoutARatio) {
  EXPECT_THAT(Ranks(4, /*ratio=*/0).Run(60, SlowRank1), IsEmpty());
}

TEST(StragglerFinderTest, OneRankIsNeverSlow) {
  EXPECT_THAT(Ranks(1).Run(60,
                           [](int, int step) {
                             return Step{step > 30 ? 1000.0 : 100.0, 5};
                           }),
              IsEmpty());
}

TEST(StragglerFinderTest, NoiseNamesNobody) {
  for (const int num_ranks : {2, 3, 64}) {
    std::mt19937 random(7);
    std::uniform_real_distribution<double> within_ten_percent(0.9, 1.1);
    const auto noisy = [&](int, int) {
      return Step{100 * within_ten_percent(random), 5 * within_ten_percent(random)};
    };
    EXPECT_THAT(Ranks(num_ranks).Run(1000, noisy), IsEmpty()) << num_ranks;
  }
}

TEST(StragglerFinderTest, ASingleSlowStepNamesNobody) {
  for (int slow = 1; slow <= 20; ++slow) {
    EXPECT_THAT(Ranks(3).Run(60,
                             [slow](int rank, int step) {
                               return rank == 2 && step == slow ? Step{60'000, 0} : Step{};
                             }),
                IsEmpty())
        << "step " << slow;
  }
}

// The whole run slows down at once, and the last rank's reports come two steps later than others'.
TEST(StragglerFinderTest, RanksAreComparedInTheSameSteps) {
  Ranks ranks(3);
  std::vector<StragglerNotice> notices;
  for (int step = 1; step <= 100; ++step) {
    for (int i = 0; i < 3; ++i) {
      const int done = i == 2 ? step - 2 : step;
      if (done < 1) continue;
      ranks.Do(i, {done > 40 ? 2000.0 : 100.0, 5});
      ranks.Tell(i);
    }
    for (const StragglerNotice& notice : ranks.finder().Judge()) notices.push_back(notice);
  }
  EXPECT_TRUE(notices.empty());
}

// Reports that hold many steps, of other ones on each node.
TEST(StragglerFinderTest, ReportsMayBeRare) {
  for (const bool has_slow_rank : {false, true}) {
    Ranks ranks(4);
    std::vector<StragglerNotice> notices;
    for (int step = 1; step <= 2000; ++step) {
      for (int i = 0; i < 4; ++i) {
        // One long step of rank 3, a slow down of all, and perhaps a slow rank.
        const double ms = i == 3 && step == 611 ? 60'000 : step > 1000 ? 300 : 100;
        ranks.Do(i, {i == 1 && has_slow_rank ? 1.3 * ms : ms, 5});
        if (step % 90 == 20 * i) ranks.Tell(i);
      }
      for (const StragglerNotice& notice : ranks.finder().Judge()) notices.push_back(notice);
    }
    ASSERT_EQ(notices.size(), has_slow_rank ? 1u : 0u);
    for (const StragglerNotice& notice : notices) EXPECT_EQ(notice.rank, 1);
  }
}

TEST(StragglerFinderTest, SaysWhichPartIsSlow) {
  EXPECT_THAT(
      Ranks(3).Run(30,
                   [](int rank, int) {
                     return Step{100, rank == 0 ? 45.0 : 5};
                   }),
      ElementsAre(HasSubstr(
          "rank 0 after 17: rank 0 on n7: data wait 45.0 ms a step, the median is 5.0 ms (own time "
          "1.38 times the median)")));
}

TEST(StragglerFinderTest, OldReportsAreLeftOut) {
  Ranks ranks(2);
  std::vector<RankState> old;
  for (int step = 1; step <= 40; ++step) {
    for (int i = 0; i < 2; ++i) {
      ranks.Do(i, {});
      ranks.Tell(i);
      old.push_back(ranks.state(i));
    }
    // Each is told again, one by one, from the newest to the oldest.
    for (auto state = old.rbegin(); state != old.rend(); ++state) ranks.finder().Take(*state);
    EXPECT_TRUE(ranks.finder().Judge().empty());
  }
  for (const RankPace& pace : ranks.finder().Paces()) {
    EXPECT_DOUBLE_EQ(pace.compute_ms, 100);
    EXPECT_DOUBLE_EQ(pace.data_wait_ms, 5);
    EXPECT_DOUBLE_EQ(pace.communication_ms, 20);
    EXPECT_DOUBLE_EQ(pace.ratio, 1);
  }
}

TEST(StragglerFinderTest, ARestartForgets) {
  Ranks ranks(2);
  EXPECT_EQ(ranks.Run(30, SlowRank1).size(), 1u);
  for (int i = 0; i < 2; ++i) {
    ranks.state(i).process_id += 100;
    ranks.state(i).times = RankTimes{50};
  }
  EXPECT_THAT(ranks.Run(14, SlowRank1), IsEmpty());
  EXPECT_THAT(ranks.Run(10, SlowRank1), ElementsAre(HasSubstr("rank 1 after 3")));
}

// Ranks that are still to come, numbers that are none, and steps without a time.
TEST(StragglerFinderTest, LittleIsKnown) {
  Ranks ranks(3);
  ranks.Do(0, {});
  ranks.Tell(0);
  EXPECT_TRUE(ranks.finder().Judge().empty());
  EXPECT_TRUE(ranks.finder().Paces().empty());
  RankState stranger;
  stranger.rank = 3;
  stranger.times.steps = 7;
  ranks.finder().Take(stranger);
  stranger.rank = -1;
  ranks.finder().Take(stranger);
  EXPECT_THAT(Ranks(2).Run(50, [](int, int) { return Step{0, 0}; }), IsEmpty());
}

}  // namespace
}  // namespace anyorder::liveness
