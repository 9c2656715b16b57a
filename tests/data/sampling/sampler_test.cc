#include "data/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "tests/data/sampling/memory_text.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

// How an attempt to make one ends.
absl::Status Status(const MemoryText& text, const SamplingConfig& config, int64_t num_lanes,
                    SampleKind kind = SampleKind::kPairs) {
  return Sampler::Create(text, config, kind, 1, num_lanes).status();
}

int64_t Sum(const std::vector<uint8_t>& values, int64_t begin, int64_t end) {
  return std::accumulate(values.begin() + begin, values.begin() + end, int64_t{0});
}

// Everything that holds for every sample of pairs (conformance item 4).
void CheckPairs(const TextSample& sample, const SamplingConfig& config) {
  const int64_t size = config.seq_len;
  const int64_t half = size / 2;
  ASSERT_EQ(static_cast<int64_t>(sample.tokens.size()), size);
  EXPECT_TRUE(sample.next_tokens.empty());
  // Reuse part: consecutive text. It ends where A begins.
  const int32_t step = sample.backward ? -1 : 1;
  const auto begin_of_b =
      std::find(sample.segment.begin(), sample.segment.end(), 1) - sample.segment.begin();
  for (int64_t i = 1; i < begin_of_b - 1; ++i)
    ASSERT_EQ(sample.tokens[i], sample.tokens[i - 1] + step) << i;
  for (int64_t i = begin_of_b + 1; i < size - 2; ++i)
    ASSERT_EQ(sample.tokens[i], sample.tokens[i - 1] + step) << i;
  // [reuse][A][SEP][B][SEP][CLS]
  EXPECT_GT(begin_of_b - 1, half);
  EXPECT_LT(begin_of_b, size - 2);
  EXPECT_EQ(sample.tokens[begin_of_b - 1], MemoryText::kSeparatorId);
  EXPECT_EQ(sample.tokens[size - 2], MemoryText::kSeparatorId);
  EXPECT_EQ(sample.tokens[size - 1], MemoryText::kClassId);
  for (int64_t i = 0; i < size; ++i) {
    const bool functional = i == begin_of_b - 1 || i >= size - 2;
    ASSERT_EQ(sample.is_functional[i], functional ? 1 : 0) << i;
    ASSERT_EQ(sample.segment[i], i == size - 1 ? 2 : (i >= begin_of_b ? 1 : 0)) << i;
    if (functional) continue;
    ASSERT_GE(sample.tokens[i], MemoryText::kFirstId);
  }
  // The larger part of the targets is in the reuse part.
  EXPECT_EQ(Sum(sample.is_masked, 0, half), config.num_predict - config.num_predict / 2);
  EXPECT_EQ(Sum(sample.is_masked, half, size), config.num_predict / 2);
  // Each half is ordered block by block, with the same order in every block.
  for (int64_t j = 0; j < size; ++j) {
    const int64_t i = j % half;
    const int64_t offset = i % config.perm_size;
    ASSERT_EQ(sample.order[j], sample.order[j - i + offset] + i - offset) << j;
  }
  for (const int64_t h : {int64_t{0}, half}) {
    const std::set<int32_t> ranks(sample.order.begin() + h, sample.order.begin() + h + half);
    ASSERT_EQ(static_cast<int64_t>(ranks.size()), half);
    ASSERT_EQ(*ranks.begin(), 0);
    ASSERT_EQ(*ranks.rbegin(), half - 1);
  }
}

TEST(SamplerTest, EverySizeWorks) {
  const MemoryText text = MemoryText::Random(6000, 9, 2);
  constexpr int64_t kSizes[][3] = {{10, 1, 1},    {10, 10, 5},   {16, 3, 4},    {64, 11, 16},
                                   {102, 17, 3},  {128, 21, 64}, {128, 22, 32}, {128, 128, 64},
                                   {512, 85, 256}};  // the last is the published one
  for (const auto& [seq_len, num_predict, perm_size] : kSizes) {
    for (const SpanKind spans : {SpanKind::kSubword, SpanKind::kWord, SpanKind::kSingle}) {
      for (const bool functional_targets : {true, false}) {
        SamplingConfig config = PairConfig(seq_len, num_predict, perm_size);
        config.spans = spans;
        config.functional_targets = functional_targets;
        if (!functional_targets) config.num_predict = std::min(num_predict, seq_len - 6);
        const auto sampler = MakeSampler(text, config, 2);
        for (int64_t step = 0; step < 30; ++step) {
          for (const int64_t lane : {0, 1}) {
            const TextSample sample = Take(*sampler, lane, step);
            CheckPairs(sample, config);
            if (HasFatalFailure()) return;
            if (functional_targets) continue;
            for (int64_t i = 0; i < seq_len; ++i)
              ASSERT_FALSE(sample.is_masked[i] != 0 && sample.is_functional[i] != 0);
          }
        }
      }
    }
  }
}

TEST(SamplerTest, ReusePartsOfSuccessiveStepsAreContiguous) {
  const MemoryText text = MemoryText::Random(5000, 9, 3);
  const auto sampler = MakeSampler(text, PairConfig(128, 21, 64), 4);
  for (int64_t lane = 0; lane < 4; ++lane) {
    const int32_t direction = lane < 2 ? 1 : -1;
    EXPECT_EQ(sampler->IsBackward(lane), lane >= 2);
    for (int64_t step = 0; step + 1 < sampler->steps_per_epoch(); ++step) {
      ASSERT_EQ(Take(*sampler, lane, step + 1).tokens[0],
                Take(*sampler, lane, step).tokens[63] + direction);
    }
  }
  // Lane 2 begins where lane 0 ends.
  EXPECT_EQ(Take(*sampler, 0, 0).tokens[0], MemoryText::kFirstId);
  EXPECT_EQ(Take(*sampler, 2, 0).tokens[0], MemoryText::kFirstId + 2499);
}

TEST(SamplerTest, EpochHasEveryStepThatFitsAndThenWraps) {
  for (const int64_t tokens : {256, 319, 320, 321, 5000}) {
    const MemoryText text = MemoryText::Random(tokens, 9, 4);
    SamplingConfig config = PairConfig(128, 21, 64);
    const auto sampler = MakeSampler(text, config, 4);
    // Two streams of tokens / 2; step t reads [64 t, 64 t + 128).
    int64_t steps = 0;
    while (64 * steps + 128 <= tokens / 2) ++steps;
    ASSERT_EQ(sampler->steps_per_epoch(), steps) << tokens;
    const TextSample first = Take(*sampler, 3, 0);
    const TextSample again = Take(*sampler, 3, steps);
    EXPECT_TRUE(std::equal(first.tokens.begin(), first.tokens.begin() + 64, again.tokens.begin()));
    // The second time the choices are fresh.
    EXPECT_NE(first.is_masked, again.is_masked);
    EXPECT_NE(first.order, again.order);
    CheckPairs(Take(*sampler, 0, steps - 1), config);
  }
}

TEST(SamplerTest, IsPureInLaneAndStep) {
  const MemoryText text = MemoryText::Random(20000, 12, 5);
  const SamplingConfig config = PairConfig(128, 21, 64);
  const auto forwards = MakeSampler(text, config, 8);
  const auto backwards = MakeSampler(text, config, 8);
  std::map<std::pair<int64_t, int64_t>, uint64_t> digests;
  ForEachSample(*forwards, 8, 50, [&](const TextSample& sample) {
    digests[{sample.lane, sample.step}] = SampleDigest(sample);
  });
  for (int64_t step = 49; step >= 0; --step) {
    for (int64_t lane = 7; lane >= 0; --lane) {
      ASSERT_EQ(SampleDigest(Take(*backwards, lane, step)), digests.at({lane, step}));
    }
  }
  // Four threads at once on one sampler.
  std::vector<int> differing(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 400; ++i) {
        const int64_t lane = (i + t) % 8;
        const int64_t step = (i * 7 + t) % 50;
        const auto sample = forwards->Sample(lane, step);
        if (!sample.ok() || SampleDigest(*sample) != digests.at({lane, step})) ++differing[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(differing, std::vector<int>(4));
}

TEST(SamplerTest, SeedLaneAndStepEachChangeTheChoices) {
  const MemoryText text = MemoryText::Random(20000, 12, 5);
  const SamplingConfig config = PairConfig(128, 21, 64);
  const auto sampler = MakeSampler(text, config, 8);
  const auto other_seed = MakeSampler(text, config, 8, SampleKind::kPairs, 18);
  const TextSample sample = Take(*sampler, 1, 3);
  for (const TextSample& other :
       {Take(*other_seed, 1, 3), Take(*sampler, 2, 3), Take(*sampler, 1, 4)}) {
    EXPECT_NE(sample.order, other.order);
    EXPECT_NE(sample.is_masked, other.is_masked);
  }
  // The halves have orders of their own.
  EXPECT_FALSE(
      std::equal(sample.order.begin(), sample.order.begin() + 64, sample.order.begin() + 64));
}

// Appends `more` to `text`; its tokens keep their ids.
MemoryText Joined(MemoryText text, const MemoryText& more) {
  text.tokens.insert(text.tokens.end(), more.tokens.begin(), more.tokens.end());
  text.flags.insert(text.flags.end(), more.flags.begin(), more.flags.end());
  text.starts.insert(text.starts.end(), more.starts.begin(), more.starts.end());
  return text;
}

TEST(SamplerTest, BackwardLaneIsAForwardLaneOnReversedTextWithItsMasksFlipped) {
  const MemoryText text = MemoryText::Random(4000, 12, 6);
  SamplingConfig config = PairConfig(128, 21, 64);
  config.spans = SpanKind::kSingle;  // positions drawn whatever the text is
  const auto both_ways = MakeSampler(text, config, 2);
  config.bidirectional = false;
  // Lane 1, so that the draws are the same, reads the reversed text forward.
  const MemoryText joined = Joined(text, text.Reversed());
  const auto forward_only = MakeSampler(joined, config, 2);
  for (int64_t step = 0; step < 50; ++step) {
    const TextSample backward = Take(*both_ways, 1, step);
    TextSample forward = Take(*forward_only, 1, step);
    ASSERT_TRUE(backward.backward);
    ASSERT_FALSE(forward.backward);
    forward.backward = true;
    ASSERT_NE(SampleDigest(backward), SampleDigest(forward));
    std::reverse(forward.is_masked.begin(), forward.is_masked.begin() + 64);
    std::reverse(forward.is_masked.begin() + 64, forward.is_masked.end());
    ASSERT_EQ(SampleDigest(backward), SampleDigest(forward)) << step;
  }
}

// Counts how often the first token of a run of masked tokens, in reading order, starts a word.
double ShareOfWordStarts(const MemoryText& text, const Sampler& sampler, int64_t lane) {
  double runs = 0;
  double at_starts = 0;
  for (int64_t step = 0; step < sampler.steps_per_epoch(); ++step) {
    TextSample sample = Take(sampler, lane, step);
    std::vector<uint8_t> mask(sample.is_masked.begin(), sample.is_masked.begin() + 64);
    std::vector<int32_t> tokens(sample.tokens.begin(), sample.tokens.begin() + 64);
    if (sample.backward) {
      std::reverse(mask.begin(), mask.end());
      std::reverse(tokens.begin(), tokens.end());
    }
    for (size_t i = 1; i < 64; ++i) {
      if (mask[i] == 0 || mask[i - 1] != 0) continue;
      ++runs;
      at_starts += text.starts[tokens[i] - MemoryText::kFirstId];
    }
  }
  return at_starts / runs;
}

TEST(SamplerTest, SpansBeginAtWordStartsInBothDirections) {
  const MemoryText text = MemoryText::Random(60000, 12, 7);
  // Six targets of 64 tokens are met by spans nearly always, so that few singles blur the count.
  const auto sampler = MakeSampler(text, PairConfig(128, 12, 64), 2);
  // Half of all tokens start words, and so would half of the runs if the direction were mistaken.
  EXPECT_GT(ShareOfWordStarts(text, *sampler, 0), 0.8);
  EXPECT_GT(ShareOfWordStarts(text, *sampler, 1), 0.8);
}

TEST(SamplerTest, ContiguousSamplesAreTextAndTheTokenAfterEach) {
  const MemoryText text = MemoryText::Random(1001, 9, 8);
  const SamplingConfig config{.seq_len = 50, .bidirectional = false};
  const auto sampler = MakeSampler(text, config, 4, SampleKind::kContiguous);
  // Four streams of 250 tokens; the token after the last step's must be in the stream.
  EXPECT_EQ(sampler->steps_per_epoch(), 4);
  for (int64_t lane = 0; lane < 4; ++lane) {
    EXPECT_FALSE(sampler->IsBackward(lane));
    for (int64_t step = 0; step < 6; ++step) {
      const TextSample sample = Take(*sampler, lane, step);
      ASSERT_EQ(sample.tokens.size(), 50u);
      ASSERT_EQ(sample.next_tokens.size(), 50u);
      ASSERT_EQ(sample.num_lanes, 4);
      const int64_t first = lane * 1001 / 4 + step % 4 * 50;
      for (int32_t i = 0; i < 50; ++i) {
        ASSERT_EQ(sample.tokens[i], MemoryText::kFirstId + first + i);
        ASSERT_EQ(sample.next_tokens[i], sample.tokens[i] + 1);
        ASSERT_EQ(sample.segment[i], 0);
      }
      EXPECT_TRUE(sample.is_masked.empty() && sample.order.empty());
    }
  }
}

TEST(SamplerTest, TooShortDatasetSaysHowManyLanesFit) {
  const MemoryText text = MemoryText::Random(1000, 9, 9);
  const SamplingConfig config = PairConfig(128, 21, 64);
  // Seven streams of 128 fit into 1000 tokens: 14 lanes.
  EXPECT_TRUE(Status(text, config, 14).ok());
  EXPECT_THAT(Status(text, config, 16), Fails(absl::IsFailedPrecondition, "at most 14 lanes fit",
                                              "1000 tokens is too short for 16 lanes"));
  // So do many more lanes than there are tokens, at once.
  EXPECT_THAT(Status(text, config, int64_t{1} << 60), Says("at most 14 lanes fit"));
  EXPECT_THAT(Status(MemoryText::Random(127, 9, 9), config, 2),
              Says("not one fits: prepare more text, or make sampling.seq_len smaller"));
}

TEST(SamplerTest, RefusesImpossibleSettings) {
  const MemoryText text = MemoryText::Random(1000, 9, 9);
  const SamplingConfig config = PairConfig(128, 21, 64);
  for (const int64_t lanes : {0, 3, -2})
    EXPECT_TRUE(absl::IsInvalidArgument(Status(text, config, lanes))) << lanes;
  EXPECT_TRUE(absl::IsInvalidArgument(Status(text, PairConfig(128, 200, 64), 2)));
}

TEST(SamplerTest, DocumentsCannotBeHiddenWithoutTheirEnds) {
  const MemoryText text = MemoryText::Random(1000, 9, 9);
  const SamplingConfig config{.seq_len = 50, .bidirectional = false, .hide_documents = true};
  EXPECT_THAT(Status(text, config, 4, SampleKind::kContiguous),
              Says("hide_documents is true, but the dataset has no <eod>"));
}

TEST(SamplerTest, DamagedTextIsReported) {
  MemoryText text = MemoryText::Random(1000, 9, 9);
  const auto sampler = MakeSampler(text, PairConfig(128, 21, 64), 2);
  text.failure = absl::DataLossError("chunk 3");
  EXPECT_EQ(sampler->Sample(0, 0).status(), text.failure);
}

}  // namespace
}  // namespace anyorder::data
