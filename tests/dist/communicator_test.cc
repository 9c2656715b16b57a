#include "dist/communicator.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/base/monotonic_clock.h"
#include "tests/dist/communicator_cases.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

void ForRanks(const std::function<void(Communicator&)>& body) {
  for (const int ranks : {1, 2, 3, 5, 8}) testing::RunThreadRanks(ranks, body);
}

TEST(CommunicatorTest, BroadcastTakesTheRootsBytes) { ForRanks(BroadcastCase); }
TEST(CommunicatorTest, AllGatherIsInRankOrder) { ForRanks(AllGatherCase); }
TEST(CommunicatorTest, AllGatherInPlaceTakesUnequalAndEmptyBlocks) {
  ForRanks([](Communicator& comm) { AllGatherInPlaceCase(comm, 100); });
}
// Blocks large enough for the node-by-node way, of unequal lengths, one of them empty.
TEST(CommunicatorTest, LargeBlocksReachEachNodeOnce) {
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{
           {0, 0, 1, 1}, {0, 0, 0, 1, 1, 1}, {0, 0, 0, 1, 2, 2}, {0, 1, 1, 1, 1}}) {
    const int ranks = static_cast<int>(nodes.size());
    testing::Traffic traffic;
    constexpr int64_t kUnit = 100'000;
    const auto gather = [&](Communicator& comm) {
      comm.set_nodes(RankGroups(nodes));
      AllGatherInPlaceCase(comm, kUnit);
    };
    testing::RunThreadRanks(ranks, gather, {.traffic = &traffic});
    for (int node = 0; node <= nodes.back(); ++node) {
      int64_t arrived = 0;
      int64_t elsewhere = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        if (nodes[rank] == node) continue;
        elsewhere += rank * kUnit;
        for (const auto& [to, sent] : traffic[rank]) arrived += nodes[to] == node ? sent.bytes : 0;
      }
      EXPECT_EQ(arrived, elsewhere) << ranks << " ranks, node " << node;
    }
  }
}
TEST(CommunicatorTest, AllGatherStringsTakesAnyLengths) { ForRanks(AllGatherStringsCase); }
TEST(CommunicatorTest, ExchangePairsBlocksInOrder) {
  ForRanks([](Communicator& comm) { ExchangeCase(comm, 40); });
}
TEST(CommunicatorTest, AllReduceIsElementWiseAndSpreadsNan) { ForRanks(AllReduceCase); }
TEST(CommunicatorTest, AllAgreeGivesEveryRankTheFirstFailure) { ForRanks(AllAgreeCase); }

TEST(CommunicatorTest, BytesSentCountsWhatGoesToOthers) {
  testing::Traffic traffic;
  std::vector<int64_t> of_ranks(3);
  const auto gather = [&](Communicator& comm) {
    std::vector<char> all(60);
    comm.AllGatherInPlace(absl::MakeSpan(all), {0, 10, 30, 60});
    of_ranks[comm.rank()] = comm.bytes_sent();
  };
  testing::RunThreadRanks(3, gather, {.traffic = &traffic});
  EXPECT_EQ(of_ranks[0] + of_ranks[1] + of_ranks[2], 2 * 60);
  for (int rank = 0; rank < 3; ++rank) {
    int64_t bytes = 0;
    for (const auto& [to, sent] : traffic[rank]) bytes += sent.bytes;
    EXPECT_EQ(bytes, of_ranks[rank]);
  }
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
