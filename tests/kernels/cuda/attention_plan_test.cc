// The ring kernels' work list: both streams' tiles, each row once, the longest first.

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/attention_ring_backward.cuh"
#include "kernels/cuda/attention_ring_forward.cuh"
#include "tests/kernels/attention_scenarios.h"
#include "tests/kernels/cuda/attention_ring_case.h"

namespace anyorder::kernels::testing {
namespace {

// XLNet's keys, 14 tiles: two blocks of forward share a multiprocessor of sm_90, which has 228 KiB and keeps 1 for each block, and one
// fits in sm_80's.
constexpr int64_t kForwardBytes = cuda::RingBytes<true, cuda::RingForwardMemory>(14);
constexpr int64_t kBackwardBytes = cuda::RingBytes<true, cuda::RingBackwardMemory>(14);
static_assert(2 * (kForwardBytes + 1024) <= 228 * 1024);
static_assert(kForwardBytes <= cuda::kMostSharedBytes && kBackwardBytes <= cuda::kMostSharedBytes);

class Work {
 public:
  explicit Work(const RingRun& run) : run_(run), shape_(run.problem()) {
    capacity_ = run.plan().capacity[0] + run.plan().capacity[1];
  }

  int NumTiles(int lane) const {
    int count = 0;
    while (count < capacity_ && At(lane, count).num_rows > 0)
      ++count;
    return count;
  }
  const cuda::RingRowTile& At(int lane, int place) const {
    return run_.plan().work[int64_t{lane} * capacity_ + place];
  }

  void ExpectFallingCosts(int lane) const {
    const int tiles = NumTiles(lane);
    for (int i = 0; i < capacity_; ++i) {
      EXPECT_EQ(At(lane, i).num_rows > 0, i < tiles) << "a place without rows before one with some";
      if (i == 0) continue;
      EXPECT_LE(At(lane, i).cost, At(lane, i - 1).cost);
    }
  }

  // Of the lane's tiles, how often each row of the problem is in one of its own stream.
  void CountRows(int lane, std::vector<int>* count) const {
    for (int i = 0; i < NumTiles(lane); ++i) {
      const cuda::RingRowTile& tile = At(lane, i);
      EXPECT_EQ(tile.lane, lane);
      const int64_t first = shape_.FirstRow(tile.stream, lane);
      EXPECT_GE(tile.first_row, first);
      EXPECT_LE(tile.first_row + tile.num_rows, first + shape_.RowsOfStream(tile.stream));
      for (int64_t row = tile.first_row; row < tile.first_row + tile.num_rows; ++row)
        ++(*count)[static_cast<size_t>(row)];
    }
  }

 private:
  const RingRun& run_;
  const cuda::AttentionProblem<BFloat16>& shape_;
  int capacity_;
};

void ExpectSound(const AttentionCase& c, uint64_t seed) {
  SCOPED_TRACE(c.name);
  RingData data = MakeData<BFloat16, float>(c, seed);
  const RingRun run(&data);
  const Work work(run);
  std::vector<int> count(static_cast<size_t>(c.shape.num_rows()));
  for (int lane = 0; lane < run.problem().batch_size; ++lane) {
    work.ExpectFallingCosts(lane);
    work.CountRows(lane, &count);
  }
  for (size_t row = 0; row < count.size(); ++row)
    EXPECT_EQ(count[row], run.HasRing(static_cast<int64_t>(row)) ? 1 : 0) << "row " << row;
}

TEST(AttentionPlanTest, EachRowOfBothStreamsIsInTheWorkOnce) {
  ExpectSound(XlnetCase(96, 400, 1, 64), 1);
  ExpectSound(XlnetCase(0, 1, 1, 64), 2);
  AttentionCase c = XlnetCase(20, 60, 2, 64);
  c.keys[1].pos[30] += 1;  // lane 1 is the general kernels'
  ExpectSound(c, 3);
  c = BidirectionalCase(150);
  c.shape.head_dim = 64;
  ExpectSound(c, 4);
  for (uint64_t seed = 0; seed < 40; ++seed)
    ExpectSound(RandomRingCase(seed), seed);
}

// Causal rows: the last tile sees all keys, the first only those of memory and its own.
TEST(AttentionPlanTest, TheLongestTilesComeFirst) {
  AttentionCase c = CausalCase(64, 512);
  c.shape.head_dim = 64;
  RingData data = MakeData<BFloat16, float>(c, 5);
  const RingRun run(&data);
  const Work work(run);
  ASSERT_EQ(work.NumTiles(0), 4);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(work.At(0, i).first_row, 128 * (3 - i));
}

// Content tiles have twice the rows of query tiles in a step.
TEST(AttentionPlanTest, BothStreamsAreOrderedTogether) {
  RingData data = MakeData<BFloat16, float>(XlnetCase(128, 512, 1, 64), 6);
  const RingRun run(&data);
  const Work work(run);
  for (int lane = 0; lane < run.problem().batch_size; ++lane) {
    bool was_query = false;
    for (int i = 0; i < work.NumTiles(lane); ++i) {
      const bool is_query = work.At(lane, i).stream == 1;
      EXPECT_TRUE(is_query || !was_query) << "lane " << lane << " place " << i;
      was_query = is_query;
    }
    EXPECT_TRUE(was_query);
  }
}

}  // namespace
}  // namespace anyorder::kernels::testing
