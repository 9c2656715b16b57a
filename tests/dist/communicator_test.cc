#include "dist/communicator.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/base/monotonic_clock.h"
#include "tests/dist/communicator_cases.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

void ForRanks(const std::function<void(Communicator&)>& body) {
  for (const int ranks : {1, 2, 3, 5}) testing::RunThreadRanks(ranks, body);
}

TEST(CommunicatorTest, BroadcastTakesTheRootsBytes) { ForRanks(BroadcastCase); }
TEST(CommunicatorTest, AllGatherIsInRankOrder) { ForRanks(AllGatherCase); }
TEST(CommunicatorTest, AllGatherInPlaceTakesUnequalAndEmptyBlocks) {
  ForRanks([](Communicator& comm) { AllGatherInPlaceCase(comm, 100); });
}
TEST(CommunicatorTest, AllGatherStringsTakesAnyLengths) { ForRanks(AllGatherStringsCase); }
TEST(CommunicatorTest, ExchangePairsBlocksInOrder) {
  ForRanks([](Communicator& comm) { ExchangeCase(comm, 40); });
}
TEST(CommunicatorTest, AllReduceIsElementWiseAndSpreadsNan) { ForRanks(AllReduceCase); }
TEST(CommunicatorTest, ReduceScatterSumsTheOwnedRange) { ForRanks(ReduceScatterAnyOrderCase); }
TEST(CommunicatorTest, AllAgreeGivesEveryRankTheFirstFailure) { ForRanks(AllAgreeCase); }

TEST(CommunicatorTest, BytesSentCountsWhatGoesToOthers) {
  testing::RunThreadRanks(3, [](Communicator& comm) {
    std::vector<char> all(60);
    comm.AllGatherInPlace(absl::MakeSpan(all), {0, 10, 30, 60});
    EXPECT_EQ(comm.bytes_sent(), 2 * (comm.rank() + 1) * 10);
  });
}

TEST(CommunicatorTest, CollectiveTimeIsThatInsideCollectives) {
  testing::RunThreadRanks(2, [](Communicator& comm) {
    const absl::Time started = MonotonicNow();
    EXPECT_EQ(comm.collective_time(), absl::ZeroDuration());
    EXPECT_TRUE(comm.AllAgree(absl::OkStatus()).ok());
    const absl::Duration first = comm.collective_time();
    EXPECT_GT(first, absl::ZeroDuration());
    comm.Barrier();
    EXPECT_GT(comm.collective_time(), first);
    EXPECT_LE(comm.collective_time(), MonotonicNow() - started);
  });
}

}  // namespace
}  // namespace anyorder::dist
