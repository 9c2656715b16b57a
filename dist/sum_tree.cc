#include "dist/sum_tree.h"

namespace anyorder::dist {

std::vector<TreeNode> MaximalNodes(Range leaves) {
  std::vector<TreeNode> nodes;
  for (int64_t leaf = leaves.begin; leaf < leaves.end;) {
    int level = 0;
    while (leaf % (int64_t{2} << level) == 0 && leaf + (int64_t{2} << level) <= leaves.end) ++level;
    nodes.push_back({level, leaf >> level});
    leaf += int64_t{1} << level;
  }
  return nodes;
}

}  // namespace anyorder::dist
