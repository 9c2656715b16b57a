// What must hold of a plan of the ring kernels, wherever it was made.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/attention/attention_ring.h"

namespace anyorder::kernels::testing {

// A lane's work list: the tiles of both streams.
class RingWork {
 public:
  RingWork(const cuda::RingPlan& plan, const AttentionShape& shape, int lane)
      : plan_(plan), shape_(shape), lane_(lane), capacity_(plan.capacity[0] + plan.capacity[1]) {}

  int NumTiles() const {
    int count = 0;
    while (count < capacity_ && At(count).num_rows > 0) ++count;
    return count;
  }
  const cuda::RingRowTile& At(int place) const {
    return plan_.work[int64_t{lane_} * capacity_ + place];
  }

  void ExpectFallingCosts() const {
    const int tiles = NumTiles();
    for (int i = 0; i < capacity_; ++i) {
      EXPECT_EQ(At(i).num_rows > 0, i < tiles) << "a place without rows before one with some";
      if (i == 0) continue;
      EXPECT_LE(At(i).cost, At(i - 1).cost);
    }
  }

  // How often each row of the problem is in a tile of its own stream.
  void CountRows(std::vector<int>* count) const {
    for (int i = 0; i < NumTiles(); ++i) {
      const cuda::RingRowTile& tile = At(i);
      EXPECT_EQ(tile.lane, lane_);
      const bool is_content = tile.stream == 0;
      const int64_t rows = is_content ? shape_.content_rows : shape_.query_rows;
      const int64_t first =
          lane_ * rows + (is_content ? 0 : shape_.batch_size * shape_.content_rows);
      ASSERT_GE(tile.first_row, first);
      ASSERT_LE(tile.first_row + tile.num_rows, first + rows);
      for (int64_t row = tile.first_row; row < tile.first_row + tile.num_rows; ++row)
        ++(*count)[static_cast<size_t>(row)];
    }
  }

 private:
  const cuda::RingPlan& plan_;
  const AttentionShape& shape_;
  const int lane_;
  const int capacity_;
};

// Each row of a stream that the ring kernels have is in the work once, and no other; the longest
// tiles come first. `plan` is in host memory.
inline void ExpectSoundPlan(const cuda::RingPlan& plan, const AttentionShape& shape) {
  std::vector<int> count(static_cast<size_t>(shape.num_rows()));
  for (int lane = 0; lane < shape.batch_size; ++lane) {
    const RingWork work(plan, shape, lane);
    work.ExpectFallingCosts();
    work.CountRows(&count);
  }
  for (int64_t row = 0; row < shape.num_rows(); ++row) {
    const int64_t stream = row < shape.batch_size * shape.content_rows ? 0 : 1;
    const bool has_ring =
        plan.forms[stream * shape.batch_size + shape.LaneOfRow(row)] == cuda::kRingForm;
    EXPECT_EQ(count[static_cast<size_t>(row)], has_ring ? 1 : 0) << "row " << row;
  }
}

}  // namespace anyorder::kernels::testing
