// The sum beside the backward pass: the same bits as without, however buckets are cut, however the
// leaf arrives, and whoever is late.

#include "dist/overlapped_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "dist/gradient_reducer.h"
#include "tests/dist/training_run.h"
#include "tests/testing/deferred_backend.h"
#include "tests/testing/fake_nccl.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

using testing::DeferredBackend;
using testing::FakeWire;
using testing::Lag;

constexpr int64_t kGradientSize = 2 * Partition::kBlockElements + 333;

struct Case {
  int ranks;
  int64_t leaves;
  int64_t bucket_bytes;
  Lag lag;
  uint64_t seed;
  Reduction reduction = Reduction::kTree;
  std::vector<int> nodes = {};  // of each rank; empty: every rank has its own
};

// The leaf's values come in pieces from its end, each reported some time after it was asked for.
void WriteInPieces(GradientReducer& reducer, kernels::Backend& backend,
                   const std::vector<float>& values, std::mt19937_64& random) {
  float* const buffer = reducer.LeafBuffer();
  for (int64_t end = kGradientSize; end > 0;) {
    const int64_t begin = random() % 4 == 0 ? 0 : std::max<int64_t>(0, end - 1 - random() % 9000);
    backend.CopyToDevice(values.data() + begin, buffer + begin, (end - begin) * sizeof(float), {});
    if (random() % 3 != 0 && begin > 0) reducer.GradientReady(begin);
    end = begin;
  }
}

// Three steps; the sum of each, of all ranks put together.
std::vector<std::vector<float>> Sums(const Case& c) {
  std::vector<std::vector<float>> sums(3, std::vector<float>(kGradientSize));
  FakeWire wire;
  testing::RunThreadRanks(c.ranks, [&](Communicator& comm) {
    if (!c.nodes.empty()) comm.set_nodes(RankGroups(c.nodes));
    testing::NcclRank device(wire, comm, kernels::MakeReferenceBackend(), c.lag, c.seed);
    DeferredBackend& backend = device.backend;
    GradientReducerOptions options{kGradientSize, c.leaves, /*num_scalars=*/1, c.reduction};
    options.transport = device.transport.get();
    options.bucket_bytes = c.bucket_bytes;
    const auto reducer = GradientReducer::Create(comm, backend, options).value();
    const Range owned = reducer->owned();
    const DeviceArray<float> mine(backend, owned.size());
    std::mt19937_64 random(c.seed * 31 + comm.rank());
    for (size_t step = 0; step < sums.size(); ++step) {
      const Range leaves = reducer->leaves();
      for (int64_t leaf = leaves.begin; leaf < leaves.end; ++leaf) {
        const std::vector<float> values = WideGradient(step, leaf, kGradientSize);
        WriteInPieces(*reducer, backend, values, random);
        const ConstTensorView leaf_view(reducer->LeafBuffer(), {kGradientSize});
        reducer->CommitLeaf(leaf, {1.0});
        // Whoever examines the last leaf after its commit still finds it.
        if (leaf + 1 == leaves.end && c.seed % 2 == 0) {
          EXPECT_EQ(ToHost<float>(backend, leaf_view), values);
        }
      }
      double count = 0;
      reducer->ReduceScatter(mine.view(), absl::MakeSpan(&count, 1));
      EXPECT_EQ(count, static_cast<double>(c.leaves));
      const std::vector<float> host = mine.host();
      std::copy(host.begin(), host.end(), sums[step].begin() + owned.begin);
    }
  });
  return sums;
}

TEST(OverlappedSumTest, HasTheBitsOfTheTreeForAnyCutsArrivalsAndRanks) {
  std::mt19937_64 random(5);
  for (const int64_t leaves : {4, 8}) {
    std::vector<std::vector<float>> expected;
    for (int64_t step = 0; step < 3; ++step)
      expected.push_back(TreeSum(WideLeaves(step, leaves, kGradientSize), 0, leaves));
    for (const Lag lag : {Lag::kMain, Lag::kSide, Lag::kRandom}) {
      for (int ranks = 1; ranks <= 4; ++ranks) {
        const int64_t bucket = 4096 + static_cast<int64_t>(random() % (5 * kGradientSize));
        const auto sums = Sums({ranks, leaves, bucket, lag, random()});
        for (size_t step = 0; step < sums.size(); ++step) {
          EXPECT_TRUE(SameBits(sums[step], expected[step]))
              << leaves << " leaves on " << ranks << " ranks, buckets of " << bucket
              << " bytes, step " << step;
        }
      }
    }
  }
}

TEST(OverlappedSumTest, TwoLevelsHaveTheBitsOfTheTree) {
  std::mt19937_64 random(6);
  std::vector<std::vector<float>> expected;
  for (int64_t step = 0; step < 3; ++step)
    expected.push_back(TreeSum(WideLeaves(step, 8, kGradientSize), 0, 8));
  for (const std::vector<int>& nodes : std::vector<std::vector<int>>{
           {0, 0, 1, 1}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 0, 1, 1, 2, 2}, {0, 0, 0, 1, 2}}) {
    const int ranks = static_cast<int>(nodes.size());
    const int64_t bucket = 4096 + static_cast<int64_t>(random() % (5 * kGradientSize));
    const auto sums = Sums({ranks, 8, bucket, Lag::kRandom, random(), Reduction::kTree, nodes});
    for (size_t step = 0; step < sums.size(); ++step) {
      EXPECT_TRUE(SameBits(sums[step], expected[step]))
          << ranks << " ranks, buckets of " << bucket << " bytes, step " << step;
    }
  }
}

TEST(OverlappedSumTest, BucketsGrowWithRanksSoThatMessagesDoNotShrink) {
  EXPECT_EQ(BucketBytes(32 << 20, 8), 32 << 20);
  EXPECT_EQ(BucketBytes(32 << 20, 128), 32 << 20);
  EXPECT_EQ(BucketBytes(32 << 20, 1024), 256 << 20);
}

// In another order, and so with other roundings.
TEST(OverlappedSumTest, FastModeSumsTheSameLeaves) {
  for (const Lag lag : {Lag::kMain, Lag::kSide}) {
    for (int ranks = 2; ranks <= 4; ++ranks) {
      const auto sums = Sums({ranks, 4, 40'000, lag, 9, Reduction::kFast});
      const std::vector<std::vector<float>> leaves = WideLeaves(2, 4, kGradientSize);
      const std::vector<float> expected = TreeSum(leaves, 0, 4);
      std::vector<float> largest(kGradientSize);
      for (const std::vector<float>& values : leaves) {
        for (int64_t i = 0; i < kGradientSize; ++i) largest[i] += std::abs(values[i]);
      }
      // The tree's sum is off by two roundings of what there is to add at most, any other order's
      // by three.
      for (int64_t i = 0; i < kGradientSize; ++i)
        ASSERT_NEAR(sums[2][i], expected[i], 5.01 * 0x1p-24 * largest[i]) << i;
    }
  }
}

}  // namespace
}  // namespace anyorder::dist
