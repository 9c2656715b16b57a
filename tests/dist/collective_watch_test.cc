#include "dist/collective_watch.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/synchronization/notification.h"

#include "core/base/status.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

using ::testing::HasSubstr;

TEST(CollectiveWatchTest, ThePageSaysWhereTheRankIs) {
  const auto page = liveness::RankPage::Create(0, "node7").value();
  const UniqueFd memory = page->Duplicate().value();
  testing::RunThreadRanks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      liveness::RankState state;
      while (!state.in_collective) state = liveness::ReadRankPage(memory.get()).value();
      EXPECT_THAT(state.ToString(), HasSubstr("in phase 'step 12', in collective 1 (Barrier)"));
      comm.Barrier();
      return;
    }
    CollectiveWatchOptions options;
    options.page = page.get();
    CollectiveWatch watch(options, 0, comm.host());
    watch.SetPhase("step 12");
    watch.AddProgress(3);
    watch.SetTimes({.steps = 11});
    comm.set_watch(&watch);
    comm.Barrier();
    comm.set_watch(nullptr);
  });
  const liveness::RankState state = liveness::ReadRankPage(memory.get()).value();
  EXPECT_FALSE(state.in_collective);
  EXPECT_EQ(state.number, 1);
  EXPECT_EQ(state.progress, 3);
  EXPECT_EQ(state.times.steps, 11);
}

TEST(CollectiveWatchTest, AnErrorOfTheProbeEndsTheRank) {
  absl::Notification has_ended;
  std::string line;
  CollectiveWatchOptions options = {.probe_period = absl::Milliseconds(1),
                                    .report = [&](const std::string& text) { line = text; },
                                    .exit = [&] { has_ended.Notify(); }};
  CollectiveWatch watch(options, 3, "node7");
  watch.SetPhase("step 12");
  int asked = 0;
  watch.set_probe(
      [&] { return ++asked < 5 ? absl::OkStatus() : absl::UnavailableError("a peer is lost"); });
  has_ended.WaitForNotification();
  EXPECT_EQ(line, "rank 3 on node7: a peer is lost in phase 'step 12'; giving up");
  watch.set_probe(nullptr);
}

// Its stderr has no reader and is full, and what is called before the exit waits for ever.
TEST(CollectiveWatchDeathTest, NothingThatHangsKeepsARankFromItsEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        int ends[2];
        if (::pipe2(ends, O_NONBLOCK) != 0) std::abort();
        while (::write(ends[1], "x", 1) == 1) {
        }
        ::fcntl(ends[1], F_SETFL, 0);
        ::dup2(ends[1], STDERR_FILENO);
        CollectiveWatchOptions options;
        options.exit_limit = absl::Milliseconds(50);
        CollectiveWatch watch(options, 0, "node0");
        watch.GiveUp(absl::UnavailableError("lost"), [] { ::pause(); });
      },
      ::testing::ExitedWithCode(kExitIo), "");
}

}  // namespace
}  // namespace anyorder::dist
