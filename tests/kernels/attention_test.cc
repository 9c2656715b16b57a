// The fused CPU attention against the reference in double, within bounds from error analysis
// (attention_bounds.h), for every instruction set that this machine has.

#include "kernels/cpu/attention/attention.h"

#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/attention_bounds.h"
#include "tests/kernels/attention_scenarios.h"

#include "gtest/gtest.h"

namespace anyorder::kernels::testing {
namespace {

std::vector<std::string> Isas() {
  std::vector<std::string> names;
  for (const char* name : {"avx512_bf16", "avx512", "avx2", "base"}) {
    if (cpu::AttentionIsaAvailable(name)) names.push_back(name);
  }
  return names;
}

template <typename T>
void RunCpu(AttentionData<T, float>* data, int num_threads) {
  data->Poison(cpu::CpuAttentionBackwardWorkspaceBytes(data->shape));
  cpu::CpuAttentionForward(data->Forward(), num_threads);
  cpu::CpuAttentionBackward(data->Backward(), num_threads);
}

template <typename T>
void ExpectAgrees(const AttentionCase& c, uint64_t seed) {
  AttentionData<T, float> data = MakeData<T, float>(c, seed);
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  const AttentionErrorAnalysis analysis(exact, DTypeOf<T>());
  const AttentionBounds& bounds = analysis.bounds();
  for (const std::string& isa : Isas()) {
    SCOPED_TRACE(c.name + ", " + std::string(Name(DTypeOf<T>())) + ", " + isa);
    cpu::ForceAttentionIsa(isa);
    RunCpu(&data, 1);
    ExpectResultsWithin(data, exact, bounds);
  }
  cpu::ForceAttentionIsa("");
}

void ExpectAgreesInBoth(const AttentionCase& c, uint64_t seed) {
  ExpectAgrees<float>(c, seed);
  ExpectAgrees<BFloat16>(c, seed);
}

// Both precisions, with and without dropout.
void ExpectAgreesEverywhere(AttentionCase c) {
  for (const double rate : {0.0, 0.1}) {
    c.dropout_rate = rate;
    ExpectAgrees<float>(c, 21);
    ExpectAgrees<BFloat16>(c, 22);
  }
}

class AttentionScenarioTest : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionScenarioTest, Agrees) { ExpectAgreesEverywhere(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, AttentionScenarioTest, ::testing::ValuesIn(AllScenarios(140)),
                         kScenarioName);

TEST(AttentionTest, MoreKeysThanOneChunkWithAndWithoutBiasByDistance) {
  AttentionCase c = XlnetCase(517, 150, 1, 64);
  c.dropout_rate = 0.1;
  ExpectAgreesInBoth(c, 23);
  ExpectAgreesInBoth(WithBias(c), 33);
}

TEST(AttentionTest, BiasByDistanceOverDistancesBeyondItsTable) {
  ExpectAgreesEverywhere(WithBias(CausalCase(9, 140), -200, 40));  // all beyond
  ExpectAgreesEverywhere(WithBias(BidirectionalCase(130), 0, 1));
}

TEST(AttentionTest, BiasByDistanceWithGroupsBandsAndDocuments) {
  ExpectAgreesEverywhere(WithBias(GroupCase(), -16, 33));
  ExpectAgreesEverywhere(WithBias(BandCase()));
  ExpectAgreesEverywhere(WithBias(PackedCase(), -40, 90));
}

TEST(AttentionTest, HeadSizesThatAreNotMultiplesOfSixteen) {
  for (const int64_t head_dim : {1, 24, 41, 72, 130}) {
    AttentionCase c = XlnetCase(20, 60, 2, head_dim);
    c.dropout_rate = 0.1;
    ExpectAgreesInBoth(c, 24);
  }
}

TEST(AttentionTest, SizesAroundTileEdges) {
  for (const int32_t length : {1, 5, 6, 7, 47, 48, 49, 63, 64, 65, 97})
    ExpectAgreesInBoth(CausalCase(length % 3, length), 25);
  for (const int32_t memory : {511, 512, 513}) ExpectAgreesInBoth(CausalCase(memory, 7), 26);
}

TEST(AttentionTest, WithoutAnyKeys) { ExpectAgrees<float>(WithoutKeys(BidirectionalCase(10)), 27); }

TEST(AttentionTest, PositionsAtTheEndsOfTheirType) {
  ExpectAgrees<float>(FarPositionsCase(), 28);
  ExpectAgrees<float>(WithBias(FarPositionsCase(), -3, 7), 28);
}

TEST(AttentionTest, RandomArrays) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    ExpectAgreesInBoth(RandomCase(seed), seed);
    if (seed < 20) ExpectAgreesInBoth(RandomSharedCase(100 + seed), 100 + seed);
    if (::testing::Test::HasFailure()) return;
  }
}

template <typename T>
void ExpectSameBitsForAnyThreads(const AttentionCase& c) {
  const auto bits = [&](int num_threads) {
    AttentionData<T, float> data = MakeData<T, float>(c, 31);
    RunCpu(&data, num_threads);
    return data.ResultBytes();
  };
  const std::string one = bits(1);
  EXPECT_TRUE(one == bits(2)) << c.name;
  EXPECT_TRUE(one == bits(3)) << c.name;
}

TEST(AttentionTest, BitsDoNotDependOnThreads) {
  AttentionCase c = XlnetCase(96, 130, 3, 64);
  c.dropout_rate = 0.1;
  ExpectSameBitsForAnyThreads<float>(c);
  ExpectSameBitsForAnyThreads<BFloat16>(c);
  ExpectSameBitsForAnyThreads<float>(ShuffledKeysCase());
  ExpectSameBitsForAnyThreads<float>(WithBias(c));
  ExpectSameBitsForAnyThreads<BFloat16>(WithBias(ShuffledKeysCase()));
  ExpectSameBitsForAnyThreads<float>(SharedBy(3, WithBias(ShuffledKeysCase())));
  c.shape.num_heads = 1;
  ExpectSameBitsForAnyThreads<float>(SharedBy(4, c));
  ExpectSameBitsForAnyThreads<BFloat16>(SharedBy(4, c));
}

}  // namespace
}  // namespace anyorder::kernels::testing
