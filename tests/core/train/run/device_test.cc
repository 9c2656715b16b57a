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

TEST(WhatFitsTest, NamesTheLargestHalfThatFits) {
  RunConfig config;
  config.train.micro_batch_size = 24;
  const absl::Status out = absl::ResourceExhaustedError("allocate 5 bytes");
  std::vector<int64_t> tried;
  const absl::Status six = WithWhatFits(out, config, [&](const RunConfig& candidate) {
    if (candidate.train.recompute == Recompute::kNone)
      tried.push_back(candidate.train.micro_batch_size);
    return candidate.train.micro_batch_size <= 6;
  });
  EXPECT_TRUE(absl::IsResourceExhausted(six));
  EXPECT_EQ(six.message(), "allocate 5 bytes; train.micro_batch_size = 6 fits, it is 24");
  EXPECT_EQ(tried, (std::vector<int64_t>{12, 6}));
  EXPECT_EQ(
      WithWhatFits(out, config, [](const RunConfig&) { return false; }).message(),
      "allocate 5 bytes; not even train.micro_batch_size = 3 fits: the model is too large for "
      "this device");
}

TEST(WhatFitsTest, NamesTheFirstRecomputationThatFits) {
  RunConfig config;
  config.train.micro_batch_size = 2;
  const absl::Status out = absl::ResourceExhaustedError("allocate 5 bytes");
  const auto layer = [](const RunConfig& candidate) {
    const Retention retention = candidate.train.retention();
    return retention.recompute == Recompute::kLayer && retention.layers == 0;
  };
  const std::string advice =
      "allocate 5 bytes; set train.recompute = \"layer\", which fits and changes no bit";
  EXPECT_EQ(WithWhatFits(out, config, layer).message(), advice);
  const auto always = [](const RunConfig&) { return true; };
  EXPECT_THAT(WithWhatFits(out, config, always).message(),
              AllOf(HasSubstr("\"elementwise\""), HasSubstr("; train.micro_batch_size = 1 fits")));
  config.train.recompute = Recompute::kLayer;
  config.train.recompute_layers = 1;
  EXPECT_THAT(WithWhatFits(out, config, layer).message(),
              HasSubstr("; set train.recompute_layers = 0, which fits"));
  config.train.recompute_layers = 0;
  EXPECT_THAT(WithWhatFits(out, config, always).message(), Not(HasSubstr("recompute")));
}

TEST(WhatFitsTest, NamesAllSettingsThatAreNeeded) {
  const auto sharded = [](const RunConfig& candidate) {
    return candidate.dist.shard_weights == dist::WeightSharding::kAll;
  };
  EXPECT_EQ(SettingsThatFit(RunConfig(), sharded),
            "set train.recompute = \"layer\" and dist.leaves_per_exchange = 1 and "
            "dist.shard_weights = \"all\"");
  const auto last = [](const RunConfig& candidate) {
    return candidate.dist.partials == MemoryPlace::kHost;
  };
  RunConfig config;
  config.train.recompute = Recompute::kLayer;
  config.train.recompute_layers = 1;
  config.dist.leaves_per_exchange = 1;
  EXPECT_EQ(SettingsThatFit(config, last),
            "set train.recompute_layers = 0 and dist.shard_weights = \"all\" and optimizer.state = "
            "\"host\" and dist.partials = \"host\"");
  EXPECT_EQ(SettingsThatFit(RunConfig(), [](const RunConfig&) { return false; }), "");
}

TEST(WhatFitsTest, LeavesOtherEndsAlone) {
  const auto never = [](const RunConfig&) {
    ADD_FAILURE() << "tried";
    return true;
  };
  EXPECT_TRUE(WithWhatFits(absl::OkStatus(), RunConfig(), never).ok());
  EXPECT_EQ(WithWhatFits(absl::DataLossError("x"), RunConfig(), never), absl::DataLossError("x"));
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
