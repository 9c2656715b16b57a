// Runs under mpiexec with 1 to 4 ranks; every rank runs the same cases and they exit alike.

#include "dist/mpi_communicator.h"

#include <gtest/gtest.h>

#include "core/base/status.h"
#include "tests/dist/communicator_cases.h"
#include "tests/dist/training_run.h"

namespace anyorder::dist {
namespace {

Communicator* world = nullptr;  // set by main, which owns MPI

TEST(MpiCommunicatorTest, BroadcastTakesTheRootsBytes) { BroadcastCase(*world); }
TEST(MpiCommunicatorTest, AllGatherIsInRankOrder) { AllGatherCase(*world); }
// The large cases need several messages per block.
TEST(MpiCommunicatorTest, AllGatherInPlaceTakesUnequalAndEmptyBlocks) {
  AllGatherInPlaceCase(*world, 100);
  AllGatherInPlaceCase(*world, (int64_t{5} << 20) + 1);
}
TEST(MpiCommunicatorTest, AllGatherStringsTakesAnyLengths) { AllGatherStringsCase(*world); }
TEST(MpiCommunicatorTest, ExchangePairsBlocksInOrder) {
  ExchangeCase(*world, 40);
  ExchangeCase(*world, (int64_t{5} << 20) + 1);
}
TEST(MpiCommunicatorTest, AllReduceIsElementWiseAndSpreadsNan) { AllReduceCase(*world); }
TEST(MpiCommunicatorTest, AllAgreeGivesEveryRankTheFirstFailure) { AllAgreeCase(*world); }

// Pretends that ranks share nodes two by two.
TEST(MpiCommunicatorTest, TwoLevelsMoveTheSameBytesAndBits) {
  std::vector<int> nodes;
  for (int rank = 0; rank < world->world_size(); ++rank) nodes.push_back(rank / 2);
  world->set_nodes(RankGroups(nodes));
  AllGatherInPlaceCase(*world, (int64_t{5} << 20) + 1);
  const auto backend = kernels::MakeReferenceBackend();
  EXPECT_EQ(RunDigest<float>(*world, *backend), RunDigestOfOneRank<float>(*backend));
  world->set_nodes(RankGroups(world->world_size()));
}

// The run on MPI ranks ends in the bits of the run on one rank without MPI.
template <typename Weight>
void ExpectDigestOfOneRank() {
  for (const auto& backend : HostBackends()) {
    EXPECT_EQ(RunDigest<Weight>(*world, *backend), RunDigestOfOneRank<Weight>(*backend))
        << backend->name();
  }
}
TEST(MpiCommunicatorTest, AnyNumberOfRanksEndsInTheSameDigest) { ExpectDigestOfOneRank<float>(); }
TEST(MpiCommunicatorTest, AnyNumberOfRanksEndsInTheSameDigestInBFloat16) {
  ExpectDigestOfOneRank<BFloat16>();
}

}  // namespace

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  auto environment = MpiEnvironment::Create(&argc, &argv);
  if (!environment.ok()) return ReportAndExitStatus("mpi_communicator_test", environment.status());
  const auto communicator = (*environment)->World();
  world = communicator.get();
  int64_t failed = RUN_ALL_TESTS();
  world->AllReduceMax(absl::MakeSpan(&failed, 1));
  return static_cast<int>(failed);
}

}  // namespace anyorder::dist

int main(int argc, char** argv) { return anyorder::dist::Main(argc, argv); }
