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

struct Exchanged {
  std::vector<float> gradient;
  std::vector<std::vector<double>> scalars;  // of each rank
  Traffic traffic;
};

std::vector<double> ScalarsOfLeaf(int64_t leaf) {
  RandomStream random(9, RandomPurpose::kInit, leaf, 0);
  return {random.Normal() * 1e9, random.Uniform()};
}

Exchanged ExchangeLeaves(const std::vector<std::vector<float>>& leaves,
                         const std::vector<int>& nodes, int num_scalars) {
  const int64_t size = static_cast<int64_t>(leaves[0].size());
  const int ranks = static_cast<int>(nodes.size());
  Exchanged reduced{std::vector<float>(size), std::vector<std::vector<double>>(ranks), {}};
  const auto run = [&](Communicator& comm) {
    comm.set_nodes(RankGroups(nodes));
    const auto backend = kernels::MakeReferenceBackend();
    const auto reducer =
        GradientReducer::Create(comm, *backend,
                                {size, static_cast<int64_t>(leaves.size()), num_scalars})
            .value();
    std::vector<double>& scalars = reduced.scalars[comm.rank()];
    scalars.resize(num_scalars);
    const Range owned = reducer->owned();
    const Range mine = reducer->leaves();
    for (int64_t leaf = mine.begin; leaf < mine.end; ++leaf) {
      const std::vector<double> of_leaf = ScalarsOfLeaf(leaf);
      reducer->AddLeaf(leaf, leaves[leaf], absl::MakeConstSpan(of_leaf).first(num_scalars));
    }
    reducer->ReduceScatter(TensorView(reduced.gradient.data() + owned.begin, {owned.size()}),
                           absl::MakeSpan(scalars));
  };
  testing::RunThreadRanks(ranks, run, {.traffic = &reduced.traffic});
  return reduced;
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
    std::vector<std::vector<double>> leaf_scalars;
    for (int64_t leaf = 0; leaf < num_leaves; ++leaf) leaf_scalars.push_back(ScalarsOfLeaf(leaf));
    const std::vector<double> expected_scalars = TreeSum(leaf_scalars, 0, leaf_scalars.size());
    for (const std::vector<int>& ranks_of_nodes : PretendedNodes()) {
      const Exchanged reduced = ExchangeLeaves(leaves, Places(ranks_of_nodes), /*num_scalars=*/2);
      const std::string what =
          absl::StrCat(num_leaves, " leaves on ", absl::StrJoin(ranks_of_nodes, "+"));
      EXPECT_TRUE(SameBits(reduced.gradient, expected)) << what;
      for (const std::vector<double>& scalars : reduced.scalars)
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
    std::vector<int> alone(ranks);
    for (int rank = 0; rank < ranks; ++rank) alone[rank] = rank;
    const Traffic two_levels = ExchangeLeaves(leaves, nodes, 0).traffic;
    const Traffic one_level = ExchangeLeaves(leaves, alone, 0).traffic;
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
    return BytesBetweenNodes(ExchangeLeaves(leaves, places, 0).traffic, places, 0);
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
  const Traffic traffic = ExchangeLeaves(WideLeaves(0, 16, 16 * kNormBlock), nodes, 0).traffic;
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
