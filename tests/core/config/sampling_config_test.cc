#include "core/config/sampling_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace anyorder {
namespace {

using ::testing::HasSubstr;

std::string Fault(const SamplingConfig& config, SampleKind kind = SampleKind::kPairs) {
  return config.Validate(kind).Joined();
}

TEST(SamplingConfigTest, EveryFaultIsNamedAtOnce) {
  SamplingConfig config = {.reuse_len = 200, .perm_size = 100, .mask_beta = 7, .max_span = 300};
  const std::string fault = Fault(config);
  EXPECT_THAT(fault, HasSubstr("reuse_len=200 must be seq_len / 2 = 256"));
  EXPECT_THAT(fault, HasSubstr("perm_size=100 must divide"));
  EXPECT_THAT(fault, HasSubstr("mask_beta = 7"));
  EXPECT_THAT(fault, HasSubstr("max_span=300"));
  EXPECT_TRUE(absl::IsInvalidArgument(config.Validate(SampleKind::kPairs).ToStatus()));
}

TEST(SamplingConfigTest, SequenceNeedsRoomForTwoSegments) {
  SamplingConfig config = {.num_predict = 1, .perm_size = 1, .max_span = 1};
  for (const auto& [seq_len, valid] : {std::pair{8, false}, {9, false}, {10, true}, {11, false}}) {
    config.seq_len = seq_len;
    config.reuse_len = seq_len / 2;
    EXPECT_EQ(config.Validate(SampleKind::kPairs).empty(), valid) << seq_len;
  }
}

TEST(SamplingConfigTest, TargetsMustFitIntoBothHalves) {
  SamplingConfig config;
  EXPECT_EQ(Fault(config), "");
  EXPECT_TRUE(config.Validate(SampleKind::kContiguous).empty());
  for (const bool functional_targets : {true, false}) {
    config.functional_targets = functional_targets;
    // The second half, 256 slots, gets floor(P / 2); three of its slots may be forbidden.
    const int64_t most = functional_targets ? 512 : 2 * 253 + 1;
    config.num_predict = most;
    EXPECT_EQ(Fault(config), "");
    config.num_predict = most + 1;
    EXPECT_THAT(Fault(config), HasSubstr("num_predict="));
  }
  config.num_predict = 0;
  EXPECT_THAT(Fault(config), HasSubstr("num_predict is 0"));
}

TEST(SamplingConfigTest, MaskedPairsCountTargetsAsBertDoes) {
  SamplingConfig config = {.num_predict = 1000};
  // Python's int(round(0.15 * n)): 1.5 to 2 and 4.5 to 4.
  for (const auto& [seq_len, targets] :
       {std::pair{512, 77}, {128, 19}, {10, 2}, {30, 4}, {64, 10}, {2, 1}}) {
    config.seq_len = seq_len;
    EXPECT_EQ(config.NumTargets(SampleKind::kMaskedPairs), targets) << seq_len;
  }
  config.seq_len = 512;
  config.num_predict = 76;
  EXPECT_EQ(config.NumTargets(SampleKind::kMaskedPairs), 76);
  EXPECT_EQ(config.NumTargets(SampleKind::kPairs), 76);
  EXPECT_EQ(config.NumTargets(SampleKind::kContiguous), 512);
}

TEST(SamplingConfigTest, MaskedPairsRefuseSharesThatAreNone) {
  SamplingConfig config = {.num_predict = 512};
  EXPECT_EQ(Fault(config, SampleKind::kMaskedPairs), "");
  for (const double fraction : {0.0, -0.1, 1.1, std::nan("")}) {
    config.mask_fraction = fraction;
    EXPECT_THAT(Fault(config, SampleKind::kMaskedPairs), HasSubstr("mask_fraction is "));
  }
  // Three slots of the second half are SEP and CLS; spans split the targets between the halves,
  // single tokens do not.
  config.mask_fraction = 1;
  EXPECT_THAT(Fault(config, SampleKind::kMaskedPairs), HasSubstr("512 targets, but"));
  config.num_predict = 509;
  EXPECT_THAT(Fault(config, SampleKind::kMaskedPairs), HasSubstr("at most 507"));
  config.spans = SpanKind::kSingle;
  EXPECT_EQ(Fault(config, SampleKind::kMaskedPairs), "");
  config.mask_token_prob = 0.95;
  EXPECT_THAT(Fault(config, SampleKind::kMaskedPairs), HasSubstr("at most 1 together"));
  config.mask_token_prob = -0.1;
  EXPECT_THAT(Fault(config, SampleKind::kMaskedPairs), HasSubstr("mask_token_prob is -0.1"));
  config.num_predict = 0;
  EXPECT_THAT(Fault(config, SampleKind::kMaskedPairs), HasSubstr("num_predict is 0"));
}

TEST(SamplingConfigTest, ContiguousTextHasRoomForAnyNumberOfTargets) {
  SamplingConfig config = {.seq_len = 77, .num_predict = 1000};
  EXPECT_TRUE(config.Validate(SampleKind::kContiguous).empty());
  config.seq_len = 0;
  EXPECT_THAT(Fault(config, SampleKind::kContiguous), HasSubstr("seq_len is 0"));
}

}  // namespace
}  // namespace anyorder
