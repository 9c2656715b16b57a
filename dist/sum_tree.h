// The complete binary tree over a step's microbatches by which gradients and scalars are summed:
// left child plus right child. What is added to what depends on the number of leaves alone, and so
// do the bits.

#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "dist/parameter_partition.h"

namespace anyorder::dist {

// The sum of the leaves [index << level, (index + 1) << level).
struct TreeNode {
  int level = 0;
  int64_t index = 0;
  bool operator==(const TreeNode&) const = default;
};

// The largest nodes inside [leaves.begin, leaves.end), from left to right.
std::vector<TreeNode> MaximalNodes(Range leaves);

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

}  // namespace anyorder::dist
