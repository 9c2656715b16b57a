// The ring kernels' work list: both streams' tiles, each row once, the longest first.

#include <gtest/gtest.h>

#include "kernels/cuda/attention/attention_ring_backward.cuh"
#include "kernels/cuda/attention/attention_ring_forward.cuh"
#include "kernels/cuda/platform/launch.h"
#include "tests/kernels/attention_scenarios.h"
#include "tests/kernels/cuda/attention/attention_ring_case.h"
#include "tests/kernels/cuda/attention/attention_ring_work.h"

namespace anyorder::kernels::testing {
namespace {

// XLNet's keys, 14 tiles: two blocks of forward share a multiprocessor of sm_90, which has 228 KiB
// and keeps 1 for each block, and one fits in sm_80's.
constexpr int64_t kForwardBytes = cuda::RingBytes<true, cuda::RingForwardMemory>(14);
constexpr int64_t kBackwardBytes = cuda::RingBytes<true, cuda::RingBackwardMemory>(14);
static_assert(2 * (kForwardBytes + 1024) <= 228 * 1024);
static_assert(kForwardBytes <= cuda::kMostSharedBytes && kBackwardBytes <= cuda::kMostSharedBytes);

void ExpectSound(const AttentionCase& c, uint64_t seed) {
  SCOPED_TRACE(c.name);
  RingData data = MakeData<BFloat16, float>(c, seed);
  PlannedAhead ahead(data, -1);
  ExpectSoundPlan(ahead.Make(), data.shape);
}

TEST(AttentionPlanTest, EachRowOfBothStreamsIsInTheWorkOnce) {
  ExpectSound(XlnetCase(96, 400, 1, 64), 1);
  ExpectSound(XlnetCase(0, 1, 1, 64), 2);
  ExpectSound(BothFamiliesCase(2), 3);
  AttentionCase c = BidirectionalCase(150);
  c.shape.head_dim = 64;
  ExpectSound(c, 4);
  for (uint64_t seed = 0; seed < 40; ++seed) ExpectSound(RandomRingCase(seed), seed);
}

// Causal rows: the last tile sees all keys, the first only those of memory and its own.
TEST(AttentionPlanTest, TheLongestTilesComeFirst) {
  AttentionCase c = CausalCase(64, 512);
  c.shape.head_dim = 64;
  RingData data = MakeData<BFloat16, float>(c, 5);
  PlannedAhead ahead(data, -1);
  const cuda::RingPlan plan = ahead.Make();
  const RingWork work(plan, 0);
  ASSERT_EQ(work.NumTiles(), 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(work.At(i).first_row, 128 * (3 - i));
}

// Content tiles have twice the rows of query tiles in a step.
TEST(AttentionPlanTest, BothStreamsAreOrderedTogether) {
  RingData data = MakeData<BFloat16, float>(XlnetCase(128, 512, 1, 64), 6);
  PlannedAhead ahead(data, -1);
  const cuda::RingPlan plan = ahead.Make();
  for (int lane = 0; lane < data.shape.batch_size; ++lane) {
    const RingWork work(plan, lane);
    bool was_query = false;
    for (int i = 0; i < work.NumTiles(); ++i) {
      const bool is_query = work.At(i).stream == 1;
      EXPECT_TRUE(is_query || !was_query) << "lane " << lane << " place " << i;
      was_query = is_query;
    }
    EXPECT_TRUE(was_query);
  }
}

}  // namespace
}  // namespace anyorder::kernels::testing
