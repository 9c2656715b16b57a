// Which device a run computes on: agreement of ranks, and what errors say.

#include "core/train/run/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/emulated_gpu.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(RankBackendOptionsTest, RanksOfOneMachineAreCounted) {
  const std::vector<std::string> hosts = {"a", "b", "a", "a", "b"};
  const int expected[] = {0, 0, 1, 2, 1};
  for (int rank = 0; rank < 5; ++rank) EXPECT_EQ(LocalRank(hosts, rank), expected[rank]) << rank;
}

// Ranks of this test are alone on their machines.
TEST(RankBackendOptionsTest, OneRankWritesTheTableOfTheRun) {
  constexpr int kRanks = 3;
  std::vector<kernels::BackendOptions> all(kRanks);
  testing::RunThreadRanks(kRanks, [&](dist::Communicator& communicator) {
    all[communicator.rank()] = RankBackendOptions(RunConfig(), "run", communicator);
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(all[rank].local_rank, 0);
    EXPECT_EQ(all[rank].writes_gemm_table, rank == 0);
    EXPECT_EQ(all[rank].gemm_table, "run/gemm_algorithm_cache.txt");
    EXPECT_GE(all[rank].num_threads, 1);
  }
}

TEST(SameDevicesTest, RanksThatDifferAllEndWithOneLine) {
  for (const int odd_rank : {-1, 0, 2}) {
    std::vector<std::string> ends(3);
    testing::RunThreadRanks(3, [&](dist::Communicator& communicator) {
      const std::unique_ptr<kernels::Backend> backend = communicator.rank() == odd_rank
                                                            ? testing::MakeEmulatedGpu()
                                                            : kernels::MakeReferenceBackend();
      ends[communicator.rank()] = std::string(CheckSameDevices(*backend, communicator).message());
    });
    if (odd_rank < 0) {
      EXPECT_THAT(ends, Each(IsEmpty()));
    } else if (odd_rank == 2) {
      EXPECT_THAT(ends, Each(HasSubstr("rank 2 computes on another device than rank 0 (cuda "
                                       "(emulated GPU, sm_80) and cpu); one job")));
    } else {
      EXPECT_THAT(
          ends, Each(HasSubstr(
                    "rank 1 computes on another device than rank 0 (cpu and cuda (emulated GPU")));
    }
  }
}

TEST(DeviceChangeTest, IsSaidWhenADeviceChangesAndOnlyThen) {
  EXPECT_EQ(DeviceChange("cpu", "cpu"), "");
  EXPECT_EQ(DeviceChange("", "cpu"), "") << "checkpoints of versions without GPUs";
  EXPECT_THAT(DeviceChange("", "cuda (NVIDIA H200, sm_90)"), HasSubstr("was made on cpu"));
  EXPECT_THAT(DeviceChange("cuda (A, sm_80)", "cuda (B, sm_90)"),
              HasSubstr("not bitwise identical"));
}

TEST(DevicePeakTest, IsThatOfTheCardWithThatName) {
  const auto bf16 = [](const char* name) { return DevicePeakFlops(name, DType::kBFloat16) / 1e12; };
  EXPECT_EQ(bf16("cuda (NVIDIA H100 80GB HBM3, sm_90)"), 989);
  EXPECT_EQ(bf16("cuda (NVIDIA H100 PCIe, sm_90)"), 756);
  EXPECT_EQ(bf16("cuda (NVIDIA A100-SXM4-80GB, sm_80)"), 312);
  EXPECT_EQ(bf16("cuda (NVIDIA A10, sm_86)"), 125);
  EXPECT_EQ(bf16("cuda (NVIDIA L40S, sm_89)"), 362);
  EXPECT_EQ(bf16("cuda (NVIDIA GeForce RTX 4090, sm_89)"), 165);
  EXPECT_EQ(DevicePeakFlops("cuda (NVIDIA H200, sm_90)", DType::kFloat32), 67e12);
  for (const char* unknown : {"cpu", "cuda (NVIDIA A10G, sm_86)", "cuda (emulated GPU, sm_80)"})
    EXPECT_EQ(bf16(unknown), 0) << unknown;
}

}  // namespace
}  // namespace anyorder
