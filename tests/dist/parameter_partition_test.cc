#include "dist/parameter_partition.h"

#include <gtest/gtest.h>

namespace anyorder::dist {
namespace {

constexpr int64_t kOwned = Partition::kBlockElements;

TEST(PartitionTest, CoversTheSpaceEvenlyAtBlockBoundaries) {
  for (const int64_t size :
       {int64_t{1}, kOwned - 1, kOwned, kOwned + 1, 7 * kOwned, 7 * kOwned + 5}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const Partition partition(size, ranks);
      int64_t least = size;
      int64_t most = 0;
      int64_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range range = partition.OwnedBy(rank);
        EXPECT_EQ(range.begin, end);
        end = range.end;
        if (range.end != size) {
          EXPECT_EQ(range.end % kOwned, 0);
        }
        const int64_t blocks = (range.size() + kOwned - 1) / kOwned;
        least = std::min(least, blocks);
        most = std::max(most, blocks);
      }
      EXPECT_EQ(end, size);
      EXPECT_LE(most - least, 1) << size << " over " << ranks;
    }
  }
}

TEST(PartitionTest, ARankMayOwnNothing) {
  const Partition partition(10, 3);
  EXPECT_EQ(partition.OwnedBy(0).size() + partition.OwnedBy(1).size(), 0);
  EXPECT_EQ(partition.OwnedBy(2), (Range{0, 10}));
  EXPECT_EQ(partition.largest(), 10);
  EXPECT_EQ(partition.num_blocks(), 1);
}

TEST(LeafRangeTest, GivesEveryRankAnEvenRunOfLeaves) {
  for (const int64_t leaves : {1, 2, 4, 8, 16, 64}) {
    for (int ranks = 1; ranks <= leaves; ++ranks) {
      int64_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range range = LeafRange(leaves, ranks, rank);
        EXPECT_EQ(range.begin, end);
        EXPECT_GE(range.size(), leaves / ranks);
        EXPECT_LE(range.size(), (leaves + ranks - 1) / ranks);
        end = range.end;
      }
      EXPECT_EQ(end, leaves);
    }
  }
}

TEST(LeafRangeDeathTest, RefusesMoreRanksThanLeavesAndOddTrees) {
  EXPECT_DEATH(LeafRange(4, 5, 0), "4 microbatches for 5 ranks");
  EXPECT_DEATH(LeafRange(6, 2, 0), "6 microbatches for 2 ranks");
}

}  // namespace
}  // namespace anyorder::dist
