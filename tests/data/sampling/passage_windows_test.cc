#include "data/sampling/passage_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "core/base/philox.h"
#include "data/sampling/sampler.h"
#include "tests/data/sampling/memory_examples.h"
#include "tests/data/sampling/memory_text.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::data {
namespace {

using testing::ElementsAre;

// The rule as run_squad.py of BERT and XLNet states it, for comparison.
std::vector<PassageWindow> WindowsByTheBook(int64_t length, int64_t room, int64_t stride) {
  std::vector<PassageWindow> windows;
  int64_t start = 0;
  while (start < length) {
    const int64_t taken = std::min(length - start, room);
    windows.push_back({start, start + taken});
    if (start + taken == length) break;
    start += std::min(taken, stride);
  }
  return windows;
}

TEST(WindowsOfTest, TheyFollowTheRuleAndHoldEveryToken) {
  EXPECT_THAT(WindowsOf(5, 5, 2), ElementsAre(PassageWindow{0, 5}));
  EXPECT_THAT(WindowsOf(7, 5, 2), ElementsAre(PassageWindow{0, 5}, PassageWindow{2, 7}));
  EXPECT_THAT(WindowsOf(8, 5, 2),
              ElementsAre(PassageWindow{0, 5}, PassageWindow{2, 7}, PassageWindow{4, 8}));
  for (int64_t length = 1; length < 40; ++length) {
    for (int64_t room = 1; room < 12; ++room) {
      for (int64_t stride = 1; stride < 14; ++stride) {
        const std::vector<PassageWindow> windows = WindowsOf(length, room, stride);
        ASSERT_EQ(windows, WindowsByTheBook(length, room, stride)) << length << room << stride;
        std::set<int64_t> seen;
        for (const PassageWindow& window : windows) {
          for (int64_t token = window.begin; token < window.end; ++token) seen.insert(token);
        }
        ASSERT_EQ(std::ssize(seen), length) << length << ", " << room << ", " << stride;
      }
    }
  }
}

// Questions of 1 to 6 tokens about passages of 1 to 60, each token of which is 1000 + its place. A
// third has no answer if `some_lack_one`.
MemoryExamples Questions(int64_t count, bool some_lack_one, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kPrep, 0, 0);
  MemoryExamples source;
  source.kind = ExampleTask::kSpans;
  source.classes = 0;
  for (int64_t i = 0; i < count; ++i) {
    Example& example = source.examples.emplace_back();
    example.parts.emplace_back(1 + random.Below64(6), 7);
    example.parts.emplace_back(1 + random.Below64(60));
    std::iota(example.parts[1].begin(), example.parts[1].end(), 1000);
    example.label = some_lack_one && i % 3 == 0 ? 0 : 1;
    if (example.label == 0) continue;
    const auto length = static_cast<int32_t>(example.parts[1].size());
    example.answer_begin = static_cast<int32_t>(random.Below(static_cast<uint32_t>(length)));
    example.answer_end =
        std::min(length, example.answer_begin + 1 + static_cast<int32_t>(random.Below(4)));
  }
  return source;
}

SamplingConfig ShortSequences() {
  return {.seq_len = 20, .bidirectional = false, .passage_stride = 5, .max_question = 4};
}

TEST(PassageWindowsTest, AllWindowsComeInOrderWithTheirAnswers) {
  MemoryExamples examples = Questions(50, /*some_lack_one=*/true, 3);
  // BERT and XLNet put three special tokens around question and passage, RoBERTa four. In datasets
  // of older versions all leave room for four.
  SamplingConfig config = ShortSequences();
  for (const auto& [num_specials, is_old] :
       {std::pair(3, false), std::pair(4, false), std::pair(3, true)}) {
    config.pair_specials = num_specials;
    examples.is_old = is_old;
    const int64_t room = 20 - (is_old ? 4 : num_specials);
    for (const WindowUse use : {WindowUse::kAll, WindowUse::kTraining}) {
      const auto windows = PassageWindows::Create(examples, config, use).value();
      EXPECT_EQ(windows->num_cut_answers(), 0);
      int64_t next = 0;
      for (int64_t i = 0; i < 50; ++i) {
        const Example& whole = examples.examples[i];
        const int64_t question = std::min<int64_t>(4, std::ssize(whole.parts[0]));
        const int64_t length = std::ssize(whole.parts[1]);
        for (const PassageWindow& window : WindowsByTheBook(length, room - question, 5)) {
          ASSERT_LT(next, windows->num_examples());
          const Example read = windows->ReadExample(next).value();
          const TextSample sample = SampleOfExample(*windows, next++, 9).value();
          EXPECT_EQ(sample.example, i);
          EXPECT_EQ(sample.window_begin, window.begin);
          EXPECT_EQ(std::ssize(sample.parts[0]), question);
          ASSERT_EQ(std::ssize(sample.parts[1]), window.end - window.begin);
          EXPECT_EQ(sample.parts[1].front(), 1000 + window.begin);
          EXPECT_EQ(sample.parts[1].back(), 1000 + window.end - 1);
          const bool holds = whole.label == 1 && whole.answer_begin >= window.begin &&
                             whole.answer_end <= window.end;
          EXPECT_EQ(sample.label, holds ? 1 : 0);
          EXPECT_EQ(sample.answer_begin, holds ? whole.answer_begin - window.begin : -1);
          EXPECT_EQ(sample.answer_end, holds ? whole.answer_end - window.begin : -1);
        }
      }
      EXPECT_EQ(next, windows->num_examples());
    }
  }
}

TEST(PassageWindowsTest, WhereAllHaveAnswersTrainingSeesOnlyWindowsThatHoldThem) {
  const MemoryExamples examples = Questions(50, /*some_lack_one=*/false, 4);
  const auto all = PassageWindows::Create(examples, ShortSequences(), WindowUse::kAll).value();
  const auto kept =
      PassageWindows::Create(examples, ShortSequences(), WindowUse::kTraining).value();
  int64_t next = 0;
  for (int64_t i = 0; i < all->num_examples(); ++i) {
    const Example window = all->ReadExample(i).value();
    if (window.label == 0) continue;
    const Example same = kept->ReadExample(next++).value();
    EXPECT_EQ(same.parts, window.parts);
    EXPECT_EQ(same.window_of, window.window_of);
    EXPECT_EQ(same.answer_begin, window.answer_begin);
  }
  EXPECT_EQ(kept->num_examples(), next);
  EXPECT_LT(next, all->num_examples());
}

TEST(PassageWindowsTest, LabelsThatAreNotKnownStaySo) {
  MemoryExamples examples = Questions(4, false, 4);
  examples.examples[2].label = examples.examples[2].answer_begin = -1;
  examples.examples[2].answer_end = -1;
  const auto all = PassageWindows::Create(examples, ShortSequences(), WindowUse::kAll).value();
  for (int64_t i = 0; i < all->num_examples(); ++i) {
    const Example window = all->ReadExample(i).value();
    if (window.window_of == 2) {
      EXPECT_EQ(window.label, -1);
    }
  }
  // Training reads the others as if it were not there.
  const auto kept =
      PassageWindows::Create(examples, ShortSequences(), WindowUse::kTraining).value();
  MemoryExamples others = examples;
  others.examples.erase(others.examples.begin() + 2);
  const auto without =
      PassageWindows::Create(others, ShortSequences(), WindowUse::kTraining).value();
  ASSERT_EQ(kept->num_examples(), without->num_examples());
  for (int64_t i = 0; i < kept->num_examples(); ++i)
    EXPECT_EQ(kept->ReadExample(i)->parts, without->ReadExample(i)->parts);
}

TEST(PassageWindowsTest, AnswersThatNoWindowHoldsAreCountedOrRefused) {
  MemoryExamples examples = Questions(2, false, 4);
  Example& wide = examples.examples[1];
  wide.parts[1].resize(40, 3);
  wide.answer_begin = 0;
  wide.answer_end = 30;
  const auto kept =
      PassageWindows::Create(examples, ShortSequences(), WindowUse::kTraining).value();
  EXPECT_EQ(kept->num_cut_answers(), 1);
  Example& without = examples.examples[0];
  without.label = 0;
  without.answer_begin = without.answer_end = -1;
  const auto mixed =
      PassageWindows::Create(examples, ShortSequences(), WindowUse::kTraining).value();
  EXPECT_EQ(mixed->num_cut_answers(), 1);
  EXPECT_GT(mixed->num_examples(), kept->num_examples());
  examples.examples.erase(examples.examples.begin());
  EXPECT_THAT(PassageWindows::Create(examples, ShortSequences(), WindowUse::kTraining).status(),
              Says("of 1 questions not one has its answer whole"));
  SamplingConfig config = ShortSequences();
  config.seq_len = 7;
  examples.examples[0].parts[0].assign(4, 7);
  EXPECT_THAT(
      PassageWindows::Create(examples, config, WindowUse::kAll).status(),
      Fails(absl::IsInvalidArgument, "sampling.seq_len=7 is too short: the question of example 0"));
}

TEST(PassageWindowsTest, TheSamplerCountsWindows) {
  const MemoryExamples examples = Questions(30, false, 8);
  const ExampleText text(examples);
  for (const WindowUse use : {WindowUse::kTraining, WindowUse::kAll}) {
    const auto windows = PassageWindows::Create(examples, ShortSequences(), use).value();
    const auto sampler =
        Sampler::Create(text, ShortSequences(), SampleKind::kExamples, 1, 3, use).value();
    EXPECT_EQ(sampler->num_examples(), windows->num_examples());
    EXPECT_EQ(sampler->steps_per_epoch(), (windows->num_examples() + 2) / 3);
    std::multiset<std::pair<int64_t, int64_t>> read, expected;
    for (int64_t i = 0; i < windows->num_examples(); ++i) {
      const TextSample sample = sampler->Sample(i % 3, i / 3).value();
      read.emplace(sample.example, sample.window_begin);
      const Example window = windows->ReadExample(i).value();
      expected.emplace(window.window_of, window.window_begin);
    }
    EXPECT_EQ(read, expected);
  }
}

}  // namespace
}  // namespace anyorder::data
