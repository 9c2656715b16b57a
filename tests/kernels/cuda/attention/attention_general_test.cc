// The GPU's attention, emulated, against the reference in double: every objective's visibility,
// both precisions, both passes.

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "kernels/cuda/attention/attention_scratch.h"
#include "tests/kernels/attention_bounds.h"
#include "tests/kernels/attention_scenarios.h"
#include "tests/kernels/cuda/attention/attention_ring_case.h"

namespace anyorder::kernels::testing {
namespace {

template <typename T>
void ExpectAgrees(AttentionData<T, float> data, uint64_t schedule) {
  ExpectAgreement(std::move(data),
                  [&](AttentionData<T, float>* run) { RunEmulated(run, schedule); });
}

template <typename T>
void ExpectAgrees(const AttentionCase& c, uint64_t seed) {
  SCOPED_TRACE(c.name + ", " + std::string(Name(DTypeOf<T>())));
  ExpectAgrees(MakeData<T, float>(c, seed), seed);
}

void ExpectAgreesInBoth(const AttentionCase& c, uint64_t seed) {
  ExpectAgrees<float>(c, seed);
  ExpectAgrees<BFloat16>(c, seed);
}

// fp32 without dropout, bf16 with it: the two do not meet in the code.
void ExpectAgreesEverywhere(AttentionCase c) {
  c.dropout_rate = 0.0;
  ExpectAgrees<float>(c, 21);
  c.dropout_rate = 0.1;
  ExpectAgrees<BFloat16>(c, 22);
}

class GeneralAttentionScenarioTest : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(GeneralAttentionScenarioTest, Agrees) { ExpectAgreesEverywhere(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, GeneralAttentionScenarioTest, ::testing::ValuesIn(AllScenarios(100)),
                         kScenarioName);

TEST(GeneralAttentionTest, ShuffledKeysOfMatrixHeads) {
  AttentionCase c = ShuffledKeysCase();
  c.shape.num_heads = 1;
  c.shape.head_dim = 64;
  ExpectAgrees<BFloat16>(c, 23);
}

TEST(GeneralAttentionTest, BiasByDistance) {
  ExpectAgrees<float>(WithBias(CausalCase(9, 70), -200, 40), 24);  // all beyond the table
  ExpectAgrees<float>(WithBias(BidirectionalCase(70), 0, 1), 24);
  ExpectAgrees<float>(WithBias(BidirectionalCase(70), 0, 2), 24);
}

TEST(GeneralAttentionTest, HeadSizes) {
  for (const int64_t head_dim : {1, 24, 41, 72, 130, 256}) {
    AttentionCase c = XlnetCase(20, 40, 1, head_dim);
    c.dropout_rate = 0.1;
    ExpectAgreesInBoth(c, 24);
  }
}

TEST(GeneralAttentionTest, SizesAroundTileEdges) {
  for (const int32_t length : {1, 31, 32, 33, 63, 64, 65, 97})
    ExpectAgreesInBoth(CausalCase(length % 3, length), 25);
}

template <typename T>
void ExpectUnreadIsNotRead(AttentionCase c, int64_t head_dim) {
  c.shape.head_dim = head_dim;
  AttentionData<T, float> data = MakeData<T, float>(c, 26);
  SpoilUnread(&data);
  ExpectAgrees(data, 26);
}

TEST(GeneralAttentionTest, PaddingIsNotRead) {
  ExpectUnreadIsNotRead<float>(PackedCase(), 24);
  ExpectUnreadIsNotRead<BFloat16>(PackedCase(), 24);
  ExpectUnreadIsNotRead<BFloat16>(PackedCase(), 64);
}

TEST(GeneralAttentionTest, WithoutAnyKeys) {
  ExpectAgrees<float>(WithoutKeys(BidirectionalCase(10)), 27);
}

TEST(GeneralAttentionTest, PositionsAtTheEndsOfTheirType) {
  ExpectAgrees<float>(FarPositionsCase(), 28);
  ExpectAgrees<float>(WithBias(FarPositionsCase(), -3, 7), 28);
}

TEST(GeneralAttentionTest, RandomArrays) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    ExpectAgreesInBoth(RandomCase(seed), seed);
    if (seed < 4) ExpectAgreesInBoth(RandomSharedCase(100 + seed), 100 + seed);
    if (::testing::Test::HasFailure()) return;
  }
}

// More lanes than the relative gradient's slots, two tables, two heads, rows and keys beyond a
// tile.
AttentionCase SixLanes(int64_t head_dim) {
  AttentionCase c = XlnetCase(30, 70, 2, head_dim);
  for (int lane = 2; lane < 6; ++lane) {
    c.AddLane(c.content[lane % 2], c.query[lane % 2], c.keys[lane % 2]);
    c.table_of_lane.push_back(lane % 3 == 0 ? 1 : 0);
  }
  c.shape.batch_size = 6;
  c.dropout_rate = 0.1;
  c.AddDistanceBias(-20, 40);
  return c;
}

template <typename T>
std::string BitsOf(const AttentionCase& c, uint64_t schedule, int64_t most_bytes) {
  AttentionData<T, float> data = MakeData<T, float>(c, 31);
  RunEmulated(&data, schedule, most_bytes);
  return data.ResultBytes();
}

template <typename T>
void ExpectSameBits(const AttentionCase& c) {
  const std::string bits = BitsOf<T>(c, 0, kOneGroup);
  for (const uint64_t schedule : {5, 6, 7, 8})
    EXPECT_TRUE(BitsOf<T>(c, schedule, kOneGroup) == bits) << schedule;
  // A lane's and head's scores: 70 + 11 or 12 rows of 128 slots, twice.
  const int64_t lane = 2 * cuda::GroupSizes::ScoreBytes(c.shape, DTypeOf<T>());
  for (const int64_t most_bytes : {int64_t{1}, lane / 2, lane, 4 * lane})
    EXPECT_TRUE(BitsOf<T>(c, 0, most_bytes) == bits) << most_bytes;
}

// However lanes and heads are grouped.
TEST(GeneralAttentionTest, SameBitsInAnySchedule) { ExpectSameBits<float>(SixLanes(24)); }

TEST(GeneralAttentionTest, SameBitsOfMatrixHeadsInAnySchedule) {
  ExpectSameBits<BFloat16>(SixLanes(64));
}

// However many of the heads that share keys are in a group: one, two of three, all of one key/value
// head, all of some.
template <typename T>
void ExpectSameBitsOfSharedKeys(int64_t head_dim) {
  AttentionCase c = SharedBy(3, XlnetCase(30, 50, 2, head_dim));
  c.dropout_rate = 0.1;
  const std::string bits = BitsOf<T>(c, 0, kOneGroup);
  EXPECT_TRUE(BitsOf<T>(c, 5, kOneGroup) == bits);
  const int64_t head = cuda::GroupSizes::ScoreBytes(c.shape, DTypeOf<T>());
  for (const int64_t heads : {1, 2, 3, 5, 6})
    EXPECT_TRUE(BitsOf<T>(c, 6, heads * head) == bits) << heads;
}

TEST(GeneralAttentionTest, SameBitsOfSharedKeysHoweverHeadsAreGrouped) {
  ExpectSameBitsOfSharedKeys<float>(24);
  ExpectSameBitsOfSharedKeys<BFloat16>(64);
}

TEST(GeneralAttentionTest, SixLanesAgree) {
  ExpectAgrees<BFloat16>(SixLanes(64), 32);
  ExpectAgrees<float>(SixLanes(24), 33);
}

TEST(AttentionGroupTest, SizesFollowTheLimit) {
  AttentionShape shape = {.batch_size = 5, .content_rows = 10, .query_rows = 3};
  shape.num_keys = 65;  // two tiles
  shape.num_heads = 4;
  shape.head_dim = 8;
  const int64_t head = cuda::GroupSizes::ScoreBytes(shape, DType::kFloat32);
  EXPECT_EQ(head, 13 * (2 * 128 * 4 + 8));
  const auto sizes = [&](int64_t most_bytes) {
    const cuda::GroupSizes group = cuda::GroupSizes::Of(shape, DType::kFloat32, most_bytes);
    return std::pair(group.lanes, group.heads);
  };
  EXPECT_EQ(sizes(1), std::pair(1, 1));
  EXPECT_EQ(sizes(3 * head), std::pair(1, 3));
  EXPECT_EQ(sizes(4 * head), std::pair(1, 4));
  EXPECT_EQ(sizes(12 * head - 1), std::pair(2, 4));
  EXPECT_EQ(sizes(1000 * head), std::pair(5, 4));
}

// Groups end where key/value heads do, or have some of one key/value head's heads.
TEST(AttentionGroupTest, HeadsThatShareKeysStayTogetherIfTheyFit) {
  AttentionShape shape = {.batch_size = 5,
                          .content_rows = 10,
                          .num_keys = 65,
                          .num_heads = 6,
                          .num_kv_heads = 2,
                          .head_dim = 8};
  const int64_t head = cuda::GroupSizes::ScoreBytes(shape, DType::kFloat32);
  const auto ends = [&](int64_t most_bytes) {
    const cuda::GroupSizes group = cuda::GroupSizes::Of(shape, DType::kFloat32, most_bytes);
    std::vector<int> found;
    for (int first = 0; first < 6; first = found.back())
      found.push_back(group.EndHead(shape, first));
    return found;
  };
  EXPECT_EQ(ends(head), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(ends(2 * head), (std::vector<int>{2, 3, 5, 6}));
  EXPECT_EQ(ends(3 * head), (std::vector<int>{3, 6}));
  EXPECT_EQ(ends(5 * head), (std::vector<int>{3, 6}));
  EXPECT_EQ(ends(6 * head), (std::vector<int>{6}));
}

// Sums that one group hands to the next need memory only where groups split a key/value head.
TEST(AttentionGroupTest, SharedKeysNeedMemoryOnlyWhereGroupsSplitThem) {
  AttentionShape shape = {
      .batch_size = 3, .content_rows = 10, .num_keys = 65, .num_heads = 6, .head_dim = 16};
  const int64_t head = cuda::GroupSizes::ScoreBytes(shape, DType::kFloat32);
  const auto bytes = [&](int64_t kv_heads, int64_t heads) {
    shape.num_kv_heads = kv_heads;
    return cuda::AttentionBackwardBytesWithin(shape, DType::kFloat32, heads * head);
  };
  EXPECT_EQ(bytes(0, 2), bytes(6, 2));
  EXPECT_EQ(bytes(3, 2), bytes(6, 2));
  EXPECT_EQ(bytes(2, 2), bytes(6, 2) + 2 * 3 * 65 * 16 * 4);
}

}  // namespace
}  // namespace anyorder::kernels::testing
