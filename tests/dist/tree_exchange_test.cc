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

// Where each bucket's slices are added up, and what moves from there to owners on other nodes.
struct Slices {
  int64_t of_node = 0;  // elements
  int64_t moved = 0;
};
Slices SlicesOf(int64_t size, const RankGroups& groups, const std::vector<int>& nodes, int node) {
  const int ranks = static_cast<int>(nodes.size());
  const Partition partition(size, ranks);
  Slices slices;
  for (int rank = 0; rank < ranks; ++rank) {
    if (nodes[rank] != node) continue;
    // As the reducer's, of which one is enough for so few elements.
    const GradientWindows windows({size, {0}, size, kMinSliceElements}, groups, rank);
    EXPECT_EQ(windows.num_buckets(), 1);
    const Range slice = windows.Slice(0, rank);
    slices.of_node += slice.size();
    for (int peer = 0; peer < ranks; ++peer)
      slices.moved += nodes[peer] != node ? Intersection(slice, partition.OwnedBy(peer)).size() : 0;
  }
  return slices;
}

const std::vector<std::vector<int>>& PretendedNodes() {
  static const auto* const all = new std::vector<std::vector<int>>{
      {2, 2}, {4, 4}, {2, 2, 2, 2}, {2, 2, 2}, {3, 3}, {1, 3}, {3, 1, 2}, {5, 2, 1}, {8}, {1, 1}};
  return *all;
}

TEST(TreeExchangeTest, SumsHaveTheBitsOfTheTreeOnAnyRanksAndNodes) {
  for (const int64_t num_leaves : {1, 2, 4, 8, 16}) {
    std::vector<std::vector<int>> all;
    if (num_leaves >= 8) all = PretendedNodes();
    for (int ranks = 1; ranks <= num_leaves; ++ranks) all.emplace_back(ranks, 1);
    // The last owner's range is shorter, and of many ranks the last ones own nothing.
    const auto leaves = WideLeaves(0, num_leaves, 5 * kNormBlock + 77);
    const std::vector<float> expected = TreeSum(leaves, 0, leaves.size());
    const std::vector<double> expected_scalars = ScalarSum(num_leaves);
    for (const std::vector<int>& ranks_of_nodes : all) {
      const Reduced reduced = Reduce(leaves, Places(ranks_of_nodes), /*num_scalars=*/2);
      const std::string what =
          absl::StrCat(num_leaves, " leaves on ", absl::StrJoin(ranks_of_nodes, "+"));
      EXPECT_TRUE(SameBits(reduced.gradient, expected)) << what;
      for (const std::vector<double>& scalars : reduced.scalars_of_rank)
        EXPECT_TRUE(SameBits(scalars, expected_scalars)) << what;
    }
  }
}

// In each round a node sends other nodes' slices once for each tree node that its leaves join to;
// without levels once for each rank. Then slices move to their owners.
TEST(TreeExchangeTest, ANodeSendsWhatItsLeavesJoinToOnce) {
  const int64_t size = 9 * kNormBlock + 5;
  const auto leaves = WideLeaves(0, 8, size);
  for (const std::vector<int>& ranks_of_nodes : PretendedNodes()) {
    SCOPED_TRACE(absl::StrJoin(ranks_of_nodes, "+"));
    const std::vector<int> nodes = Places(ranks_of_nodes);
    const int ranks = static_cast<int>(nodes.size());
    const Traffic two_levels = Reduce(leaves, nodes, 0).traffic;
    const Traffic one_level = Reduce(leaves, Alone(ranks), 0).traffic;
    const LeafSchedule schedule(8, ranks, 0);
    int64_t first = 0;
    for (size_t node = 0; node < ranks_of_nodes.size(); ++node) {
      const int64_t end = first + ranks_of_nodes[node];
      int64_t joined = 0;
      int64_t nodes_of_ranks = 0;
      for (int64_t round = 0; round < schedule.num_rounds(); ++round) {
        joined += schedule.NodesOf(round, {first, end}).size();
        for (int64_t rank = first; rank < end; ++rank)
          nodes_of_ranks += schedule.NodesOf(round, {rank, rank + 1}).size();
      }
      const int number = static_cast<int>(node);
      const auto expected = [&](const std::vector<int>& levels, int64_t sums) {
        const Slices slices = SlicesOf(size, RankGroups(levels), nodes, number);
        return 4 * ((size - slices.of_node) * sums + slices.moved);
      };
      EXPECT_EQ(BytesBetweenNodes(two_levels, nodes, number), expected(nodes, joined));
      EXPECT_EQ(BytesBetweenNodes(one_level, nodes, number),
                expected(Alone(ranks), nodes_of_ranks));
      first = end;
    }
  }
}

}  // namespace
}  // namespace anyorder::dist
