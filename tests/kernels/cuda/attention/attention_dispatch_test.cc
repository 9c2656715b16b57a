// Attention as the backend calls it, where the ring kernels have rows: both families together cover
// every row.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/block.h"
#include "tests/kernels/attention_agreement.h"
#include "tests/kernels/attention_scenarios.h"
#include "tests/kernels/cuda/attention/attention_ring_case.h"

namespace anyorder::kernels::testing {
namespace {

void ExpectAgrees(RingData data, uint64_t seed) {
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  const AttentionErrorAnalysis analysis(exact, kUnitOf<BFloat16>);
  std::vector<float> scratch(static_cast<size_t>(cuda::AttentionScratchElements(data.shape)),
                             std::numeric_limits<float>::quiet_NaN());
  data.Poison(0);
  cuda::emulation::SetSchedule({seed});
  cuda::AttentionForward(data.Forward(), {scratch.data(), static_cast<int64_t>(scratch.size())},
                         {});
  ExpectForwardWithin(data, exact, analysis.bounds());
  data.workspace.assign(
      static_cast<size_t>(cuda::AttentionBackwardWorkspaceBytes(data.shape, DType::kBFloat16)),
      0xff);
  cuda::AttentionBackward(data.Backward(), {});
  ExpectBackwardWithin(data, exact, analysis.bounds());
}

void ExpectAgrees(const AttentionCase& c, uint64_t seed) {
  SCOPED_TRACE(c.name);
  ExpectAgrees(MakeData<BFloat16, float>(c, seed), seed);
}

TEST(AttentionDispatchTest, RowsOfBothFamilies) {
  AttentionCase c = XlnetCase(20, 60, 2, 64);
  c.dropout_rate = 0.1;
  c.keys[1].pos[30] += 1;  // lane 1 is the general kernels'
  ExpectAgrees(c, 1);
  c = ShuffledRowsCase();  // so are the content rows of both lanes
  c.shape.head_dim = 64;
  ExpectAgrees(c, 2);
}

// Objectives' visibility at the head size of the ring; where positions are not affine the general
// kernels have it.
TEST(AttentionDispatchTest, Objectives) {
  uint64_t seed = 3;
  for (AttentionCase c : {XlnetCase(37, 75, 1, 64), CausalCase(30, 90), BidirectionalCase(70),
                          SequenceToSequenceCase(30, 70), GroupCase(), PackedCase()}) {
    c.shape.head_dim = 64;
    c.dropout_rate = seed % 2 == 0 ? 0.0 : 0.1;
    ExpectAgrees(c, seed++);
  }
}

TEST(AttentionDispatchTest, SizesAroundTileEdges) {
  for (const int32_t length : {1, 63, 64, 65, 128, 129}) {
    AttentionCase c = CausalCase(length % 3, length);
    c.shape.num_heads = 1;
    ExpectAgrees(c, static_cast<uint64_t>(length));
  }
}

TEST(AttentionDispatchTest, WithoutAnyKeys) {
  AttentionCase c = BidirectionalCase(10);
  c.shape.head_dim = 64;
  for (Slots& keys : c.keys)
    keys = Slots();
  c.shape.num_keys = 0;
  ExpectAgrees(c, 9);
}

// Pads in whole tiles of keys and among others, in lanes of the ring and (lane 1) of the general
// kernels; rows that see nothing among those that do.
TEST(AttentionDispatchTest, PaddingIsNotRead) {
  for (const bool is_general : {false, true}) {
    AttentionCase c = XlnetCase(70, 90, 1, 64);
    for (size_t lane = 0; lane < 2; ++lane) {
      for (size_t j = 0; j < c.keys[lane].doc.size(); ++j) {
        if (j < 64 || j % 7 == lane) c.keys[lane].doc[j] = kDocPad;
      }
      for (size_t i = 20; i < 30; ++i)
        c.content[lane].order[i] = -5;
      c.query[lane].order[1] = -5;
    }
    if (is_general) c.keys[1].pos[75] += 1;
    RingData data = MakeData<BFloat16, float>(c, 11);
    SpoilUnread(&data);
    ExpectAgrees(data, 11);
  }
  for (uint64_t seed = 200; seed < 204; ++seed) {
    RingData data = MakeData<BFloat16, float>(RandomRingCase(seed), seed);
    SpoilUnread(&data);
    ExpectAgrees(data, seed);
  }
}

TEST(AttentionDispatchTest, RandomArrays) {
  for (uint64_t seed = 100; seed < 106; ++seed) {
    ExpectAgrees(RandomRingCase(seed), seed);
    if (::testing::Test::HasFailure()) return;
  }
}

// A plan of `data`'s rows and keys.
struct PlannedAhead {
  std::vector<int32_t> memory;  // at a multiple of 16 bytes, as any allocation
  AttentionPlan plan;

  PlannedAhead(RingData& data, int32_t filler) {
    const AttentionInputs in = data.Forward().in;
    memory.assign(static_cast<size_t>(cuda::AttentionPlanBytes(in.shape, DType::kBFloat16)) / 4 + 1,
                  filler);
    plan = {.shape = in.shape,
            .dtype = DType::kBFloat16,
            .min_distance = in.min_distance,
            .rows = in.rows,
            .keys = in.keys,
            .is_for_backward = true,
            .memory = TensorView(memory.data(), DType::kUint8,
                                 Shape{static_cast<int64_t>(4 * memory.size())})};
  }
};

struct Results {
  std::vector<BFloat16> out, dq, dk, dv, drelative;
  bool operator==(const Results& other) const {
    const auto same = [](const std::vector<BFloat16>& a, const std::vector<BFloat16>& b) {
      return a.size() == b.size() && std::memcmp(a.data(), b.data(), 2 * a.size()) == 0;
    };
    return same(out, other.out) && same(dq, other.dq) && same(dk, other.dk) && same(dv, other.dv) &&
           same(drelative, other.drelative);
  }
};

Results ResultsOf(RingData& data, const AttentionPlan* plan) {
  std::vector<float> scratch(static_cast<size_t>(cuda::AttentionScratchElements(data.shape)),
                             std::numeric_limits<float>::quiet_NaN());
  data.Poison(0);
  AttentionForwardArgs forward = data.Forward();
  forward.in.plan = plan;
  cuda::AttentionForward(forward, {scratch.data(), static_cast<int64_t>(scratch.size())}, {});
  data.workspace.assign(
      static_cast<size_t>(cuda::AttentionBackwardWorkspaceBytes(data.shape, DType::kBFloat16)),
      0xff);
  AttentionBackwardArgs backward = data.Backward();
  backward.in.plan = plan;
  cuda::AttentionBackward(backward, {});
  return {data.out, data.dq, data.dk, data.dv, data.drelative};
}

// With other queries, keys, values and tables each time, as layers have; keys of lane 1 are in no
// order.
TEST(AttentionDispatchTest, PlannedAheadForAllCalls) {
  AttentionCase c = XlnetCase(20, 60, 1, 64);
  c.keys[1].pos[30] += 1;
  RingData data = MakeData<BFloat16, float>(c, 1);
  PlannedAhead ahead(data, -1);
  cuda::PlanAttention(ahead.plan, {});
  for (uint64_t seed = 2; seed < 5; ++seed) {
    RingData other = MakeData<BFloat16, float>(c, seed);
    for (auto x : {&RingData::q, &RingData::k, &RingData::v, &RingData::relative})
      data.*x = other.*x;
    const Results inside = ResultsOf(data, nullptr);
    EXPECT_TRUE(ResultsOf(data, &ahead.plan) == inside) << seed;
  }
}

// Zeros say that all rows are the general kernels', whose rounding is another: the calls make no
// plan of their own.
TEST(AttentionDispatchTest, CallsTakeThePlanTheyAreGiven) {
  RingData data = MakeData<BFloat16, float>(XlnetCase(20, 60, 1, 64), 6);
  PlannedAhead zeros(data, 0);
  const Results inside = ResultsOf(data, nullptr);
  EXPECT_NE(std::memcmp(ResultsOf(data, &zeros.plan).out.data(), inside.out.data(),
                        2 * inside.out.size()),
            0);
}

TEST(AttentionDispatchDeathTest, PlansOfOtherCallsAreRefused) {
  RingData data = MakeData<BFloat16, float>(XlnetCase(20, 60, 1, 64), 7);
  RingData longer = MakeData<BFloat16, float>(XlnetCase(20, 70, 1, 64), 7);
  const auto check = [](AttentionForwardArgs args, const PlannedAhead& ahead) {
    args.in.plan = &ahead.plan;
    CheckArguments(args);
  };
  const PlannedAhead own(data, 0);
  check(data.Forward(), own);
  EXPECT_DEATH(check(longer.Forward(), own), "plan of attention made for another shape");
  RingData same = MakeData<BFloat16, float>(XlnetCase(20, 60, 1, 64), 7);
  EXPECT_DEATH(check(same.Forward(), own), "made for other rows, keys or distances");
  AttentionForwardArgs shifted = data.Forward();
  ++shifted.in.min_distance;
  EXPECT_DEATH(check(shifted, own), "made for other rows, keys or distances");
  PlannedAhead for_forward(data, 0);
  for_forward.plan.is_for_backward = false;
  AttentionBackwardArgs backward = data.Backward();
  backward.in.plan = &for_forward.plan;
  EXPECT_DEATH(CheckArguments(backward, 0), "made for forward alone");
  for_forward.plan.memory = {};
  EXPECT_DEATH(cuda::PlanAttention(for_forward.plan, {}), "a plan of attention needs");
}

}  // namespace
}  // namespace anyorder::kernels::testing
