// Attention on a device against the reference in double, within bounds from error analysis: every
// objective's visibility, both precisions, with and without dropout, as the device's backend
// chooses its kernels. The tests of SmallAttentionTest are for compute-sanitizer and for the
// emulation.

#include <gtest/gtest.h>

#include <string>

#include "tests/gpu/device.h"
#include "tests/kernels/attention_rounding.h"
#include "tests/kernels/attention_scenarios.h"
#include "tests/testing/staged_backend.h"

namespace anyorder::kernels::testing {
namespace {

class AttentionTest : public ::testing::Test {
 protected:
  template <typename T>
  void ExpectAgrees(const AttentionCase& c, uint64_t seed) {
    SCOPED_TRACE(c.name + ", " + std::string(Name(DTypeOf<T>())));
    ExpectCloseAgreement(MakeData<T, float>(c, seed),
                         [this](auto* data) { RunOn(*device_, data); });
  }

  void ExpectAgreesEverywhere(AttentionCase c) {
    for (const double rate : {0.0, 0.1}) {
      c.dropout_rate = rate;
      ExpectAgrees<float>(c, 21);
      ExpectAgrees<BFloat16>(c, 22);
    }
  }

  // All results of a problem, as bytes.
  template <typename T>
  std::string Bits(const AttentionCase& c) {
    AttentionData<T, float> data = MakeData<T, float>(c, 31);
    RunOn(*device_, &data);
    return data.ResultBytes();
  }

  std::unique_ptr<Backend> device_ =
      anyorder::testing::MakeStagedBackend(anyorder::testing::OpenDevice());
};

using SmallAttentionTest = AttentionTest;

TEST_F(SmallAttentionTest, XlnetInHeadsForTensorCores) {
  AttentionCase c = XlnetCase(20, 70, 1, 64);
  c.dropout_rate = 0.1;
  ExpectAgrees<BFloat16>(c, 41);
}

TEST_F(SmallAttentionTest, XlnetInOtherHeads) {
  AttentionCase c = XlnetCase(9, 40, 2, 24);
  c.dropout_rate = 0.1;
  ExpectAgrees<float>(c, 42);
  ExpectAgrees<BFloat16>(c, 43);
}

TEST_F(SmallAttentionTest, BiasByDistance) {
  ExpectAgrees<BFloat16>(WithBias(CausalCase(9, 40), -4, 20), 44);
}

TEST_F(AttentionTest, EveryScenario) {
  for (const AttentionCase& c : AllScenarios(150)) ExpectAgreesEverywhere(c);
  ExpectAgreesEverywhere(WithBias(GroupCase(), -16, 33));
}

TEST_F(AttentionTest, MoreKeysThanOneChunk) {
  AttentionCase c = XlnetCase(517, 150, 1, 64);
  c.dropout_rate = 0.1;
  ExpectAgrees<float>(c, 23);
  ExpectAgrees<BFloat16>(c, 23);
}

TEST_F(AttentionTest, MoreThan64TargetsOfABlock) {
  AttentionCase c = XlnetCase(64, 200, 1, 64);
  for (size_t lane = 0; lane < c.query.size(); ++lane) c.query[lane] = c.content[lane];
  c.Finish(1, 64, 2);
  c.table_of_lane.resize(c.keys.size());
  ExpectAgrees<BFloat16>(c, 24);
}

TEST_F(AttentionTest, HeadSizes) {
  for (const int64_t head_dim : {1, 24, 41, 72, 130}) {
    AttentionCase c = XlnetCase(20, 60, 2, head_dim);
    c.dropout_rate = 0.1;
    ExpectAgrees<float>(c, 24);
    ExpectAgrees<BFloat16>(c, 24);
  }
}

TEST_F(AttentionTest, SizesAroundTileEdges) {
  for (const int32_t length : {1, 5, 47, 63, 64, 65, 127, 128, 129}) {
    ExpectAgrees<float>(CausalCase(length % 3, length), 25);
    ExpectAgrees<BFloat16>(CausalCase(length % 3, length), 25);
  }
}

TEST_F(AttentionTest, RandomArrays) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const AttentionCase c = RandomCase(seed);
    SCOPED_TRACE(c.name);
    const auto run = [this](auto* data) { RunOn(*device_, data); };
    ExpectAgreement(MakeData<float, float>(c, seed), run);
    ExpectAgreement(MakeData<BFloat16, float>(c, seed), run);
    if (HasFailure()) return;
  }
}

TEST_F(AttentionTest, TheSameBitsThreeTimes) {
  AttentionCase c = XlnetCase(384, 512, 4, 64);
  c.dropout_rate = 0.1;
  const std::string bf16 = Bits<BFloat16>(c);
  const std::string fp32 = Bits<float>(ShuffledKeysCase());
  for (int repetition = 0; repetition < 2; ++repetition) {
    EXPECT_TRUE(Bits<BFloat16>(c) == bf16);
    EXPECT_TRUE(Bits<float>(ShuffledKeysCase()) == fp32);
  }
}

}  // namespace
}  // namespace anyorder::kernels::testing
