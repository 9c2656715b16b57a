// The ring kernels of attention, emulated, against the reference in double within the bounds of
// attention_bounds.h.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cuda/attention/attention_ring_backward.cuh"
#include "kernels/cuda/attention/attention_ring_forward.cuh"
#include "kernels/cuda/platform/launch.h"
#include "tests/kernels/attention_agreement.h"
#include "tests/kernels/attention_scenarios.h"
#include "tests/kernels/cuda/attention/attention_ring_case.h"

namespace anyorder::kernels::testing {
namespace {

// The worst element of rows that the ring has: how many times its bound it is off; infinite for
// NaN.
template <typename T>
double WorstRatio(const RingRun& run, const std::vector<T>& actual,
                  const std::vector<double>& expected, const std::vector<double>& bound,
                  int64_t width) {
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!run.HasRing(static_cast<int64_t>(i) / width)) continue;
    const double a = ToDouble(actual[i]);
    if (a == expected[i]) continue;  // also -inf
    const double ratio = std::abs(a - expected[i]) / bound[i];
    worst = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : std::max(worst, ratio);
  }
  return worst;
}

// Streams of lanes that the ring has.
int NumRingForms(const RingRun& run) {
  int count = 0;
  for (int i = 0; i < 2 * run.problem().batch_size; ++i)
    count += run.plan().forms[i] == cuda::kRingForm ? 1 : 0;
  return count;
}

double WorstOf(const std::vector<double>& actual, const std::vector<double>& expected,
               const std::vector<double>& bound) {
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    const double ratio = std::abs(actual[i] - expected[i]) / bound[i];
    worst = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : std::max(worst, ratio);
  }
  return worst;
}

// In groups of one head and one lane each, as a small workspace would have it.
void ExpectBackwardAgrees(RingRun* run, RingData* data, const AttentionData<double, double>& exact,
                          const AttentionBounds& bounds) {
  RingGradients sums(*data);
  for (int lane = 0; lane < run->problem().batch_size; ++lane) {
    for (int head = 0; head < run->problem().num_heads; ++head) {
      const cuda::AttentionBackwardParams<BFloat16> params = run->Backward({lane, 1, head, 1});
      cuda::AttentionRingBackward(params, run->plan(), {});
      run->AddGradients(params.scores, &sums);
    }
  }
  EXPECT_LE(WorstRatio(*run, data->dq, exact.dq, bounds.dq, data->shape.model_dim()), 1.0) << "dq";
  EXPECT_LE(WorstOf(sums.dk, exact.dk, bounds.dk), 1.0) << "dk";
  EXPECT_LE(WorstOf(sums.dv, exact.dv, bounds.dv), 1.0) << "dv";
  EXPECT_LE(WorstOf(sums.drelative, exact.drelative, bounds.drelative), 1.0) << "drelative";
  const auto width = static_cast<int64_t>(sums.dsegment.size());
  if (width == 0) return;
  const auto other = [width](const std::vector<double>& x) {
    return std::vector<double>(x.begin() + width, x.end());
  };
  EXPECT_LE(
      WorstOf(sums.dsegment, other(exact.dsegment_embedding), other(bounds.dsegment_embedding)),
      1.0)
      << "dsegment_embedding";
}

void ExpectAgrees(const AttentionCase& c, uint64_t seed, int ring_forms) {
  SCOPED_TRACE(c.name);
  RingData data = MakeData<BFloat16, float>(c, seed);
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  const AttentionErrorAnalysis analysis(exact, kUnitOf<BFloat16>);
  data.Poison(0);
  RingRun run(&data);
  EXPECT_EQ(NumRingForms(run), ring_forms);
  cuda::AttentionRingForward(run.Forward(), run.plan(), {});
  const AttentionShape& s = data.shape;
  EXPECT_LE(WorstRatio(run, data.lse, exact.lse, analysis.bounds().lse, s.num_heads), 1.0) << "lse";
  EXPECT_LE(WorstRatio(run, data.out, exact.out, analysis.bounds().out, s.model_dim()), 1.0)
      << "out";
  if (ring_forms == 2 * s.batch_size) ExpectBackwardAgrees(&run, &data, exact, analysis.bounds());
}

TEST(AttentionRingTest, XlnetWithMemoryAndBothDirections) {
  AttentionCase c = XlnetCase(96, 130, 2, 64);
  ExpectAgrees(c, 1, 4);
  c.dropout_rate = 0.1;
  ExpectAgrees(c, 2, 4);
}

TEST(AttentionRingTest, XlnetWithoutMemory) {
  ExpectAgrees(XlnetCase(0, 101, 1, 64), 3, 4);
}

TEST(AttentionRingTest, CausalWithMemoryAndPastDistancesOnly) {
  ExpectAgrees(CausalCase(70, 140), 4, 4);
}

TEST(AttentionRingTest, WithoutRelativeTermAnyPositionsDo) {
  AttentionCase c = BidirectionalCase(150);
  c.shape.head_dim = 64;
  ExpectAgrees(c, 5, 4);
  c = ShuffledKeysCase();
  c.shape.head_dim = 64;
  c.shape.num_tables = c.shape.num_distances = 0;
  ExpectAgrees(c, 6, 4);
}

TEST(AttentionRingTest, QueryRowsOnlyAndMoreThanATile) {
  AttentionCase c = XlnetCase(40, 90, 1, 64);
  c.query = c.content;
  for (Slots& rows : c.content)
    rows = Slots();
  c.shape.content_rows = 0;
  c.shape.query_rows = 90;
  ExpectAgrees(c, 7, 4);
}

TEST(AttentionRingTest, BandsWithDilationAndGlobals) {
  AttentionCase c = BandCase();
  c.shape.head_dim = 64;
  c.dropout_rate = 0.1;
  ExpectAgrees(c, 8, 4);
}

TEST(AttentionRingTest, RowsThatSeeNothing) {
  ExpectAgrees(BlindRowsCase(1), 9, 4);
}

// Gaps between visible key tiles: a document behind another's keys, with memory that both see.
TEST(AttentionRingTest, DocumentsThatSkipKeyTiles) {
  AttentionCase c = OneStreamCase("documents", 70, 520, [](int32_t i) { return i; });
  for (size_t lane = 0; lane < 2; ++lane) {
    for (size_t i = 0; i < 520; ++i) {
      c.content[lane].doc[i] = c.keys[lane].doc[70 + i] = i < 500 ? 1 : 2;
      if (i >= 490 && i % 3 == 0)
        c.query[lane].Add(static_cast<int32_t>(i), static_cast<int32_t>(i), -1, 2);
    }
  }
  c.Finish(1, 64, 1);
  ExpectAgrees(c, 10, 4);
}

TEST(AttentionRingTest, OtherPositionsAreTheGeneralKernels) {
  AttentionCase c = ShuffledKeysCase();
  c.shape.head_dim = 64;
  ExpectAgrees(c, 11, 0);
  c = ShuffledRowsCase();
  c.shape.head_dim = 64;
  ExpectAgrees(c, 12, 2);  // query rows lie in one span, whatever their order
  c = XlnetCase(20, 60, 1, 64);
  c.keys[1].pos[30] += 1;
  ExpectAgrees(c, 13, 2);
}

// Their differences do not fit in 32 bits, and a band must stay exact.
TEST(AttentionRingTest, FarPositionsAreTheGeneralKernels) {
  AttentionCase c = BidirectionalCase(70);
  c.shape.head_dim = 64;
  c.keys[1].pos[5] = std::numeric_limits<int32_t>::max();
  c.content[1].pos[6] = std::numeric_limits<int32_t>::min();
  c.bands = {{10, 10, 1}, {std::numeric_limits<int32_t>::max(), 0, 1}};
  ExpectAgrees(c, 19, 2);
}

// Sorted targets and rows left over behind them, as the objective fills them: the tiles suffice.
TEST(AttentionRingTest, RowsLeftOverBehindSortedOnes) {
  AttentionCase c = XlnetCase(0, 512, 1, 64);
  for (Slots& rows : c.query) {
    for (int i = 0; i < 7; ++i)
      rows.Add(0, -5);
  }
  c.shape.query_rows += 7;
  RingData data = MakeData<BFloat16, float>(c, 20);
  RingRun run(&data);
  EXPECT_EQ(NumRingForms(run), 4);
}

TEST(AttentionRingTest, RandomArrays) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    const AttentionCase c = RandomRingCase(seed);
    ExpectAgrees(c, seed, 2 * static_cast<int>(c.shape.batch_size));
    if (::testing::Test::HasFailure()) return;
  }
}

// Values are the unit vectors, so that out is the probabilities: what is dropped is 0.
TEST(AttentionRingTest, KeepMasksAreTheContracts) {
  AttentionCase c = XlnetCase(0, 64, 2, 64);
  c.dropout_rate = 0.3;
  for (std::vector<Slots>* streams : {&c.content, &c.query}) {
    for (Slots& rows : *streams)
      rows.order.assign(rows.order.size(), 1000);
  }
  RingData data = MakeData<BFloat16, float>(c, 14);
  for (size_t i = 0; i < data.v.size(); ++i)
    data.v[i] = BFloat16(i / 128 % 64 == i % 64 ? 1.0f : 0.0f);
  data.Poison(0);
  RingRun run(&data);
  cuda::AttentionRingForward(run.Forward(), run.plan(), {});
  int64_t wrong = 0;
  for (size_t i = 0; i < data.out.size(); ++i) {
    const bool keeps =
        KeepAttention(data.dropout, static_cast<uint32_t>(data.row_ids[i / 128]),
                      static_cast<uint32_t>(i / 64 % 2), static_cast<uint32_t>(i % 64));
    wrong += (static_cast<float>(data.out[i]) != 0) == keeps ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
}

AttentionCase SmallCase() {
  AttentionCase c = XlnetCase(96, 130, 1, 64);
  c.dropout_rate = 0.1;
  return c;
}

TEST(AttentionRingTest, SameBitsInAnySchedule) {
  RingData data = MakeData<BFloat16, float>(SmallCase(), 15);
  std::vector<BFloat16> out;
  std::vector<BFloat16> dq;
  for (const uint64_t seed : {0, 1, 2}) {
    data.Poison(0);
    RingRun run(&data);
    cuda::emulation::SetSchedule({seed});
    cuda::AttentionRingForward(run.Forward(), run.plan(), {});
    cuda::AttentionRingBackward(
        run.Backward({0, run.problem().batch_size, 0, run.problem().num_heads}), run.plan(), {});
    if (out.empty()) {
      out = data.out;
      dq = data.dq;
    }
    EXPECT_EQ(std::memcmp(out.data(), data.out.data(), 2 * out.size()), 0) << seed;
    EXPECT_EQ(std::memcmp(dq.data(), data.dq.data(), 2 * dq.size()), 0) << seed;
  }
  cuda::emulation::SetSchedule({});
}

// Whether results are out of bounds under some of a few schedules.
template <cuda::RingFault kFault>
bool FindsInForward() {
  RingData data = MakeData<BFloat16, float>(SmallCase(), 16);
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  const AttentionErrorAnalysis analysis(exact, kUnitOf<BFloat16>);
  bool found = false;
  for (uint64_t seed = 0; seed < 4 && !found; ++seed) {
    data.Poison(0);
    RingRun run(&data);
    cuda::emulation::SetSchedule({seed});
    cuda::LaunchRingForward<true, kFault>({run.Forward(), run.plan()}, {});
    cuda::emulation::SetSchedule({});
    found = WorstRatio(run, data.out, exact.out, analysis.bounds().out, 64) > 1.0;
  }
  return found;
}

TEST(AttentionRingTest, PlantedMistakesInForwardAreFound) {
  EXPECT_FALSE(FindsInForward<cuda::RingFault::kNone>());
  EXPECT_TRUE(FindsInForward<cuda::RingFault::kNoTileBarrier>());
  EXPECT_TRUE(FindsInForward<cuda::RingFault::kNoBarrier>());
  EXPECT_TRUE(FindsInForward<cuda::RingFault::kNoWait>());
  EXPECT_TRUE(FindsInForward<cuda::RingFault::kShiftedRelative>());
}

template <cuda::RingFault kFault>
bool FindsInBackward() {
  RingData data = MakeData<BFloat16, float>(SmallCase(), 18);
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  const AttentionErrorAnalysis analysis(exact, kUnitOf<BFloat16>);
  data.Poison(0);
  RingRun run(&data);
  cuda::AttentionRingForward(run.Forward(), run.plan(), {});
  const cuda::AttentionGroup all{0, run.problem().batch_size, 0, run.problem().num_heads};
  bool found = false;
  for (uint64_t seed = 0; seed < 8 && !found; ++seed) {
    cuda::emulation::SetSchedule({seed});
    cuda::LaunchRingBackward<true, kFault>({run.Backward(all), run.plan()}, {});
    cuda::emulation::SetSchedule({});
    found = WorstRatio(run, data.dq, exact.dq, analysis.bounds().dq, 64) > 1.0;
  }
  return found;
}

TEST(AttentionRingTest, PlantedMistakesInBackwardAreFound) {
  EXPECT_FALSE(FindsInBackward<cuda::RingFault::kNone>());
  EXPECT_TRUE(FindsInBackward<cuda::RingFault::kNoTileBarrier>());
  EXPECT_TRUE(FindsInBackward<cuda::RingFault::kNoBarrier>());
  EXPECT_TRUE(FindsInBackward<cuda::RingFault::kNoBandBarrier>());
  EXPECT_TRUE(FindsInBackward<cuda::RingFault::kNoGradientBarrier>());
  EXPECT_TRUE(FindsInBackward<cuda::RingFault::kNoWait>());
  EXPECT_TRUE(FindsInBackward<cuda::RingFault::kShiftedRelative>());
}

// The product's shape: several key tiles a row tile, whole and partial views.
TEST(AttentionRingTest, ARealShape) {
  AttentionCase c = XlnetCase(128, 256, 1, 64);
  c.dropout_rate = 0.1;
  ExpectAgrees(c, 17, 4);
}

}  // namespace
}  // namespace anyorder::kernels::testing
