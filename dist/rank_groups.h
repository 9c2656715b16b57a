// Which ranks share a node, for exchanges in two levels: first among the ranks of a node, then
// between nodes, so that what a node receives from elsewhere it receives once.

#pragma once

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "dist/parameter_partition.h"

namespace anyorder::dist {

// The ranks in groups of neighbours. Pure functions of where ranks are, the same on every rank.
class RankGroups {
 public:
  // Every rank alone: exchanges have one level.
  explicit RankGroups(int world_size) {
    for (int rank = 0; rank < world_size; ++rank) Add(rank, /*is_new=*/true);
  }
  // node_of_rank: [world_size]. Neighbours on one node are a group; ranks of a node that do not
  // follow each other are several. If one node has all ranks there is nothing between nodes to
  // save, and every rank is alone.
  explicit RankGroups(const std::vector<int>& node_of_rank) {
    const bool is_one_node = std::all_of(node_of_rank.begin(), node_of_rank.end(),
                                         [&](int node) { return node == node_of_rank[0]; });
    for (int rank = 0; rank < static_cast<int>(node_of_rank.size()); ++rank)
      Add(rank, is_one_node || rank == 0 || node_of_rank[rank] != node_of_rank[rank - 1]);
  }

  int world_size() const { return static_cast<int>(group_of_rank_.size()); }
  int count() const { return static_cast<int>(groups_.size()); }
  // Its ranks.
  Range operator[](int group) const { return groups_[group]; }
  int GroupOf(int rank) const { return group_of_rank_[rank]; }
  // Whether a group has several ranks.
  bool has_two_levels() const { return count() < world_size(); }
  // The rank of `group` that handles what goes from that group to `rank`, or back: of ranks of
  // equal numbers within their nodes. In the rank's own group it is the rank itself.
  int Delegate(int group, int rank) const {
    const int64_t number = rank - groups_[group_of_rank_[rank]].begin;
    return static_cast<int>(groups_[group].begin + number % groups_[group].size());
  }

 private:
  void Add(int rank, bool is_new) {
    if (is_new) groups_.push_back({rank, rank});
    groups_.back().end = rank + 1;
    group_of_rank_.push_back(count() - 1);
  }
  std::vector<Range> groups_;
  std::vector<int> group_of_rank_;
};

}  // namespace anyorder::dist
