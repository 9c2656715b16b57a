#include "dist/parameter_partition.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace anyorder::dist {
namespace {

constexpr int64_t kOwned = Partition::kBlockElements;

TEST(PartitionTest, GivesRanksEqualStridesOfWholeBlocks) {
  for (const int64_t size :
       {int64_t{1}, kOwned - 1, kOwned, kOwned + 1, 7 * kOwned, 7 * kOwned + 5}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const Partition partition(size, ranks);
      const int64_t stride = (partition.num_blocks() + ranks - 1) / ranks * kOwned;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(partition.OwnedBy(rank),
                  (Range{std::min(size, rank * stride), std::min(size, (rank + 1) * stride)}));
      }
      EXPECT_EQ(partition.OwnedBy(ranks - 1).end, size) << size << " over " << ranks;
      EXPECT_EQ(partition.OwnedBy(0).size(), std::min(size, stride));
      EXPECT_EQ(partition.padded_elements(), ranks * stride);
      EXPECT_EQ(partition.padded_blocks() * kOwned, partition.padded_elements());
    }
  }
}

TEST(PartitionTest, TheLastRanksMayOwnNothing) {
  const Partition partition(10, 3);
  EXPECT_EQ(partition.OwnedBy(0), (Range{0, 10}));
  EXPECT_EQ(partition.OwnedBy(1).size() + partition.OwnedBy(2).size(), 0);
  EXPECT_EQ(partition.OwnedBy(0).size(), 10);
  EXPECT_EQ(partition.num_blocks(), 1);
}

}  // namespace
}  // namespace anyorder::dist
