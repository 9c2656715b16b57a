// Mistakes planted in the general attention and in the kernels behind the first backward pass: a
// barrier or wait left out, or the edge of a range. The emulation must show each of them, and
// without any all schedules must have the same bits.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cuda/attention/attention_distances.cuh"
#include "kernels/cuda/attention/attention_general_backward.cuh"
#include "kernels/cuda/attention/attention_general_forward.cuh"
#include "kernels/cuda/attention/attention_keys.cuh"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_parameters.cuh"
#include "kernels/cuda/attention/attention_scratch.h"
#include "kernels/cuda/platform/launch.h"
#include "tests/kernels/attention_scenarios.h"
#include "tests/kernels/cuda/attention/attention_ring_case.h"

namespace anyorder::kernels::testing {
namespace {

using cuda::AttentionFault;
using cuda::CeilDivide;
using cuda::ParameterFault;

constexpr int kGroups = 2;  // heads of 64 columns
constexpr int kColumns = 64;
constexpr int kRows = 150;
constexpr uint64_t kSchedules = 20;

using Bytes = std::vector<uint8_t>;

template <typename... Vectors>
Bytes BytesOf(const Vectors&... vectors) {
  Bytes bytes;
  const auto append = [&](const auto& x) {
    const size_t size = x.size() * sizeof(x[0]);
    bytes.resize(bytes.size() + size);
    std::memcpy(bytes.data() + bytes.size() - size, x.data(), size);
  };
  (append(vectors), ...);
  return bytes;
}

template <typename Element>
std::vector<Element> Poisoned(int64_t count) {
  return std::vector<Element>(static_cast<size_t>(count),
                              Element(std::numeric_limits<float>::quiet_NaN()));
}

template <typename Element>
std::vector<Element> Random(int64_t count, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kInit, 0, 0);
  std::vector<Element> x;
  for (int64_t i = 0; i < count; ++i)
    x.push_back(Element(static_cast<float>(random.Normal())));
  return x;
}

// Whether `bits`, a function of the schedule, gives something else than `right` in one of them.
template <typename Function>
bool Shows(const Bytes& right, Function&& bits) {
  for (uint64_t schedule = 0; schedule < kSchedules; ++schedule) {
    if (bits(schedule) != right) return true;
  }
  return false;
}

// One lane and head with 150 rows and keys, and scratch with numbers of its own in place of the
// first pass's.
class PlantedAttentionTest : public ::testing::Test {
 protected:
  PlantedAttentionTest()
      : data_(MakeData<BFloat16, float>(OneLane(), 3)),
        run_(&data_),
        in_(run_.problem()),
        prepared_(run_.prepared()),
        padded_(cuda::PaddedKeys(in_.num_keys)),
        gradients_(Random<BFloat16>(int64_t{kRows} * padded_, 4)),
        stats_(Random<float>(kRows, 5)) {
    prepared_.forms = nullptr;
    for (int i = 0; i < kRows; ++i) {
      hulls_.push_back(0);
      hulls_.push_back(padded_ / cuda::kScoreTile);
    }
    scores_ = {{0, 1, 0, 1},      kRows,         padded_,      gradients_.data(),
               gradients_.data(), hulls_.data(), stats_.data()};
    order_ = {lanes_.data(), {positions_.data(), positions_.data()}, {}, ranges_.data()};
    cuda::emulation::SetSchedule({});
    cuda::LaunchKeyOrder(in_, order_, {});
  }

  static AttentionCase OneLane() {
    AttentionCase c = OneStreamCase("one lane", 0, kRows, [](int32_t) { return 0; });
    c.content.resize(1);
    c.query.resize(1);
    c.keys.resize(1);
    c.Finish(1, kColumns, 1);
    return c;
  }

  template <typename Params>
  static void Launch(void (*kernel)(Params), const cuda::LaunchShape& shape, const Params& params,
                     uint64_t schedule) {
    cuda::emulation::SetSchedule({schedule});
    cuda::Launch(kernel, shape, params, {});
  }

  // Blocks that share the tiles of rows.
  template <AttentionFault kFault>
  Bytes Forward(uint64_t schedule, int64_t blocks = 5) {
    std::vector<BFloat16> out = Poisoned<BFloat16>(kRows * kColumns);
    std::vector<float> lse = Poisoned<float>(kRows);
    Launch(cuda::AttentionGeneralForwardKernel<BFloat16, kGroups, kFault>,
           {.blocks_x = blocks,
            .threads = cuda::kTileThreads,
            .shared_bytes = cuda::TileMemory<kGroups>::Bytes(false, true)},
           {in_, prepared_, out.data(), lse.data()}, schedule);
    return BytesOf(out, lse);
  }
  template <AttentionFault kFault>
  Bytes Backward(uint64_t schedule, int64_t blocks = 5) {
    std::vector<BFloat16> probabilities = Poisoned<BFloat16>(kRows * padded_);
    std::vector<BFloat16> gradients = probabilities;
    std::vector<BFloat16> dq = Poisoned<BFloat16>(kRows * kColumns);
    std::vector<int32_t> hulls(2 * kRows, -1);
    std::vector<float> other_segment = Poisoned<float>(kRows);
    cuda::AttentionBackwardParams<BFloat16> params{
        in_, prepared_, scores_, stats_.data(), stats_.data(), data_.dout.data(), dq.data()};
    params.scores.probabilities = probabilities.data();
    params.scores.gradients = gradients.data();
    params.scores.hulls = hulls.data();
    params.scores.other_segment = other_segment.data();
    Launch(cuda::AttentionGeneralBackwardKernel<BFloat16, kGroups, kFault>,
           {.blocks_x = blocks,
            .threads = cuda::kTileThreads,
            .shared_bytes = cuda::TileMemory<kGroups>::Bytes(true, true)},
           params, schedule);
    return BytesOf(probabilities, gradients, dq, hulls, other_segment);
  }

  template <AttentionFault kFault>
  Bytes Keys(uint64_t schedule, bool is_matrix) {
    std::vector<BFloat16> dk = Poisoned<BFloat16>(kRows * kColumns);
    std::vector<BFloat16> dv = dk;
    std::vector<float> sums = Poisoned<float>(5 * kColumns);
    const cuda::KeyGradientParams<BFloat16> params{in_,       scores_,   data_.dout.data(),
                                                   dk.data(), dv.data(), sums.data()};
    if (is_matrix)
      Launch(cuda::MatrixKeyGradientKernel<kFault>,
             {.blocks_x = CeilDivide(kRows, cuda::kScoreTile),
              .blocks_z = 2,
              .threads = cuda::kProductThreads,
              .shared_bytes = cuda::MatrixKeyBlock::kBytes},
             params, schedule);
    else
      Launch(cuda::GeneralKeyGradientKernel<BFloat16, kGroups, kFault>,
             {.blocks_x = CeilDivide(kRows, cuda::kTileKeys),
              .blocks_z = 2,
              .threads = cuda::kTileThreads,
              .shared_bytes = cuda::KeyGradientMemory<kGroups>::kBytes},
             params, schedule);
    return BytesOf(dk, dv, sums);
  }
  template <AttentionFault kFault>
  Bytes Distances(uint64_t schedule, bool is_matrix) {
    std::vector<float> sums = Poisoned<float>(int64_t{in_.num_distances} * kColumns);
    std::vector<float> weights = Poisoned<float>(in_.num_distances);
    const cuda::DistanceGradientParams<BFloat16> params{in_,   scores_,     order_,        1,
                                                        false, sums.data(), weights.data()};
    if (is_matrix)
      Launch(cuda::MatrixDistanceGradientKernel<kFault>,
             {.blocks_x = CeilDivide(in_.num_distances, cuda::kProductColumns),
              .threads = cuda::kProductThreads,
              .shared_bytes = cuda::MatrixDistanceBlock::kBytes},
             params, schedule);
    else
      Launch(cuda::GeneralDistanceGradientKernel<BFloat16, kGroups, kFault>,
             {.blocks_x = CeilDivide(in_.num_distances, cuda::kTileKeys),
              .threads = cuda::kTileThreads,
              .shared_bytes = cuda::DistanceMemory<kGroups>::kBytes},
             params, schedule);
    return BytesOf(sums, weights);
  }

  template <ParameterFault kFault>
  Bytes SumOfRows(uint64_t schedule) {
    const std::vector<float> rows = Random<float>(kRows * kColumns, 6);
    std::vector<float> parts = Poisoned<float>(3 * kColumns);
    Launch(cuda::SumRowsKernel<kFault>, {.blocks_y = 3, .threads = cuda::kColumnThreads},
           {rows.data(), kRows, kColumns, cuda::kSumChunk, parts.data()}, schedule);
    return BytesOf(parts);
  }
  template <ParameterFault kFault>
  Bytes Relative(uint64_t schedule) {
    const std::vector<float> sums = Random<float>(int64_t{in_.num_distances} * kColumns, 7);
    const std::vector<float> weights = Random<float>(in_.num_distances, 8);
    const int64_t parts = CeilDivide(in_.num_distances, cuda::kTableChunk);
    std::vector<BFloat16> drelative = Poisoned<BFloat16>(in_.num_distances * kColumns);
    std::vector<float> position_sums = Poisoned<float>(parts * kColumns);
    Launch(cuda::RelativeGradientKernel<BFloat16, kFault>,
           {.blocks_y = static_cast<int>(parts), .threads = cuda::kColumnThreads},
           {in_, 1, sums.data(), weights.data(), drelative.data(), position_sums.data()}, schedule);
    return BytesOf(drelative, position_sums);
  }
  template <ParameterFault kFault>
  Bytes Segments(uint64_t schedule) {
    std::vector<float> parts = Poisoned<float>(cuda::SegmentPartElements(kColumns));
    Launch(cuda::SegmentPartKernel<BFloat16, kFault>,
           {.blocks_y = cuda::kSegmentParts,
            .threads = cuda::kSegmentThreads,
            .shared_bytes = cuda::kSegmentBytes},
           {in_, stats_.data(), parts.data(), nullptr, nullptr}, schedule);
    return BytesOf(parts);
  }
  // Forty distances: the first and the last, and those between.
  template <ParameterFault kFault>
  Bytes Bias(uint64_t schedule) {
    std::vector<float> sums = Poisoned<float>(40);
    cuda::BiasGradientParams<BFloat16> params{in_, scores_, order_, sums.data()};
    params.in.num_bias_distances = 40;
    params.in.min_bias_distance = -10;
    Launch(cuda::BiasLaneKernel<BFloat16, kFault>,
           {.blocks_x = 3,
            .threads = cuda::kBiasThreads,
            .shared_bytes = cuda::kBiasThreads * static_cast<int64_t>(sizeof(float))},
           params, schedule);
    return BytesOf(sums);
  }

  RingData data_;
  RingRun run_;
  cuda::AttentionProblem<BFloat16> in_;
  cuda::AttentionPrepared prepared_;
  int padded_;
  std::vector<BFloat16> gradients_;
  std::vector<float> stats_;
  std::vector<int32_t> hulls_;
  std::vector<cuda::KeyLane> lanes_{1};
  std::vector<int32_t> positions_ = std::vector<int32_t>(kRows);
  std::vector<cuda::PositionRange> ranges_{3};
  cuda::AttentionScores<BFloat16> scores_;
  cuda::KeyOrder order_;
};

TEST_F(PlantedAttentionTest, Forward) {
  const Bytes right = Forward<AttentionFault::kNone>(0);
  EXPECT_FALSE(Shows(right, [&](uint64_t s) { return Forward<AttentionFault::kNone>(s); }));
  EXPECT_TRUE(Shows(right, [&](uint64_t s) { return Forward<AttentionFault::kNoBarrier>(s); }));
  EXPECT_TRUE(Shows(right, [&](uint64_t s) { return Forward<AttentionFault::kLostEdge>(s); }));
}

TEST_F(PlantedAttentionTest, Backward) {
  const Bytes right = Backward<AttentionFault::kNone>(0);
  EXPECT_FALSE(Shows(right, [&](uint64_t s) { return Backward<AttentionFault::kNone>(s); }));
  EXPECT_TRUE(Shows(right, [&](uint64_t s) { return Backward<AttentionFault::kNoBarrier>(s); }));
  EXPECT_TRUE(Shows(right, [&](uint64_t s) { return Backward<AttentionFault::kLostEdge>(s); }));
}

TEST_F(PlantedAttentionTest, BlocksWithSeveralTilesOfRows) {
  const Bytes forward = Forward<AttentionFault::kNone>(0);
  const Bytes backward = Backward<AttentionFault::kNone>(0);
  for (const int64_t blocks : {1, 2, 4}) {
    for (uint64_t schedule = 0; schedule < 6; ++schedule) {
      EXPECT_TRUE(Forward<AttentionFault::kNone>(schedule, blocks) == forward) << blocks;
      EXPECT_TRUE(Backward<AttentionFault::kNone>(schedule, blocks) == backward) << blocks;
    }
  }
}

TEST_F(PlantedAttentionTest, KeyGradients) {
  for (const bool is_matrix : {false, true}) {
    const Bytes right = Keys<AttentionFault::kNone>(0, is_matrix);
    const auto shows = [&]<AttentionFault kFault>() {
      return Shows(right, [&](uint64_t s) { return Keys<kFault>(s, is_matrix); });
    };
    EXPECT_FALSE(shows.operator()<AttentionFault::kNone>()) << is_matrix;
    EXPECT_TRUE(shows.operator()<AttentionFault::kNoBarrier>()) << is_matrix;
    EXPECT_TRUE(shows.operator()<AttentionFault::kLostEdge>()) << is_matrix;
    // Only tensor cores are fed by copies in the background.
    EXPECT_EQ(shows.operator()<AttentionFault::kNoWait>(), is_matrix);
  }
}

TEST_F(PlantedAttentionTest, DistanceGradients) {
  for (const bool is_matrix : {false, true}) {
    const Bytes right = Distances<AttentionFault::kNone>(0, is_matrix);
    const auto shows = [&]<AttentionFault kFault>() {
      return Shows(right, [&](uint64_t s) { return Distances<kFault>(s, is_matrix); });
    };
    EXPECT_FALSE(shows.operator()<AttentionFault::kNone>()) << is_matrix;
    EXPECT_TRUE(shows.operator()<AttentionFault::kNoBarrier>()) << is_matrix;
    EXPECT_TRUE(shows.operator()<AttentionFault::kLostEdge>()) << is_matrix;
    EXPECT_EQ(shows.operator()<AttentionFault::kNoWait>(), is_matrix);
  }
}

TEST_F(PlantedAttentionTest, ParametersWithoutABarrier) {
  constexpr ParameterFault kNone = ParameterFault::kNone;
  constexpr ParameterFault kFault = ParameterFault::kNoBarrier;
  const Bytes segments = Segments<kNone>(0);
  EXPECT_FALSE(Shows(segments, [&](uint64_t s) { return Segments<kNone>(s); }));
  EXPECT_TRUE(Shows(segments, [&](uint64_t s) { return Segments<kFault>(s); }));
  const Bytes bias = Bias<kNone>(0);
  EXPECT_FALSE(Shows(bias, [&](uint64_t s) { return Bias<kNone>(s); }));
  EXPECT_TRUE(Shows(bias, [&](uint64_t s) { return Bias<kFault>(s); }));
}

TEST_F(PlantedAttentionTest, ParametersWithoutALastRow) {
  constexpr ParameterFault kNone = ParameterFault::kNone;
  constexpr ParameterFault kFault = ParameterFault::kLostRow;
  EXPECT_NE(SumOfRows<kNone>(0), SumOfRows<kFault>(0));
  EXPECT_NE(Relative<kNone>(0), Relative<kFault>(0));
  EXPECT_NE(Segments<kNone>(0), Segments<kFault>(0));
  EXPECT_NE(Bias<kNone>(0), Bias<kFault>(0));
  EXPECT_EQ(SumOfRows<kNone>(0), SumOfRows<kNone>(1));
  EXPECT_EQ(Relative<kNone>(0), Relative<kNone>(1));
}

}  // namespace
}  // namespace anyorder::kernels::testing
