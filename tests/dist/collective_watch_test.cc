#include "dist/collective_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

using ::testing::HasSubstr;

// Collects what the watch does, and waits for it.
class Witness {
 public:
  CollectiveWatchOptions Options(absl::Duration report_after, absl::Duration exit_after) {
    CollectiveWatchOptions options;
    options.report_after = report_after;
    options.exit_after = exit_after;
    options.report = [this](const std::string& line) { Note(line); };
    options.exit = [this] { Note("exit"); };
    return options;
  }
  void WaitFor(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return events_.size() >= count; });
  }
  std::vector<std::string> events() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return events_;
  }

 private:
  void Note(const std::string& event) {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(event);
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> events_;
};

TEST(CollectiveWatchTest, ReportsThenExitsWhenACollectiveHangs) {
  Witness witness;
  CollectiveWatch watch(witness.Options(absl::Milliseconds(10), absl::Milliseconds(40)), 3,
                        "node7");
  watch.SetPhase("step 12, gradients");
  watch.Begin("AllGather");
  watch.End();
  watch.Begin("Exchange");
  witness.WaitFor(3);
  watch.End();
  const std::vector<std::string> events = witness.events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_THAT(events[0], HasSubstr("rank 3 on node7: collective 2 (Exchange)"));
  EXPECT_THAT(events[0], HasSubstr("in phase 'step 12, gradients'"));
  EXPECT_THAT(events[1], HasSubstr("giving up"));
  EXPECT_EQ(events[2], "exit");
}

TEST(CollectiveWatchTest, NamesTheCollectiveThatAPeerKeepsWaiting) {
  Witness witness;
  testing::RunThreadRanks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      witness.WaitFor(1);
      comm.Barrier();
      return;
    }
    CollectiveWatch watch(witness.Options(absl::Milliseconds(10), absl::InfiniteDuration()), 0,
                          comm.host());
    comm.set_watch(&watch);
    comm.Barrier();
    comm.set_watch(nullptr);
  });
  EXPECT_EQ(witness.events().size(), 1u);
  EXPECT_THAT(witness.events()[0], HasSubstr("rank 0 on thread0: collective 1 (Barrier)"));
}

TEST(CollectiveWatchTest, IsSilentBetweenCollectives) {
  Witness witness;
  {
    CollectiveWatch watch(witness.Options(absl::Milliseconds(4), absl::Milliseconds(8)), 0,
                          "node0");
    absl::SleepFor(absl::Milliseconds(40));
  }
  EXPECT_TRUE(witness.events().empty());
}

TEST(CollectiveWatchDeathTest, ExitsWithTheIoStatusByDefault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        CollectiveWatchOptions options;
        options.report_after = absl::Milliseconds(5);
        options.exit_after = absl::Milliseconds(10);
        CollectiveWatch watch(options, 0, "node0");
        watch.Begin("Barrier");
        absl::SleepFor(absl::Seconds(30));
      },
      ::testing::ExitedWithCode(kExitIo), "a peer is lost or stuck");
}

}  // namespace
}  // namespace anyorder::dist
