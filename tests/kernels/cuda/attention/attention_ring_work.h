// What must hold of a plan of the ring kernels, wherever it was made.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/attention/attention_ring.h"

namespace anyorder::kernels::testing {

// A lane's work list: the tiles of both streams, and places without rows behind them.
class RingWork {
 public:
  RingWork(const cuda::RingPlan& plan, int lane)
      : capacity_(plan.capacity[0] + plan.capacity[1]),
        tiles_(plan.work + int64_t{lane} * capacity_) {}

  int capacity() const { return capacity_; }
  int NumTiles() const {
    int count = 0;
    while (count < capacity_ && At(count).num_rows > 0) ++count;
    return count;
  }
  const cuda::RingRowTile& At(int place) const { return tiles_[place]; }

 private:
  const int capacity_;
  const cuda::RingRowTile* const tiles_;
};

// Each row of a stream that the ring kernels have is in the work of its own lane and stream once,
// and no other; the longest tiles come first. `plan` is in host memory.
inline void ExpectSoundPlan(const cuda::RingPlan& plan, const AttentionShape& shape) {
  std::vector<int> count(shape.num_rows());
  for (int lane = 0; lane < shape.batch_size; ++lane) {
    const RingWork work(plan, lane);
    const int tiles = work.NumTiles();
    for (int i = 0; i < work.capacity(); ++i) {
      const cuda::RingRowTile& tile = work.At(i);
      EXPECT_EQ(tile.num_rows > 0, i < tiles) << "a place without rows before one with some";
      EXPECT_LE(tile.cost, work.At(std::max(i - 1, 0)).cost);
      if (i >= tiles) continue;
      EXPECT_EQ(tile.lane, lane);
      const bool is_content = tile.stream == 0;
      const int64_t rows = is_content ? shape.content_rows : shape.query_rows;
      const int64_t first = lane * rows + (is_content ? 0 : shape.batch_size * shape.content_rows);
      ASSERT_GE(tile.first_row, first);
      ASSERT_LE(tile.first_row + tile.num_rows, first + rows);
      for (int64_t row = 0; row < tile.num_rows; ++row) ++count[tile.first_row + row];
    }
  }
  for (int64_t row = 0; row < shape.num_rows(); ++row) {
    const int64_t stream = row < shape.batch_size * shape.content_rows ? 0 : 1;
    const bool has_ring =
        plan.forms[stream * shape.batch_size + shape.LaneOfRow(row)] == cuda::kRingForm;
    EXPECT_EQ(count[row], has_ring ? 1 : 0) << "row " << row;
  }
}

}  // namespace anyorder::kernels::testing
