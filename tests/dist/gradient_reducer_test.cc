#include "dist/gradient_reducer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/dist/training_run.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBlock = Partition::kBlockElements;
// Four blocks, the last of them short: three ranks own unequal ranges, five leave one with nothing.
constexpr int64_t kSize = 3 * kBlock + 77;

TEST(MaximalNodesTest, AreFewDisjointAndCoverTheLeaves) {
  EXPECT_EQ(MaximalNodes({0, 8}), (std::vector<TreeNode>{{3, 0}}));
  EXPECT_EQ(MaximalNodes({3, 6}), (std::vector<TreeNode>{{0, 3}, {1, 2}}));
  EXPECT_EQ(MaximalNodes({1, 8}), (std::vector<TreeNode>{{0, 1}, {1, 1}, {2, 1}}));
  for (int64_t begin = 0; begin < 32; ++begin) {
    for (int64_t end = begin + 1; end <= 32; ++end) {
      int64_t leaf = begin;
      const std::vector<TreeNode> nodes = MaximalNodes({begin, end});
      for (const TreeNode& node : nodes) {
        EXPECT_EQ(node.index << node.level, leaf);
        leaf += int64_t{1} << node.level;
      }
      EXPECT_EQ(leaf, end);
      EXPECT_LE(nodes.size(), 2u * 5u);
    }
  }
}

// Guards TreeExchangeTest: with these leaves, adding from left to right gives other bits than the
// tree.
TEST(GradientReducerTest, TheLeavesTellOrdersApart) {
  const auto leaves = WideLeaves(0, 8, kSize);
  std::vector<float> running(kSize, 0.0f);
  for (const std::vector<float>& leaf : leaves) {
    for (int64_t i = 0; i < kSize; ++i) running[i] += leaf[i];
  }
  EXPECT_FALSE(SameBits(running, TreeSum(leaves, 0, leaves.size())));
}

TEST(GradientReducerTest, BuffersServeEveryStepAnew) {
  const auto leaves = WideLeaves(0, 8, kSize);
  const std::vector<float> expected = TreeSum(leaves, 0, leaves.size());
  for (const int ranks : {3, 2})
    EXPECT_TRUE(SameBits(Reduce(leaves, Alone(ranks), 2, 3).gradient, expected));
}

// More elements than one exchange window, and ranks with ranges of different length.
TEST(GradientReducerTest, LargeRangesTravelInWindows) {
  const int64_t size = (int64_t{2} << 20) + 2 * kBlock + 5;
  std::vector<std::vector<float>> leaves(2, std::vector<float>(size));
  for (int64_t i = 0; i < size; ++i) {
    leaves[0][i] = static_cast<float>(i % 1000003);
    leaves[1][i] = 0.25f * static_cast<float>(i % 977);
  }
  for (const int ranks : {1, 2})
    EXPECT_TRUE(SameBits(Reduce(leaves, Alone(ranks), 2).gradient, TreeSum(leaves, 0, 2)));
}

// But for slices that move to their owners.
TEST(GradientReducerTest, SendsNoMoreThanARing) {
  const auto leaves = WideLeaves(0, 8, 8 * kBlock);
  for (const int ranks : {1, 2, 4, 8}) {
    const Reduced reduced = Reduce(leaves, Alone(ranks), 0, 1, {.min_slice_elements = 1});
    for (const int64_t bytes : reduced.bytes_of_rank)
      EXPECT_LE(bytes, 8 * kBlock * 4 * (ranks - 1) / ranks * (ranks + 1) / ranks) << ranks;
  }
}

TEST(GradientReducerTest, NanReachesTheSum) {
  auto leaves = WideLeaves(0, 4, kSize);
  leaves[2][kSize - 1] = std::nanf("");
  const Reduced reduced = Reduce(leaves, Alone(3), 2);
  EXPECT_TRUE(std::isnan(reduced.gradient[kSize - 1]));
  EXPECT_FALSE(std::isnan(reduced.gradient[0]));
}

TEST(GradientReducerTest, RefusesOptionsThatDoNotFit) {
  testing::RunThreadRanks(3, [](Communicator& comm) {
    const auto backend = kernels::MakeReferenceBackend();
    const auto transport = MakeCommunicatorTransport(comm, *backend).value();
    const auto message = [&](const GradientReducerOptions& options) {
      const auto reducer = GradientReducer::Create(comm, *backend, *transport, options);
      EXPECT_EQ(reducer.status().code(), absl::StatusCode::kInvalidArgument);
      return std::string(reducer.status().message());
    };
    EXPECT_THAT(message({100, 6}), HasSubstr("6 microbatches per step: must be a power of two"));
    EXPECT_THAT(message({100, 2}), HasSubstr("3 ranks but only 2 microbatches"));
    EXPECT_THAT(message({0, 4}), HasSubstr("0 elements"));
    EXPECT_THAT(
        message({100, 8, 0, 4}),
        HasSubstr("dist.leaves_per_exchange is 4 but 3 ranks have 2 microbatches a step each"));
    EXPECT_THAT(message({100, 16, 0, 3}), HasSubstr("a power of two up to 5"));
  });
}

TEST(GradientReducerDeathTest, LeavesComeInOrderAndComplete) {
  const auto with_reducer = [](auto body) {
    testing::RunThreadRanks(1, [&](Communicator& comm) {
      const auto backend = kernels::MakeReferenceBackend();
      const auto transport = MakeCommunicatorTransport(comm, *backend).value();
      body(*GradientReducer::Create(comm, *backend, *transport, {4, 2}).value(), *backend);
    });
  };
  const std::vector<float> leaf(4);
  EXPECT_DEATH(
      with_reducer([&](GradientReducer& r, auto& backend) { AddLeaf(r, backend, 1, leaf, {}); }),
      "leaf 1 where 0 was due");
  EXPECT_DEATH(with_reducer([&](GradientReducer& r, auto&) { r.CommitLeaf(0, {}); }),
               "without LeafPlaces");
  EXPECT_DEATH(with_reducer([&](GradientReducer& r, auto& backend) {
                 AddLeaf(r, backend, 0, leaf, {});
                 r.ReduceScatter({});
               }),
               "leaf 1 is missing");
}

}  // namespace
}  // namespace anyorder::dist
