#include "data/sampling/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "core/config/model_config.h"
#include "tests/data/sampling/memory_text.h"

namespace anyorder::data {

namespace {

using ::testing::ElementsAre;

// Lane l at step s reads the one token 1000 * s + l. Fails at one step, if asked to.
class CountingSampler : public Sampler {
 public:
  absl::StatusOr<TextSample> Sample(int64_t lane, int64_t step) const override {
    ++samples;
    if (step == failing_step) return absl::DataLossError("chunk 3");
    TextSample sample;
    sample.lane = lane;
    sample.step = step;
    sample.tokens = {static_cast<int32_t>(1000 * step + lane)};
    return sample;
  }
  bool IsBackward(int64_t) const override { return false; }
  int64_t steps_per_epoch() const override { return 10; }

  mutable std::atomic<int64_t> samples = 0;
  int64_t failing_step = -1;
};

class OneTokenObjective : public Objective {
 public:
  OneTokenObjective()
      : Objective({{"one_token", "", SampleKind::kContiguous}, ModelConfig(), SamplingConfig()}) {}
  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape;
    shape.batch_size = batch_size;
    shape.content_rows = 1;
    return shape;
  }
  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    batch.lanes[b] = sample.lane;
    batch.tokens[b] = sample.tokens[0];
  }
};

TEST(BatchLoaderTest, StepsAndMicrobatchesComeInOrder) {
  const CountingSampler sampler;
  const OneTokenObjective objective;
  BatchLoader loader(sampler, objective,
                     {.leaves = {2, 3}, .lanes_per_microbatch = 3, .first_step = 7});
  for (int32_t step = 7; step < 40; ++step) {
    const auto next = loader.Next().value();
    ASSERT_EQ(next.step, step);
    ASSERT_GE(next.wait_ms, 0);
    ASSERT_EQ(next.microbatches.size(), 2u);
    const int32_t base = 1000 * step;
    EXPECT_THAT(next.microbatches[0].tokens, ElementsAre(base + 6, base + 7, base + 8));
    EXPECT_THAT(next.microbatches[1].tokens, ElementsAre(base + 9, base + 10, base + 11));
    EXPECT_THAT(next.microbatches[1].lanes, ElementsAre(9, 10, 11));
    EXPECT_EQ(next.microbatches[1].step, step);
  }
}

TEST(BatchLoaderTest, LongWaitsAreTold) {
  // Reads nothing until it was told.
  class WaitingSampler : public CountingSampler {
   public:
    absl::StatusOr<TextSample> Sample(int64_t lane, int64_t step) const override {
      while (step == 3 && !is_told) std::this_thread::yield();
      return CountingSampler::Sample(lane, step);
    }
    std::atomic<bool> is_told = false;
  } sampler;
  const OneTokenObjective objective;
  std::vector<bool> told;
  bool is_step_3 = false;  // it was asked for
  BatchLoader loader(sampler, objective,
                     {.leaves = {0},
                      .on_wait =
                          [&](bool is_waiting) {
                            told.push_back(is_waiting);
                            if (is_step_3 && is_waiting) sampler.is_told = true;
                          },
                      .wait_to_tell = absl::Milliseconds(1)});
  for (int64_t step = 0; step < 3; ++step) EXPECT_TRUE(loader.Next().ok());
  told.clear();
  is_step_3 = true;
  EXPECT_EQ(loader.Next()->step, 3);
  EXPECT_THAT(told, ElementsAre(true, false));
}

// Waits until `count` samples were taken, then as long again to see that no more are.
int64_t SamplesAtRest(const CountingSampler& sampler, int64_t count) {
  while (sampler.samples < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return sampler.samples;
}

TEST(BatchLoaderTest, PreparesNoMoreThanItsDepth) {
  const CountingSampler sampler;
  const OneTokenObjective objective;
  for (const int64_t depth : {1, 2, 5}) {
    const int64_t before = sampler.samples;
    BatchLoader loader(sampler, objective, {.leaves = {0}, .prefetch_steps = depth});
    EXPECT_EQ(SamplesAtRest(sampler, before + depth), before + depth);
    ASSERT_TRUE(loader.Next().ok());
    EXPECT_EQ(SamplesAtRest(sampler, before + depth + 1), before + depth + 1);
  }
}

TEST(BatchLoaderTest, StopsAtAnyMoment) {
  const CountingSampler sampler;
  const OneTokenObjective objective;
  for (int taken = 0; taken < 50; ++taken) {
    BatchLoader loader(sampler, objective, {.leaves = {0, 1, 2, 3}});
    for (int i = 0; i < taken % 4; ++i) ASSERT_TRUE(loader.Next().ok());
  }
}

TEST(BatchLoaderTest, ErrorComesAtItsStepAndStays) {
  CountingSampler sampler;
  sampler.failing_step = 2;
  const OneTokenObjective objective;
  BatchLoader loader(sampler, objective, {.leaves = {0, 1}, .prefetch_steps = 5});
  // The thread has met the error before the first step is taken, and still gives the steps before
  // it.
  EXPECT_EQ(SamplesAtRest(sampler, 5), 5);
  EXPECT_TRUE(loader.Next().ok());
  EXPECT_TRUE(loader.Next().ok());
  EXPECT_EQ(loader.Next().status(), absl::DataLossError("chunk 3"));
  EXPECT_EQ(loader.Next().status(), absl::DataLossError("chunk 3"));
}

TEST(BatchLoaderTest, RankWithoutLeavesGetsEmptySteps) {
  const CountingSampler sampler;
  const OneTokenObjective objective;
  BatchLoader loader(sampler, objective, {});
  const auto next = loader.Next().value();
  EXPECT_TRUE(next.microbatches.empty());
}

// The real parts together: every target of a microbatch is a real token of its lane, whatever rank
// asks.
TEST(BatchLoaderTest, FeedsPermutationObjectiveTheSameOnAnyRank) {
  const MemoryText text = MemoryText::Random(4000, 12, 1);
  SamplingConfig sampling = PairConfig(64, 11, 32);
  sampling.functional_targets = false;
  const auto sampler = Sampler::Create(text, sampling, SampleKind::kPairs, 5, 8);
  const auto objective = MakeObjective("permutation_lm", ModelConfig(), sampling);
  ASSERT_TRUE(sampler.ok() && objective.ok()) << sampler.status() << objective.status();
  BatchLoader whole(**sampler, **objective, {.leaves = {0, 1, 2, 3}, .lanes_per_microbatch = 2});
  BatchLoader second(**sampler, **objective, {.leaves = {3}, .lanes_per_microbatch = 2});
  for (int step = 0; step < 5; ++step) {
    const auto all = whole.Next();
    const auto one = second.Next();
    ASSERT_TRUE(all.ok() && one.ok());
    const Batch& last = all->microbatches[3];
    EXPECT_EQ(last.TargetWeight(), 22);
    EXPECT_THAT(last.lanes, ElementsAre(6, 7));
    EXPECT_THAT(last.direction, ElementsAre(1, 1));
    EXPECT_EQ(last.tokens, one->microbatches[0].tokens);
    EXPECT_EQ(last.labels, one->microbatches[0].labels);
    EXPECT_EQ(last.row_lim, one->microbatches[0].row_lim);
    EXPECT_EQ(last.key_key, one->microbatches[0].key_key);
  }
}

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
  std::vector<TextSample> samples(19, Sample());
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
  std::swap(samples[11].next_tokens, samples[11].tokens);
  for (size_t i = 12; i < samples.size(); ++i) samples[i].parts = {{1, 2}, {3}};
  samples[13].parts = {{1}, {2, 3}};
  samples[14].example = 1;
  samples[15].label = 1;
  samples[16].tags = {kNoTag, kNoTag};
  samples[17].tags = {kUnknownTag, kNoTag};
  samples[18].tags = {0, kNoTag};
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
