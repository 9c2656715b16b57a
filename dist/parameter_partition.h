// Who owns what, and in which tree sums are made. Pure functions of sizes, so that every rank, and
// a later run with another number of ranks, computes the same answer without talking.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "kernels/adamw.h"

namespace anyorder::dist {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Slices that travel begin where vectors and messages like it: at whole units.
inline constexpr int64_t kUnitElements = 64;
inline int64_t NumUnits(int64_t elements) { return (elements + kUnitElements - 1) / kUnitElements; }
// Where a window begins in its memory: aligned as in the flat space, so that libraries, which look
// at addresses, do the same with it wherever it lies.
inline int64_t OffsetOf(Range window) { return window.begin % kUnitElements; }

// Part `part` of [0, count) cut into `parts` contiguous parts whose sizes differ by at most one.
inline Range EvenPart(int64_t count, int64_t parts, int64_t part) {
  return {count * part / parts, count * (part + 1) / parts};
}

inline Range Intersection(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// The length of slices that are whole units and all equal but for the last ones, which may be
// empty.
inline int64_t SliceLength(Range range, int64_t slices) {
  return (NumUnits(range.size()) + slices - 1) / slices * kUnitElements;
}
// The index-th slice of that length.
inline Range SliceAt(Range range, int64_t length, int64_t index) {
  const int64_t begin = range.begin + index * length;
  return Intersection({begin, begin + length}, range);
}

// The flat parameter space [0, num_elements) cut into one contiguous range per rank. All are
// equally long, so that libraries' collectives, which know one length, fit, but for the last ones:
// there is a shorter range, and ranks behind it own nothing. Boundaries are multiples of the block
// over which squares are summed, so that every block has one owner and the gradient norm is the
// same sum for any number of ranks.
class Partition {
 public:
  static constexpr int64_t kBlockElements = kernels::kNormBlockElements;

  Partition(int64_t num_elements, int world_size) : num_elements_(num_elements) {
    ANYORDER_CHECK(num_elements >= 0 && world_size >= 1);
    stride_ = (num_blocks() + world_size - 1) / world_size * kBlockElements;
    for (int rank = 0; rank <= world_size; ++rank)
      offsets_.push_back(std::min(num_elements, rank * stride_));
  }

  int64_t num_elements() const { return num_elements_; }
  int64_t num_blocks() const { return (num_elements_ + kBlockElements - 1) / kBlockElements; }
  int world_size() const { return static_cast<int>(offsets_.size()) - 1; }
  // [world_size + 1]; rank r owns [offsets[r], offsets[r + 1]).
  const std::vector<int64_t>& offsets() const { return offsets_; }
  Range OwnedBy(int rank) const { return {offsets_[rank], offsets_[rank + 1]}; }
  // With room behind the last elements, so that every rank's range could be as long as rank 0's, in
  // whole blocks.
  int64_t padded_elements() const { return world_size() * stride_; }
  int64_t padded_blocks() const { return padded_elements() / kBlockElements; }

 private:
  int64_t num_elements_;
  int64_t stride_;  // a whole number of blocks
  std::vector<int64_t> offsets_;
};

// The complete binary tree over a step's microbatches by which gradients and scalars are summed:
// left child plus right child. What is added to what depends on the number of leaves alone, and so
// do the bits.

// The sum of the leaves [index << level, (index + 1) << level).
struct TreeNode {
  int level = 0;
  int64_t index = 0;
  bool operator==(const TreeNode&) const = default;
};

// The largest nodes inside [leaves.begin, leaves.end), from left to right.
inline std::vector<TreeNode> MaximalNodes(Range leaves) {
  std::vector<TreeNode> nodes;
  for (int64_t leaf = leaves.begin; leaf < leaves.end;) {
    int level = 0;
    while (leaf % (int64_t{2} << level) == 0 && leaf + (int64_t{2} << level) <= leaves.end) ++level;
    nodes.push_back({level, leaf >> level});
    leaf += int64_t{1} << level;
  }
  return nodes;
}

inline bool AreSiblings(const TreeNode& left, const TreeNode& right) {
  return left.level == right.level && left.index % 2 == 0 && right.index == left.index + 1;
}

// Pushes `item`, which lies right of all of `stack`, and joins siblings for as long as there are
// any: combine(left, right) adds right into left.
template <typename Item, typename Combine>
void PushAndJoin(std::vector<Item>& stack, Item item, Combine combine) {
  stack.push_back(std::move(item));
  while (stack.size() >= 2 && AreSiblings(stack.end()[-2].node, stack.back().node)) {
    Item& left = stack.end()[-2];
    combine(left, stack.back());
    left.node = {left.node.level + 1, left.node.index / 2};
    stack.pop_back();
  }
}

// Which microbatches (leaves) of a step each rank runs, and after how many of them ranks exchange.
// Pairs of neighbours, fours and so on up to 2^level of them are summed by one rank; they are a
// node of the tree. In round j rank r has the node (level, j * world_size + r), if there is one, so
// that after each round all nodes so far are the first ones of the level, for any number of ranks.
class LeafSchedule {
 public:
  // leaves_per_exchange: 2^level; 0: as many as leave every rank about as many leaves, which is one
  // round where ranks divide the leaves. REQUIRES: Check is OK.
  LeafSchedule(int64_t num_leaves, int world_size, int64_t leaves_per_exchange)
      : num_leaves_(num_leaves), world_size_(world_size) {
    while (int64_t{2} << level_ <= num_leaves / world_size &&
           (leaves_per_exchange == 0 ? IsEven(level_ + 1)
                                     : int64_t{2} << level_ <= leaves_per_exchange))
      ++level_;
  }
  // InvalidArgument, with what to change.
  static absl::Status Check(int64_t num_leaves, int world_size, int64_t leaves_per_exchange) {
    if (num_leaves < 1 || (num_leaves & (num_leaves - 1)) != 0) {
      return InvalidArgument(num_leaves,
                             " microbatches per step: must be a power of two; change "
                             "train.global_batch_size or train.micro_batch_size");
    }
    if (world_size > num_leaves) {
      return InvalidArgument(world_size, " ranks but only ", num_leaves,
                             " microbatches per step; start at most ", num_leaves,
                             " ranks or make microbatches smaller");
    }
    const int64_t most = num_leaves / world_size;
    if (leaves_per_exchange != 0 && (leaves_per_exchange < 1 || leaves_per_exchange > most ||
                                     (leaves_per_exchange & (leaves_per_exchange - 1)) != 0)) {
      return InvalidArgument(
          "dist.leaves_per_exchange is ", leaves_per_exchange, " but ", world_size, " ranks have ",
          most, " microbatches a step each: set it to 0 or to a power of two up to ", most);
    }
    return absl::OkStatus();
  }

  int64_t num_leaves() const { return num_leaves_; }
  int level() const { return level_; }
  int64_t leaves_per_exchange() const { return int64_t{1} << level_; }
  int64_t num_nodes() const { return num_leaves_ >> level_; }
  int64_t num_rounds() const { return (num_nodes() + world_size_ - 1) / world_size_; }
  // The rank's leaves, from left to right.
  std::vector<int64_t> LeavesOf(int rank) const {
    std::vector<int64_t> leaves;
    for (int64_t node = rank; node < num_nodes(); node += world_size_) {
      for (int64_t leaf = node << level_; leaf < (node + 1) << level_; ++leaf)
        leaves.push_back(leaf);
    }
    return leaves;
  }
  // What neighbours have in a round: the largest nodes that theirs join to.
  std::vector<TreeNode> NodesOf(int64_t round, Range ranks) const {
    const int64_t first = round * world_size_;
    return Joined(
        {std::min(first + ranks.begin, num_nodes()), std::min(first + ranks.end, num_nodes())});
  }
  // What all have in the rounds before `round`.
  std::vector<TreeNode> NodesBefore(int64_t round) const {
    return Joined({0, std::min(round * world_size_, num_nodes())});
  }

 private:
  // The rank with the most leaves has hardly more than its share.
  bool IsEven(int level) const {
    const int64_t nodes = num_leaves_ >> level;
    const int64_t most = (nodes + world_size_ - 1) / world_size_ << level;
    const int64_t share = (num_leaves_ + world_size_ - 1) / world_size_;
    return most <= share + share / 16;
  }
  std::vector<TreeNode> Joined(Range of_level) const {
    std::vector<TreeNode> nodes = MaximalNodes(of_level);
    for (TreeNode& node : nodes) node.level += level_;
    return nodes;
  }

  int64_t num_leaves_;
  int world_size_;
  int level_ = 0;
};

// Which ranks share a node: ranks in groups of neighbours. Exchanges have two levels, first among
// the ranks of a node, then between nodes, so that a node receives only once what comes from
// elsewhere. Pure functions of where ranks are, the same on every rank.
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
