#include "data/sampling/sample_digest.h"

#include <gtest/gtest.h>

#include <vector>

namespace anyorder::data {
namespace {

TextSample Sample() {
  TextSample sample;
  sample.lane = 3;
  sample.step = 7;
  sample.tokens = {5, 6, 7, 8};
  sample.segment = {0, 0, 1, 1};
  sample.is_masked = {0, 1, 0, 1};
  sample.is_functional = {0, 0, 0, 1};
  sample.order = {1, 0, 0, 1};
  return sample;
}

TEST(SampleDigestTest, SeesEveryMember) {
  std::vector<TextSample> samples(11, Sample());
  samples[1].lane = 4;
  samples[2].step = 8;
  samples[3].backward = true;
  samples[4].b_follows_a = true;
  samples[5].tokens[2] = 9;
  samples[6].segment[0] = 1;
  samples[7].is_masked = {1, 1, 0, 0};
  samples[8].is_functional[0] = 1;
  samples[9].order = {0, 1, 0, 1};
  std::swap(samples[10].input_tokens, samples[10].tokens);
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(SampleDigest(samples[i]), SampleDigest(samples[j])) << i << " and " << j;
  }
  EXPECT_EQ(SampleDigest(Sample()), SampleDigest(Sample()));
}

TEST(StepDigestTest, IsTheSameHoweverLanesAreSharedOut) {
  // Digests with all bits set carry from one half into the other.
  std::vector<uint64_t> lanes(1000, 0xffffffffffffffff);
  lanes[500] = 0x0123456789abcdef;
  StepDigest one;
  StepDigest first;
  StepDigest second;
  for (size_t i = 0; i < lanes.size(); ++i) {
    one.Add(lanes[i]);
    (i < 300 ? first : second).Add(lanes[i]);
  }
  EXPECT_EQ(one.Hex(), (StepDigest{second.high + first.high, second.low + first.low}.Hex()));
  lanes[500] ^= 1;
  StepDigest other;
  for (const uint64_t lane : lanes) other.Add(lane);
  EXPECT_NE(one.Hex(), other.Hex());
}

}  // namespace
}  // namespace anyorder::data
