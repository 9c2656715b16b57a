// Mistakes planted in the general attention and in the gradients of keys and tables, whose kernels are put together again here from their
// parts, with one barrier or wait left out: the emulation must show each of them.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cuda/attention_distances.cuh"
#include "kernels/cuda/attention_general_forward.cuh"
#include "kernels/cuda/attention_keys.cuh"
#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_scratch.h"
#include "kernels/cuda/launch.h"
#include "tests/kernels/attention_scenarios.h"
#include "tests/kernels/cuda/attention_ring_case.h"

namespace anyorder::kernels::testing {
namespace {

using cuda::SyncBlock;

constexpr int kGroups = 2;  // heads of 64 columns
constexpr uint64_t kSchedules = 40;

enum class Planted { kNothing, kNoBarrierBeforeValues, kNoBarrier, kNoWait };

template <Planted kPlanted>
void ForwardHalf(const cuda::GeneralTile<BFloat16, kGroups>& work,
                 int first,
                 int half,
                 uint32_t visible,
                 cuda::RunningSoftmax<kGroups>& softmax) {
  work.LoadKeys(work.in.k, first, half);
  const cuda::TileBand band = work.LoadBand(half);
  SyncBlock();
  cuda::PairValues p = work.Scores(band, half, visible);
  softmax.Add(visible, p);
  cuda::StorePairs(work.memory.scores, p);
  if constexpr (kPlanted != Planted::kNoBarrierBeforeValues) SyncBlock();
  work.LoadKeys(work.in.v, first, half);
  SyncBlock();
  cuda::AddWeighted<kGroups>(work.memory.scores, work.memory.keys, softmax.values);
}

// Of AttentionGeneralForwardKernel, without dropout: sums of weighted values, and no statistics.
template <Planted kPlanted>
void ForwardKernel(cuda::AttentionForwardParams<BFloat16> p) {
  const cuda::RowTile tile = cuda::RowTile::OfBlock(p.in, 0, 0);
  const cuda::GeneralTile<BFloat16, kGroups> work(p.in, p.prepared, tile, false);
  work.LoadRows();
  cuda::RunningSoftmax<kGroups> softmax;
  for (int first = 0; first < p.in.num_keys; first += cuda::kScoreTile) {
    work.LoadKeySlots(first);
    SyncBlock();
    for (int half = 0; half < 2; ++half) {
      const uint32_t visible = work.VisiblePairs(half);
      if (cuda::SyncBlockOr(visible != 0))
        ForwardHalf<kPlanted>(work, first, half, visible, softmax);
    }
  }
  cuda::StoreTile<kGroups>(p.out + tile.row * p.in.model_dim() + work.head_offset(),
                           softmax.values,
                           p.in,
                           tile.count,
                           work.memory.keys);
}

// Of MatrixKeyGradientKernel.
template <Planted kPlanted>
void KeyKernel(cuda::KeyGradientParams<BFloat16> p) {
  const cuda::KeyBlock<BFloat16> block(p, cuda::kScoreTile);
  const cuda::MatrixKeyBlock work{block};
  const int steps = cuda::RowSteps(p.in.content_rows, p.in.query_rows);
  cuda::TransposedSums sums;
  work.Load(0, 0);
  cuda::CommitCopies();
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) work.Load(step + 1, (step + 1) % 2);
    cuda::CommitCopies();
    if constexpr (kPlanted == Planted::kNoWait)
      cuda::WaitForCopies<2>();
    else
      cuda::WaitForCopies<1>();
    SyncBlock();
    cuda::AddTransposed(cuda::MatrixKeyBlock::Weights(step % 2),
                        cuda::MatrixKeyBlock::Rows(step % 2),
                        16 * (cuda::Thread() / cuda::kWarp),
                        sums);
    if constexpr (kPlanted != Planted::kNoBarrier) SyncBlock();
  }
  work.Store(sums);
}

// Of MatrixDistanceGradientKernel.
template <Planted kPlanted>
void DistanceKernel(cuda::DistanceGradientParams<BFloat16> p) {
  cuda::DistanceWalk<BFloat16> walk(p, cuda::kProductColumns);
  cuda::MatrixDistanceBlock work{walk};
  cuda::TransposedSums sums;
  if (!walk.IsAtEnd()) work.Load(0);
  for (int stage = 0; !walk.IsAtEnd(); stage ^= 1) {
    work.StoreGathered();
    if constexpr (kPlanted != Planted::kNoWait) cuda::WaitForCopies<0>();
    SyncBlock();
    walk.Next();
    if (!walk.IsAtEnd()) work.Load(stage ^ 1);
    cuda::AddTransposed(cuda::MatrixDistanceBlock::Weights(),
                        cuda::MatrixDistanceBlock::Rows(stage),
                        16 * (cuda::Thread() / cuda::kWarp),
                        sums);
    if constexpr (kPlanted != Planted::kNoBarrier) SyncBlock();
  }
  work.ForEach(sums, [](float& kept, float value) { kept = value; });
}

// One lane and head with 150 rows, and scratch with numbers of its own in place of the first pass's.
class PlantedAttentionTest : public ::testing::Test {
 protected:
  static constexpr int kRows = 150;

  PlantedAttentionTest()
      : data_(MakeData<BFloat16, float>(OneLane(), 3)), run_(&data_), in_(run_.problem()) {
    const int padded = cuda::PaddedKeys(in_.num_keys);
    RandomStream random(4, RandomPurpose::kInit, 0, 0);
    for (int64_t i = 0; i < int64_t{kRows} * padded; ++i)
      gradients_.push_back(BFloat16(static_cast<float>(random.Normal())));
    for (int i = 0; i < kRows; ++i) {
      hulls_.push_back(0);
      hulls_.push_back(padded / cuda::kScoreTile);
    }
    scores_ = {
        {0, 1, 0, 1}, kRows, padded, gradients_.data(), gradients_.data(), hulls_.data(), {}};
    order_ = {lanes_.data(), {positions_.data(), positions_.data()}, {}, ranges_.data()};
    cuda::emulation::SetSchedule({});
    cuda::LaunchKeyOrder(in_, order_, {});
  }

  static AttentionCase OneLane() {
    AttentionCase c = OneStreamCase("one lane", 0, kRows, [](int32_t) { return 0; });
    c.content.resize(1);
    c.query.resize(1);
    c.keys.resize(1);
    c.Finish(1, 64, 1);
    return c;
  }

  // Bits of what `launch` writes, beginning as NaN.
  template <typename Element, typename Launch>
  std::vector<uint8_t> Bits(uint64_t schedule, int64_t count, Launch&& launch) {
    std::vector<Element> out(static_cast<size_t>(count),
                             Element(std::numeric_limits<float>::quiet_NaN()));
    cuda::emulation::SetSchedule({schedule});
    launch(out.data());
    std::vector<uint8_t> bytes(out.size() * sizeof(Element));
    std::memcpy(bytes.data(), out.data(), bytes.size());
    return bytes;
  }

  template <Planted kPlanted>
  std::vector<uint8_t> Forward(uint64_t schedule) {
    return Bits<BFloat16>(schedule, kRows * in_.model_dim(), [&](BFloat16* out) {
      cuda::Launch(ForwardKernel<kPlanted>,
                   {.blocks_x = cuda::RowTilesOfLane(kRows, 0),
                    .threads = cuda::kTileThreads,
                    .shared_bytes = cuda::TileMemory<kGroups>::Bytes(false, true)},
                   cuda::AttentionForwardParams<BFloat16>{in_, run_.prepared(), out, nullptr},
                   {});
    });
  }
  template <Planted kPlanted>
  std::vector<uint8_t> Keys(uint64_t schedule) {
    const int64_t size = in_.num_keys * in_.model_dim();
    return Bits<BFloat16>(schedule, 2 * size, [&](BFloat16* out) {
      cuda::Launch(KeyKernel<kPlanted>,
                   {.blocks_x = cuda::KeyTiles(in_),
                    .blocks_z = 2,
                    .threads = cuda::kProductThreads,
                    .shared_bytes = cuda::MatrixKeyBlock::kBytes},
                   cuda::KeyGradientParams<BFloat16>{
                       in_, scores_, data_.dout.data(), out, out + size, nullptr},
                   {});
    });
  }
  template <Planted kPlanted>
  std::vector<uint8_t> Distances(uint64_t schedule) {
    const int64_t sums = in_.num_distances * in_.model_dim();
    return Bits<float>(schedule, sums + in_.num_distances, [&](float* out) {
      cuda::Launch(
          DistanceKernel<kPlanted>,
          {.blocks_x = cuda::CeilDivide(in_.num_distances, cuda::kProductColumns),
           .threads = cuda::kProductThreads,
           .shared_bytes = cuda::MatrixDistanceBlock::kBytes},
          cuda::DistanceGradientParams<BFloat16>{in_, scores_, order_, 1, false, out, out + sums},
          {});
    });
  }

  // In how many schedules `bits` gives something else than in order and without a mistake.
  template <typename Function>
  static int Differences(const std::vector<uint8_t>& right, Function&& bits) {
    int differences = 0;
    for (uint64_t schedule = 0; schedule < kSchedules; ++schedule)
      differences += bits(schedule) == right ? 0 : 1;
    return differences;
  }

  RingData data_;
  RingRun run_;
  cuda::AttentionProblem<BFloat16> in_;
  std::vector<BFloat16> gradients_;
  std::vector<int32_t> hulls_;
  std::vector<cuda::KeyLane> lanes_{1};
  std::vector<int32_t> positions_ = std::vector<int32_t>(kRows);
  std::vector<cuda::PositionRange> ranges_{3};
  cuda::AttentionScores<BFloat16> scores_;
  cuda::KeyOrder order_;
};

TEST_F(PlantedAttentionTest, ForwardWithoutABarrier) {
  const std::vector<uint8_t> right = Forward<Planted::kNothing>(0);
  EXPECT_EQ(Differences(right, [&](uint64_t s) { return Forward<Planted::kNothing>(s); }), 0);
  EXPECT_GT(
      Differences(right, [&](uint64_t s) { return Forward<Planted::kNoBarrierBeforeValues>(s); }),
      0);
}

TEST_F(PlantedAttentionTest, KeyGradientsWithoutABarrierOrWait) {
  const std::vector<uint8_t> right = Keys<Planted::kNothing>(0);
  EXPECT_EQ(Differences(right, [&](uint64_t s) { return Keys<Planted::kNothing>(s); }), 0);
  EXPECT_GT(Differences(right, [&](uint64_t s) { return Keys<Planted::kNoBarrier>(s); }), 0);
  EXPECT_GT(Differences(right, [&](uint64_t s) { return Keys<Planted::kNoWait>(s); }), 0);
}

TEST_F(PlantedAttentionTest, DistanceGradientsWithoutABarrierOrWait) {
  const std::vector<uint8_t> right = Distances<Planted::kNothing>(0);
  EXPECT_EQ(Differences(right, [&](uint64_t s) { return Distances<Planted::kNothing>(s); }), 0);
  EXPECT_GT(Differences(right, [&](uint64_t s) { return Distances<Planted::kNoBarrier>(s); }), 0);
  EXPECT_GT(Differences(right, [&](uint64_t s) { return Distances<Planted::kNoWait>(s); }), 0);
}

}  // namespace
}  // namespace anyorder::kernels::testing
