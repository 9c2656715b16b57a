#include "core/model/text_sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace anyorder {
namespace {

using ::testing::HasSubstr;

std::string Fault(const SamplingConfig& config, SampleKind kind = SampleKind::kPairs) {
  return std::string(config.Validate(kind).message());
}

TEST(SamplingConfigTest, PublishedSettingIsValid) {
  EXPECT_TRUE(SamplingConfig().Validate(SampleKind::kPairs).ok());
  EXPECT_TRUE(SamplingConfig().Validate(SampleKind::kContiguous).ok());
}

TEST(SamplingConfigTest, EveryFaultIsNamedAtOnce) {
  SamplingConfig config;
  config.reuse_len = 200;
  config.perm_size = 100;
  config.mask_beta = 7;
  config.max_span = 0;
  const std::string fault = Fault(config);
  EXPECT_THAT(fault, HasSubstr("reuse_len=200 must be seq_len / 2 = 256"));
  EXPECT_THAT(fault, HasSubstr("perm_size=100 must divide"));
  EXPECT_THAT(fault, HasSubstr("mask_beta=7"));
  EXPECT_THAT(fault, HasSubstr("max_span=0"));
  EXPECT_EQ(config.Validate(SampleKind::kPairs).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SamplingConfigTest, SequenceNeedsRoomForTwoSegments) {
  SamplingConfig config;
  config.num_predict = 1;
  config.perm_size = 1;
  config.max_span = 1;
  for (const auto& [seq_len, valid] : {std::pair{8, false}, {9, false}, {10, true}, {11, false}}) {
    config.seq_len = seq_len;
    config.reuse_len = seq_len / 2;
    EXPECT_EQ(config.Validate(SampleKind::kPairs).ok(), valid) << seq_len;
  }
}

TEST(SamplingConfigTest, TargetsMustFitIntoBothHalves) {
  SamplingConfig config;
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
  EXPECT_THAT(Fault(config), HasSubstr("num_predict=0"));
}

TEST(SamplingConfigTest, ContiguousTextIgnoresWhatOnlyPairsUse) {
  SamplingConfig config;
  config.seq_len = 77;
  config.num_predict = -1;
  EXPECT_TRUE(config.Validate(SampleKind::kContiguous).ok());
  config.seq_len = 0;
  EXPECT_THAT(Fault(config, SampleKind::kContiguous), HasSubstr("seq_len=0"));
}

}  // namespace
}  // namespace anyorder
