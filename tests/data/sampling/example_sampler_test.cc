#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "data/sampling/sampler.h"
#include "tests/data/sampling/memory_examples.h"
#include "tests/data/sampling/memory_text.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

std::vector<int64_t> TurnsOf(const ExampleSampler& sampler, int64_t lanes, int64_t turns) {
  std::vector<int64_t> examples;
  for (int64_t turn = 0; turn < turns; ++turn)
    examples.push_back(sampler.Sample(turn % lanes, turn / lanes)->example);
  return examples;
}

TEST(ExampleSamplerTest, EveryEpochOfAllLanesIsAPermutation) {
  for (const int64_t count : {1, 2, 5, 16, 37}) {
    for (const int64_t lanes : {1, 2, 3, 8, 64}) {
      const MemoryExamples examples =
          MemoryExamples::Random(ExampleTask::kEntailment, count, 2, 4, 3);
      const ExampleSampler sampler(examples, 11, lanes);
      const std::vector<int64_t> turns = TurnsOf(sampler, lanes, 6 * count);
      std::set<std::vector<int64_t>> orders;
      for (int64_t epoch = 0; epoch < 6; ++epoch) {
        std::vector<int64_t> order(turns.begin() + epoch * count,
                                   turns.begin() + (epoch + 1) * count);
        orders.insert(order);
        std::sort(order.begin(), order.end());
        std::vector<int64_t> all(static_cast<size_t>(count));
        std::iota(all.begin(), all.end(), 0);
        EXPECT_EQ(order, all) << count << " examples, " << lanes << " lanes, epoch " << epoch;
      }
      if (count >= 16) {
        EXPECT_EQ(orders.size(), 6u) << "epochs have an order of their own";
      }
      EXPECT_EQ(sampler.steps_per_epoch(), (count + lanes - 1) / lanes);
    }
  }
}

TEST(ExampleSamplerTest, ASampleIsAFunctionOfSeedLaneAndStep) {
  const MemoryExamples examples = MemoryExamples::Random(ExampleTask::kMultipleChoice, 23, 4, 6, 8);
  const ExampleSampler one(examples, 5, 4);
  const ExampleSampler other(examples, 5, 4);
  std::vector<uint64_t> forward;
  for (int64_t turn = 0; turn < 200; ++turn)
    forward.push_back(SampleDigest(*one.Sample(turn % 4, turn / 4)));
  // In another order, and so with other epochs in the cache.
  for (int64_t turn = 199; turn >= 0; --turn)
    EXPECT_EQ(SampleDigest(*other.Sample(turn % 4, turn / 4)), forward[turn]) << turn;
  const ExampleSampler other_seed(examples, 6, 4);
  EXPECT_NE(TurnsOf(one, 4, 23), TurnsOf(other_seed, 4, 23));
}

TEST(ExampleSamplerTest, TheNumberOfLanesDoesNotChangeTheOrder) {
  const MemoryExamples examples = MemoryExamples::Random(ExampleTask::kGeneration, 19, 2, 6, 8);
  EXPECT_EQ(TurnsOf(ExampleSampler(examples, 5, 1), 1, 60),
            TurnsOf(ExampleSampler(examples, 5, 8), 8, 60));
}

// Every lane knows how long the others of its step are, in any order of asking, and only where that
// is asked for.
TEST(ExampleSamplerTest, SamplesCarryTheLengthsOfTheirStep) {
  const MemoryExamples examples = MemoryExamples::Random(ExampleTask::kGeneration, 19, 2, 6, 8);
  const ExampleSampler sampler(examples, 5, 4, nullptr, true);
  const ExampleSampler plain(examples, 5, 4);
  for (const int64_t step : {0, 7, 3, 4, 5, 3}) {
    for (int64_t lane = 3; lane >= 0; --lane) {
      const TextSample sample = *sampler.Sample(lane, step);
      ASSERT_EQ(sample.step_lengths->size(), 4u);
      for (int64_t other = 0; other < 4; ++other) {
        const TextSample expected = *plain.Sample(other, step);
        EXPECT_EQ((*sample.step_lengths)[other].source, std::ssize(expected.parts[0]));
        EXPECT_EQ((*sample.step_lengths)[other].target, std::ssize(expected.parts[1]));
      }
      EXPECT_EQ(plain.Sample(lane, step)->step_lengths, nullptr);
      EXPECT_EQ(SampleDigest(sample), SampleDigest(*plain.Sample(lane, step)));
    }
  }
}

TEST(ExampleSamplerTest, SamplesCarryPartsLabelTagsAndIds) {
  MemoryExamples examples = MemoryExamples::Random(ExampleTask::kMultipleChoice, 7, 5, 6, 8);
  for (Example& example : examples.examples) example.tags = example.parts[0];
  const ExampleSampler sampler(examples, 9, 3);
  for (int64_t turn = 0; turn < 21; ++turn) {
    const TextSample sample = *sampler.Sample(turn % 3, turn / 3);
    EXPECT_EQ(sample.lane, turn % 3);
    EXPECT_EQ(sample.step, turn / 3);
    EXPECT_EQ(sample.seed, 9u);
    EXPECT_EQ(sample.parts, examples.examples[sample.example].parts);
    EXPECT_EQ(sample.label, examples.examples[sample.example].label);
    EXPECT_EQ(sample.tags, examples.examples[sample.example].tags);
    EXPECT_EQ(sample.vocabulary.begin, 1);
    EXPECT_EQ(sample.vocabulary.end, 2);
    EXPECT_TRUE(sample.tokens.empty());
  }
}

// Every example is in one sequence, no sequence is too long but that of an example that is, and no
// two would fit in one.
TEST(ExampleSamplerTest, PackedSequencesHoldEveryExampleOnce) {
  const MemoryExamples examples = MemoryExamples::Random(ExampleTask::kGeneration, 57, 4, 9, 8);
  const ExampleText text(examples);
  SamplingConfig config{.seq_len = 32, .bidirectional = false};
  config.pack_examples = true;
  const auto sampler = *Sampler::Create(text, config, SampleKind::kExamples, 5, 3);
  EXPECT_EQ(sampler->steps_per_epoch(), (sampler->num_examples() + 2) / 3);
  std::multiset<std::vector<std::vector<int32_t>>> found, expected;
  std::vector<int64_t> lengths;
  for (int64_t turn = 0; turn < sampler->num_examples(); ++turn) {
    const TextSample sample = *sampler->Sample(turn % 3, turn / 3);
    ASSERT_EQ(sample.packed_ends.back(), std::ssize(sample.parts));
    int64_t begin = 0, slots = 0;
    for (const int64_t end : sample.packed_ends) {
      std::vector<std::vector<int32_t>> one(sample.parts.begin() + begin,
                                            sample.parts.begin() + end);
      for (const auto& part : one) slots += std::ssize(part);
      ++slots;
      found.insert(std::move(one));
      begin = end;
    }
    EXPECT_TRUE(slots <= 32 || sample.packed_ends.size() == 1) << slots;
    lengths.push_back(slots);
  }
  for (const Example& example : examples.examples) expected.insert(example.parts);
  EXPECT_EQ(found, expected);
  std::sort(lengths.begin(), lengths.end());
  EXPECT_GT(lengths[0] + lengths[1], 32);
  EXPECT_LT(sampler->num_examples(), 57);
}

TEST(ExampleSamplerTest, PlainTextIsRefused) {
  const MemoryText text = MemoryText::Random(1000, 8, 1);
  const SamplingConfig config{.bidirectional = false};
  EXPECT_THAT(Sampler::Create(text, config, SampleKind::kExamples, 1, 4).status(),
              Fails(absl::IsInvalidArgument, "prep --examples"));
}

}  // namespace
}  // namespace anyorder::data
