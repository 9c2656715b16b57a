// Attention as the backend calls it, where the ring kernels have rows: which streams of lanes they
// take, and that both families together give every row what the reference does, within the bounds
// of attention_bounds.h.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "kernels/arguments.h"
#include "tests/kernels/attention_bounds.h"
#include "tests/kernels/attention_scenarios.h"
#include "tests/kernels/cuda/attention/attention_ring_case.h"

namespace anyorder::kernels::testing {
namespace {

// Whatever the grouping of lanes and heads: all at once, or one by one as a small workspace has it.
void ExpectAgrees(const RingData& data, uint64_t seed) {
  ExpectAgreement(data,
                  [&](RingData* run) { RunEmulated(run, seed, seed % 2 == 0 ? kOneGroup : 1); });
}

// Streams of lanes that the ring has.
int NumRingForms(const RingData& data) {
  PlannedAhead ahead(data, -1);
  const cuda::RingPlan plan = ahead.Make();
  return static_cast<int>(
      std::count(plan.forms, plan.forms + 2 * data.shape.batch_size, cuda::kRingForm));
}

void ExpectAgrees(const AttentionCase& c, uint64_t seed, int ring_forms) {
  SCOPED_TRACE(c.name);
  const RingData data = MakeData<BFloat16, float>(c, seed);
  EXPECT_EQ(NumRingForms(data), ring_forms);
  ExpectAgrees(data, seed);
}

// The head size of the ring.
AttentionCase InHeadsOf64(AttentionCase c, double dropout_rate = 0.0) {
  c.shape.head_dim = 64;
  c.dropout_rate = dropout_rate;
  return c;
}

TEST(AttentionDispatchTest, RowsOfBothFamilies) {
  ExpectAgrees(InHeadsOf64(BothFamiliesCase(2), 0.1), 1, 2);
  // Content rows of both lanes are the general kernels'; query rows lie in one span, whatever their
  // order.
  ExpectAgrees(InHeadsOf64(ShuffledRowsCase()), 2, 2);
  ExpectAgrees(InHeadsOf64(ShuffledKeysCase()), 11, 0);
}

TEST(AttentionDispatchTest, XlnetWithAndWithoutMemory) {
  ExpectAgrees(XlnetCase(96, 130, 2, 64), 1, 4);
  ExpectAgrees(InHeadsOf64(XlnetCase(96, 130, 2, 64), 0.1), 2, 4);
  ExpectAgrees(XlnetCase(0, 101, 1, 64), 3, 4);
  ExpectAgrees(XlnetCase(37, 75, 1, 64), 3, 4);
}

TEST(AttentionDispatchTest, Objectives) {
  ExpectAgrees(CausalCase(70, 140), 4, 4);
  ExpectAgrees(InHeadsOf64(CausalCase(30, 90), 0.1), 5, 4);
  ExpectAgrees(InHeadsOf64(BidirectionalCase(150)), 5, 4);
  ExpectAgrees(InHeadsOf64(SequenceToSequenceCase(30, 70)), 6, 4);
  ExpectAgrees(InHeadsOf64(BandCase(), 0.1), 8, 4);
  ExpectAgrees(WithoutContentRows(XlnetCase(40, 90, 1, 64)), 7, 4);
  ExpectAgrees(BlindRowsCase(1), 9, 4);
}

// Tiles of each kind, one key/value head and several; odd seeds split the heads of one.
TEST(AttentionDispatchTest, SharedKeys) {
  ExpectAgrees(SharedBy(3, InHeadsOf64(BothFamiliesCase(1), 0.1)), 1, 2);
  ExpectAgrees(SharedBy(2, XlnetCase(96, 130, 1, 64)), 2, 4);
  ExpectAgrees(SharedBy(4, InHeadsOf64(CausalCase(30, 70), 0.1)), 4, 4);
  ExpectAgrees(SharedBy(7, InHeadsOf64(SequenceToSequenceCase(30, 70))), 5, 4);
  ExpectAgrees(SharedBy(2, InHeadsOf64(BidirectionalCase(150))), 6, 4);
}

// Where positions are not affine the general kernels have rows.
TEST(AttentionDispatchTest, GroupsAndPackedDocuments) {
  ExpectAgrees(MakeData<BFloat16, float>(InHeadsOf64(GroupCase()), 10), 10);
  ExpectAgrees(MakeData<BFloat16, float>(InHeadsOf64(PackedCase(), 0.1), 11), 11);
}

TEST(AttentionDispatchTest, WithoutRelativeTermAnyPositionsDo) {
  AttentionCase c = InHeadsOf64(ShuffledKeysCase());
  c.shape.num_tables = c.shape.num_distances = 0;
  ExpectAgrees(c, 6, 4);
}

// Gaps between visible key tiles: a document behind another's keys, with memory that both see.
TEST(AttentionDispatchTest, DocumentsThatSkipKeyTiles) {
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

// Their differences do not fit in 32 bits, and a band must stay exact.
TEST(AttentionDispatchTest, FarPositionsAreTheGeneralKernels) {
  AttentionCase c = InHeadsOf64(BidirectionalCase(70));
  c.keys[1].pos[5] = std::numeric_limits<int32_t>::max();
  c.content[1].pos[6] = std::numeric_limits<int32_t>::min();
  c.bands = {{10, 10, 1}, {std::numeric_limits<int32_t>::max(), 0, 1}};
  ExpectAgrees(c, 19, 2);
}

// Sorted targets and rows left over behind them, as the objective fills them: the tiles suffice.
TEST(AttentionDispatchTest, RowsLeftOverBehindSortedOnes) {
  AttentionCase c = XlnetCase(0, 512, 1, 64);
  for (Slots& rows : c.query) {
    for (int i = 0; i < 7; ++i) rows.Add(0, -5);
  }
  c.shape.query_rows += 7;
  EXPECT_EQ(NumRingForms(MakeData<BFloat16, float>(c, 20)), 4);
}

// The product's shape: several key tiles a row tile, whole and partial views.
TEST(AttentionDispatchTest, ARealShape) {
  ExpectAgrees(InHeadsOf64(XlnetCase(128, 256, 1, 64), 0.1), 17, 4);
}

TEST(AttentionDispatchTest, SizesAroundTileEdges) {
  for (const int32_t length : {1, 63, 64, 65, 128, 129}) {
    AttentionCase c = CausalCase(length % 3, length);
    c.shape.num_heads = 1;
    ExpectAgrees(c, static_cast<uint64_t>(length), 4);
  }
}

TEST(AttentionDispatchTest, WithoutAnyKeys) {
  const AttentionCase c = WithoutKeys(InHeadsOf64(BidirectionalCase(10)));
  ExpectAgrees(MakeData<BFloat16, float>(c, 9), 9);
}

// Values are the unit vectors, so that out is the probabilities: what is dropped is 0.
TEST(AttentionDispatchTest, KeepMasksAreTheContracts) {
  AttentionCase c = InHeadsOf64(XlnetCase(0, 64, 2, 64), 0.3);
  for (std::vector<Slots>* streams : {&c.content, &c.query}) {
    for (Slots& rows : *streams) rows.order.assign(rows.order.size(), 1000);
  }
  RingData data = MakeData<BFloat16, float>(c, 14);
  SetUnitValues(&data);
  RunEmulated(&data, 0);
  int64_t wrong = 0;
  for (size_t i = 0; i < data.out.size(); ++i) {
    const bool keeps =
        KeepAttention(data.dropout, static_cast<uint32_t>(data.row_ids[i / 128]),
                      static_cast<uint32_t>(i / 64 % 2), static_cast<uint32_t>(i % 64));
    wrong += (static_cast<float>(data.out[i]) != 0) == keeps ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0);
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
      for (size_t i = 20; i < 30; ++i) c.content[lane].order[i] = -5;
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
  for (uint64_t seed = 0; seed < 16; ++seed) {
    const AttentionCase c = RandomRingCase(seed);
    ExpectAgrees(c, seed, 2 * static_cast<int>(c.shape.batch_size));
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(AttentionDispatchTest, RandomArraysOfSharedKeys) {
  for (uint64_t seed = 300; seed < 304; ++seed) {
    const AttentionCase c = SharedBy(2 + static_cast<int64_t>(seed % 3), RandomRingCase(seed));
    RingData data = MakeData<BFloat16, float>(c, seed);
    EXPECT_EQ(NumRingForms(data), 2 * static_cast<int>(c.shape.batch_size));
    SpoilUnread(&data);
    ExpectAgrees(data, seed);
    if (::testing::Test::HasFailure()) return;
  }
}

std::string BitsOf(RingData& data, uint64_t schedule, const AttentionPlan* plan) {
  RunEmulated(&data, schedule, kOneGroup, plan);
  return data.ResultBytes();
}

TEST(AttentionDispatchTest, SameBitsInAnySchedule) {
  RingData data = MakeData<BFloat16, float>(InHeadsOf64(XlnetCase(96, 130, 1, 64), 0.1), 15);
  const std::string bits = BitsOf(data, 0, nullptr);
  for (const uint64_t schedule : {1, 2, 3, 4})
    EXPECT_TRUE(BitsOf(data, schedule, nullptr) == bits) << schedule;
}

// With other queries, keys, values and tables each time, as layers have.
TEST(AttentionDispatchTest, PlannedAheadForAllCalls) {
  const AttentionCase c = BothFamiliesCase(1);
  RingData data = MakeData<BFloat16, float>(c, 1);
  PlannedAhead ahead(data, -1);
  ahead.Make();
  for (uint64_t seed = 2; seed < 5; ++seed) {
    RingData other = MakeData<BFloat16, float>(c, seed);
    for (auto x : {&RingData::q, &RingData::k, &RingData::v, &RingData::relative})
      data.*x = other.*x;
    const std::string inside = BitsOf(data, 0, nullptr);
    EXPECT_TRUE(BitsOf(data, 0, &ahead.plan) == inside) << seed;
  }
}

// Zeros say that all rows are the general kernels', whose rounding is another: the calls make no
// plan of their own.
TEST(AttentionDispatchTest, CallsTakeThePlanTheyAreGiven) {
  RingData data = MakeData<BFloat16, float>(XlnetCase(20, 60, 1, 64), 6);
  PlannedAhead zeros(data, 0);
  const std::string inside = BitsOf(data, 0, nullptr);
  EXPECT_FALSE(BitsOf(data, 0, &zeros.plan) == inside);
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
