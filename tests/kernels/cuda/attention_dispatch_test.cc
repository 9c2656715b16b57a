// Attention as the backend calls it, where the ring kernels have rows: both families together cover every row.

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/cuda/emulation/block.h"
#include "kernels/cuda/operations.h"
#include "tests/kernels/attention_agreement.h"
#include "tests/kernels/attention_scenarios.h"
#include "tests/kernels/cuda/attention_ring_case.h"

namespace anyorder::kernels::testing {
namespace {

void ExpectAgrees(RingData data, uint64_t seed) {
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  const AttentionErrorAnalysis analysis(exact, kUnitOf<BFloat16>);
  std::vector<float> scratch(static_cast<size_t>(cuda::AttentionScratchElements(data.shape)),
                             std::numeric_limits<float>::quiet_NaN());
  data.Poison(0);
  cuda::emulation::SetSchedule({seed});
  cuda::AttentionForward(
      data.Forward(), {scratch.data(), static_cast<int64_t>(scratch.size())}, {});
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

// Objectives' visibility at the head size of the ring; where positions are not affine the general kernels have it.
TEST(AttentionDispatchTest, Objectives) {
  uint64_t seed = 3;
  for (AttentionCase c : {XlnetCase(37, 75, 1, 64),
                          CausalCase(30, 90),
                          BidirectionalCase(70),
                          SequenceToSequenceCase(30, 70),
                          GroupCase(),
                          PackedCase()}) {
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

// Pads in whole tiles of keys and among others, in lanes of the ring and (lane 1) of the general kernels; rows that see nothing among
// those that do.
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

}  // namespace
}  // namespace anyorder::kernels::testing
