// The sum in two levels: the bits of one level, and no more bytes between nodes than sizes say.

#include "dist/tree_exchange.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "dist/gradient_reducer.h"
#include "tests/dist/training_run.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

using testing::Traffic;

constexpr int64_t kNormBlock = Partition::kBlockElements;

// The node of each rank, for `ranks_of_nodes` ranks on each.
std::vector<int> Places(const std::vector<int>& ranks_of_nodes) {
  std::vector<int> nodes;
  for (size_t node = 0; node < ranks_of_nodes.size(); ++node)
    nodes.insert(nodes.end(), ranks_of_nodes[node], static_cast<int>(node));
  return nodes;
}

TEST(RankGroupsTest, AreNeighboursOnOneNode) {
  const RankGroups even(Places({2, 2, 2}));
  EXPECT_TRUE(even.has_two_levels());
  EXPECT_EQ(even.count(), 3);
  EXPECT_EQ(even[1], (Range{2, 4}));
  EXPECT_EQ(even.GroupOf(3), 1);
  EXPECT_EQ(even.Delegate(2, 1), 5);
  EXPECT_EQ(even.Delegate(1, 3), 3);
  const RankGroups uneven(Places({3, 1, 2}));
  EXPECT_EQ(uneven.Delegate(1, 2), 3);             // its only rank
  EXPECT_EQ(uneven.Delegate(2, 2), 4);             // 2 % 2
  EXPECT_EQ(RankGroups({0, 1, 0, 1}).count(), 4);  // dealt out in turn
  // Nothing is between nodes, or everything is.
  for (const auto& nodes : {Places({4}), Places({1, 1, 1})})
    EXPECT_FALSE(RankGroups(nodes).has_two_levels());
}

int64_t BytesBetweenNodes(const Traffic& traffic, const std::vector<int>& nodes, int node) {
  int64_t bytes = 0;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank] != node) continue;
    for (const auto& [to, sent] : traffic[rank]) bytes += nodes[to] != node ? sent.bytes : 0;
  }
  return bytes;
}

const std::vector<std::vector<int>>& PretendedNodes() {
  static const auto* const all = new std::vector<std::vector<int>>{
      {2, 2}, {4, 4}, {2, 2, 2, 2}, {2, 2, 2}, {3, 3}, {1, 3}, {3, 1, 2}, {5, 2, 1}, {8}, {1, 1}};
  return *all;
}

TEST(TreeExchangeTest, TwoLevelsHaveTheBitsOfTheTree) {
  for (const int64_t num_leaves : {8, 16}) {
    // The last owner's range is shorter, and of many ranks the last ones own nothing.
    const auto leaves = WideLeaves(0, num_leaves, 5 * kNormBlock + 77);
    const std::vector<float> expected = TreeSum(leaves, 0, leaves.size());
    const std::vector<double> expected_scalars = ScalarSum(num_leaves);
    for (const std::vector<int>& ranks_of_nodes : PretendedNodes()) {
      const Reduced reduced = Reduce(leaves, Places(ranks_of_nodes), /*num_scalars=*/2);
      const std::string what =
          absl::StrCat(num_leaves, " leaves on ", absl::StrJoin(ranks_of_nodes, "+"));
      EXPECT_TRUE(SameBits(reduced.gradient, expected)) << what;
      for (const std::vector<double>& scalars : reduced.scalars_of_rank)
        EXPECT_TRUE(SameBits(scalars, expected_scalars)) << what;
    }
  }
}

// A node sends each other node's range once for each tree node that its leaves join to; without
// levels once for each tree node of each rank.
TEST(TreeExchangeTest, ANodeSendsWhatItsLeavesJoinToOnce) {
  const int64_t size = 9 * kNormBlock + 5;
  const auto leaves = WideLeaves(0, 8, size);
  for (const std::vector<int>& ranks_of_nodes : PretendedNodes()) {
    SCOPED_TRACE(absl::StrJoin(ranks_of_nodes, "+"));
    const std::vector<int> nodes = Places(ranks_of_nodes);
    const int ranks = static_cast<int>(nodes.size());
    const Traffic two_levels = Reduce(leaves, nodes, 0).traffic;
    const Traffic one_level = Reduce(leaves, Alone(ranks), 0).traffic;
    const Partition partition(size, ranks);
    int64_t first = 0;
    for (size_t node = 0; node < ranks_of_nodes.size(); ++node) {
      const int64_t end = first + ranks_of_nodes[node];
      const int64_t elsewhere =
          size - (partition.offsets()[end] - partition.offsets()[first]);  // elements
      const Range whole{LeafRange(8, ranks, first).begin, LeafRange(8, ranks, end - 1).end};
      int64_t nodes_of_ranks = 0;
      for (int64_t rank = first; rank < end; ++rank)
        nodes_of_ranks += MaximalNodes(LeafRange(8, ranks, rank)).size();
      const int64_t joined = MaximalNodes(whole).size();
      const int number = static_cast<int>(node);
      EXPECT_EQ(BytesBetweenNodes(two_levels, nodes, number), 4 * elsewhere * joined);
      EXPECT_EQ(BytesBetweenNodes(one_level, nodes, number), 4 * elsewhere * nodes_of_ranks);
      first = end;
    }
  }
}

// The same in numbers: with L ranks on each node, an L-th.
TEST(TreeExchangeTest, BytesBetweenNodesFallByTheRanksOfANode) {
  const auto leaves = WideLeaves(0, 16, 16 * kNormBlock);
  const int64_t size = 16 * kNormBlock * 4;
  const auto sent = [&](const std::vector<int>& places) {
    return BytesBetweenNodes(Reduce(leaves, places, 0).traffic, places, 0);
  };
  EXPECT_EQ(sent(Places({8, 8})), size / 2);
  EXPECT_EQ(sent(Places({4, 4, 4, 4})), size * 3 / 4);
  EXPECT_EQ(sent(Places({2, 2})), size / 2);
  // Dealt out in turn, so that no neighbours share a node.
  EXPECT_EQ(sent({0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}), 8 * size / 2);
}

// Peers in the own node, and one in each other node.
TEST(TreeExchangeTest, ARankHasOnePeerInEachOtherNode) {
  const std::vector<int> nodes = Places({4, 4, 4, 4});
  const Traffic traffic = Reduce(WideLeaves(0, 16, 16 * kNormBlock), nodes, 0).traffic;
  for (const auto& of_rank : traffic) EXPECT_EQ(of_rank.size(), 3u + 3u);
}

TEST(TreeExchangeTest, WholeStepsEndInTheDigestOfOneRank) {
  const auto backend = kernels::MakeReferenceBackend();
  const uint64_t expected = RunDigestOfOneRank<BFloat16>(*backend);
  for (const std::vector<int>& ranks_of_nodes :
       std::vector<std::vector<int>>{{2, 2}, {4, 4}, {2, 2, 2}, {1, 3}}) {
    const std::vector<int> nodes = Places(ranks_of_nodes);
    testing::RunThreadRanks(static_cast<int>(nodes.size()), [&](Communicator& comm) {
      comm.set_nodes(RankGroups(nodes));
      EXPECT_EQ(RunDigest<BFloat16>(comm, *kernels::MakeReferenceBackend()), expected)
          << absl::StrJoin(ranks_of_nodes, "+");
    });
  }
}

}  // namespace
}  // namespace anyorder::dist
