// Reading a text from left to right: every token once, equal context, and the same function as one
// causal pass.

#include "core/train/evaluation/causal_walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "kernels/visibility.h"
#include "tests/core/network/model_testing.h"
#include "tests/data/sampling/memory_text.h"

namespace anyorder {
namespace {

using testing::kSmallVocab;

// Losses are computed in fp64 and handed out in fp32: half an ulp, relative, on both sides of a
// comparison.
constexpr double kFloatEpsilon = 6e-8;

data::MemoryText Text(int64_t num_tokens) {
  data::MemoryText text = data::MemoryText::Random(num_tokens, 7, 5);
  for (int32_t& token : text.tokens) token = (token * 7 + token / 3) % kSmallVocab;
  return text;
}

ModelConfig Model(int64_t mem_len) {
  ModelConfig model = testing::SmallModel();
  model.mem_len = mem_len;
  return model;
}

// Which token of the text each entry of `segment` predicts, found from the walk's definition alone;
// -1: none.
int64_t TokenOf(const CausalWalk& walk, const CausalWalkOptions& options, int64_t batch, int64_t b,
                int64_t slot) {
  const int64_t segment = walk.lanes().WindowOf(b, batch);
  const int64_t token = segment * options.target_len + slot + (options.two_streams ? 0 : 1);
  return walk.lanes().IsScored(b, batch) && token > 0 && token <= walk.num_predictions() ? token
                                                                                         : -1;
}

// Loss of every token of the text, by running the network over the walk.
std::map<int64_t, double> TokenLosses(const data::MemoryText& text, const ModelConfig& model,
                                      const CausalWalkOptions& options) {
  const CausalWalk walk = CausalWalk::Create(text, model, options).value();
  testing::ModelRunner runner(model, kSmallVocab, walk.Shape());
  const std::vector<double> weights = testing::InitialWeights(model, kSmallVocab, 31);
  std::vector<double> memory;
  std::map<int64_t, double> losses;
  for (int64_t segment = 0; segment < walk.lanes().num_batches(); ++segment) {
    const Batch batch = *walk.MakeBatch(segment);
    const auto result = runner.Run(batch, weights, memory, /*training=*/false);
    memory = result.memory;
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      const int64_t token =
          TokenOf(walk, options, segment, i / options.target_len, i % options.target_len);
      EXPECT_EQ(batch.weights[i], token < 0 ? 0.0f : 1.0f);
      if (token >= 0) losses[token] = result.losses[i];
    }
  }
  return losses;
}

void ExpectSameLosses(const std::map<int64_t, double>& a, const std::map<int64_t, double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [token, loss] : a)
    EXPECT_NEAR(b.at(token), loss, 2 * kFloatEpsilon * loss) << "token " << token;
}

// One size of a walk over one text.
struct WalkCase {
  data::MemoryText text;
  ModelConfig model;
  CausalWalkOptions options;
};

// Calls check(WalkCase) for texts, segments, memories and lanes that do and do not divide each
// other.
template <typename Check>
void ForEachWalk(Check check) {
  for (const int64_t tokens : {21, 40, 64, 65}) {
    for (const int64_t target_len : {1, 5, 16}) {
      for (const int64_t mem_len : {3, 16, 21}) {
        for (const int64_t lanes : {1, 3, 6}) {
          for (const bool same_length : {false, true}) {
            for (const bool two_streams : {false, true}) {
              SCOPED_TRACE(::testing::Message()
                           << tokens << " tokens, segments of " << target_len << ", memory "
                           << mem_len << ", " << lanes << " lanes, same length " << same_length
                           << ", two streams " << two_streams);
              check(WalkCase{
                  Text(tokens), Model(mem_len), {target_len, lanes, same_length, two_streams}});
            }
          }
        }
      }
    }
  }
}

// How many keys the row of readout entry `i` sees, counted pair by pair with the kernel's own
// definition.
int64_t KeysSeen(const Batch& batch, int64_t i) {
  const int64_t keys = batch.shape.num_keys();
  const int64_t first = i / batch.shape.targets * keys;
  const kernels::Band band = batch.bands.empty() ? kernels::Band{} : batch.bands[0];
  int64_t seen = 0;
  for (int64_t key = first; key < first + keys; ++key)
    seen += kernels::IsVisible(batch.rows(), batch.readout_rows[i], batch.keys(), key, band);
  return seen;
}

TEST(CausalWalkTest, PredictsEveryTokenButTheFirstOnceWithTheContextThatItSays) {
  ForEachWalk([](const WalkCase& c) {
    const CausalWalk walk = CausalWalk::Create(c.text, c.model, c.options).value();
    const int64_t length = c.options.target_len;
    std::vector<int> times(c.text.tokens.size());
    for (int64_t segment = 0; segment < walk.lanes().num_batches(); ++segment) {
      const Batch batch = *walk.MakeBatch(segment);
      for (size_t i = 0; i < batch.weights.size(); ++i) {
        if (batch.weights[i] == 0) continue;
        const int64_t b = i / length;
        const int64_t t = i % length;
        const int64_t token = TokenOf(walk, c.options, segment, b, t);
        ASSERT_GE(token, 0);
        ++times[token];
        EXPECT_EQ(batch.labels[i], c.text.tokens[token]);
        const int64_t seen = KeysSeen(batch, i);
        EXPECT_EQ(seen, walk.ContextOf(walk.lanes().WindowOf(b, segment), t))
            << segment << " " << b << " " << t;
        EXPECT_GE(seen, 1);
        if (!c.options.same_length) continue;
        // The PyTorch form: as many keys as the memory is long, once the lane has read that many
        // tokens.
        const int64_t before =
            walk.lanes().WindowOf(b, segment) * length + t + (c.options.two_streams ? 0 : 1);
        EXPECT_EQ(seen, std::min(before, c.model.mem_len)) << segment << " " << b << " " << t;
      }
    }
    EXPECT_EQ(times[0], 0);
    for (size_t token = 1; token < times.size(); ++token)
      EXPECT_EQ(times[token], 1) << "token " << token;
  });
}

CausalWalkOptions Windows(int64_t window_len, int64_t target_len, int64_t lanes) {
  return {target_len, lanes, /*same_length=*/false, /*two_streams=*/false, window_len};
}

TEST(CausalWindowsTest, PredictEveryTokenOnceWithTheContextThatTheySay) {
  for (const int64_t tokens : {21, 40, 65}) {
    for (const int64_t lanes : {1, 3}) {
      for (const auto& [window, target] : {std::pair{5, 5}, {8, 3}, {16, 1}, {16, 7}}) {
        const data::MemoryText text = Text(tokens);
        const CausalWalkOptions options = Windows(window, target, lanes);
        EXPECT_EQ(TokenLosses(text, Model(0), options).size(), static_cast<size_t>(tokens - 1));
        const CausalWalk walk = CausalWalk::Create(text, Model(0), options).value();
        for (int64_t segment = 0; segment < walk.lanes().num_batches(); ++segment) {
          const Batch batch = *walk.MakeBatch(segment);
          for (int64_t i = 0; i < std::ssize(batch.weights); ++i) {
            if (batch.weights[i] == 0) continue;
            const int64_t seen = KeysSeen(batch, i);
            const int64_t of_text = walk.lanes().WindowOf(i / target, segment);
            EXPECT_EQ(seen, walk.ContextOf(of_text, i % target));
            // All of the text before, or from the window's begin on.
            const int64_t read = of_text * target + i % target + 1;
            EXPECT_EQ(seen, std::min<int64_t>(read, window - target + i % target + 1));
          }
        }
      }
    }
  }
}

TEST(CausalWindowsTest, AWindowOfTheWholeTextIsOneCausalPass) {
  const data::MemoryText text = Text(41);
  const std::map<int64_t, double> one_pass = TokenLosses(text, Model(0), {41, 1, false, false});
  for (const int64_t target_len : {1, 6, 20})
    ExpectSameLosses(one_pass, TokenLosses(text, Model(0), Windows(60, target_len, 1)));
  const std::map<int64_t, double> shorter = TokenLosses(text, Model(0), Windows(12, 6, 1));
  EXPECT_GT(std::abs(shorter.at(40) - one_pass.at(40)), 1e-4);
}

// Two layers that each see three tokens back reach six: as many tokens before the scored ones are
// as good as all.
TEST(CausalWindowsTest, WhatLayersReachIsEnough) {
  const data::MemoryText text = Text(41);
  ModelConfig model = Model(0);
  model.attention_windows = "3:0";
  const std::map<int64_t, double> one_pass = TokenLosses(text, model, {41, 1, false, false});
  ExpectSameLosses(one_pass, TokenLosses(text, model, Windows(6 + 5, 5, 1)));
  const std::map<int64_t, double> shorter = TokenLosses(text, model, Windows(5 + 5, 5, 1));
  EXPECT_GT(std::abs(shorter.at(36) - one_pass.at(36)), 1e-6);
}

TEST(CausalWindowsTest, AreRefusedWhereTheyMeanNothing) {
  const data::MemoryText text = Text(41);
  ModelConfig learned = Model(0);
  learned.positions = Positions::kLearned;
  learned.max_positions = 10;
  const auto expect_refused = [&](const ModelConfig& model, const CausalWalkOptions& options,
                                  const char* part) {
    testing::ExpectInvalid(CausalWalk::Create(text, model, options).status(), part);
  };
  expect_refused(Model(0), Windows(4, 5, 1), "window 4 must be at least the target length, 5");
  expect_refused(Model(3), Windows(8, 5, 1), "memory length 3 must be 0: a window takes");
  expect_refused(learned, Windows(11, 5, 1), "window 11 must be at most model.max_positions = 10");
  learned.positions = Positions::kLearnedPairs;  // the last slot predicts the next position
  expect_refused(learned, Windows(10, 5, 1), "window 10 must be below model.max_positions = 10");
  CausalWalkOptions two_streams = Windows(8, 5, 1);
  two_streams.two_streams = true;
  expect_refused(Model(0), two_streams, "windows are for models of one stream");
}

// Windows that do not overlap give each token the loss that it has in a window of training in text
// order.
TEST(CausalWindowsTest, PositionsInPairsAreThoseOfTraining) {
  constexpr int64_t kSlots = 10;
  const data::MemoryText text = Text(41);
  ModelConfig model = testing::SmallLearnedModel(kSlots + 1);
  model.positions = Positions::kLearnedPairs;
  const std::map<int64_t, double> walked = TokenLosses(text, model, {kSlots, 1, false, false});
  SamplingConfig sampling = testing::OneWaySampling(kSlots + 1);
  sampling.any_order.token_order = TokenOrder::kText;
  const auto objective = testing::MakeObjectiveOrDie("sigma_gpt", model, sampling);
  for (int64_t begin = 0; begin + kSlots < 41; begin += kSlots) {
    TextSample sample;
    sample.tokens.assign(text.tokens.begin() + begin, text.tokens.begin() + begin + kSlots + 1);
    const auto result = testing::RunOnce(model, testing::BuildBatch(*objective, {sample}),
                                         testing::InitialWeights(model, kSmallVocab, 31));
    for (int64_t i = 0; i < kSlots; ++i)
      EXPECT_NEAR(walked.at(begin + 1 + i), result.losses[i], 2 * kFloatEpsilon * result.losses[i]);
  }
}

class CausalScoreTest : public ::testing::TestWithParam<bool> {};

TEST_P(CausalScoreTest, SegmentsWithFullMemoryAreOneCausalPass) {
  const data::MemoryText text = Text(41);
  const auto losses = [&](int64_t target_len, int64_t mem_len) {
    return TokenLosses(text, Model(mem_len), {target_len, 1, false, GetParam()});
  };
  const std::map<int64_t, double> one_pass = losses(41, 0);
  EXPECT_EQ(one_pass.size(), 40u);
  for (const int64_t target_len : {1, 6, 7, 20}) ExpectSameLosses(one_pass, losses(target_len, 41));
  // And a memory that does not reach back changes the losses.
  const std::map<int64_t, double> shorter = losses(6, 6);
  EXPECT_GT(std::abs(shorter.at(40) - one_pass.at(40)), 1e-4);
}

// With equal context a token's loss cannot depend on where segments begin: the window is the same,
// and so, layer by layer, are the states in it. A window that is off by one, or a memory that is
// one state short, breaks this.
TEST_P(CausalScoreTest, SameLengthDoesNotDependOnTheSegments) {
  const data::MemoryText text = Text(41);
  const auto losses = [&](int64_t target_len, bool same_length) {
    return TokenLosses(text, Model(9), {target_len, 1, same_length, GetParam()});
  };
  const std::map<int64_t, double> single = losses(1, true);
  for (const int64_t target_len : {2, 5, 9, 16, 41})
    ExpectSameLosses(single, losses(target_len, true));
  EXPECT_GT(std::abs(losses(16, false).at(30) - single.at(30)), 1e-4);
}

TEST_P(CausalScoreTest, LaterTokensDoNotMatter) {
  data::MemoryText text = Text(41);
  const CausalWalkOptions options{6, 1, false, GetParam()};
  const std::map<int64_t, double> before = TokenLosses(text, Model(12), options);
  text.tokens[20] = (text.tokens[20] + 1) % kSmallVocab;
  const std::map<int64_t, double> after = TokenLosses(text, Model(12), options);
  for (int64_t token = 1; token < 20; ++token)
    EXPECT_EQ(after.at(token), before.at(token)) << token;
  for (int64_t token = 20; token < 41; ++token)
    EXPECT_NE(after.at(token), before.at(token)) << token;
}

TEST_P(CausalScoreTest, ScoreIsTheSumOfTheTokens) {
  const data::MemoryText text = Text(50);
  const ModelConfig model = Model(8);
  const CausalWalkOptions options{6, 2, true, GetParam()};
  const std::map<int64_t, double> losses = TokenLosses(text, model, options);
  const std::vector<double> weights = testing::InitialWeights(model, kSmallVocab, 31);
  const CausalWalk walk = CausalWalk::Create(text, model, options).value();
  const auto score =
      ScoreCausally(walk, model, test::ViewOf(weights), kSmallVocab, testing::SharedReference())
          .value();
  EXPECT_EQ(score.losses.targets, 49);
  double sum = 0;
  std::vector<int64_t> counts(kSmallVocab);
  for (const auto& [token, loss] : losses) {
    sum += loss;
    ++counts[text.tokens[token]];
  }
  EXPECT_NEAR(score.losses.loss, sum, 1e-12 * sum);
  EXPECT_EQ(score.label_counts, counts);
  EXPECT_EQ(score.context_min, 1);
  EXPECT_LE(score.context_sum, 49.0 * 8);
  EXPECT_GT(score.context_sum, 0.7 * 49 * 8);
}

// Lanes begin early enough that their memory is that of one lane.
TEST_P(CausalScoreTest, TheNumberOfLanesDoesNotMatter) {
  const data::MemoryText text = Text(97);
  for (const int64_t mem_len : {0, 6, 9}) {
    const auto losses = [&](int64_t lanes) {
      return TokenLosses(text, Model(mem_len), {4, lanes, false, GetParam()});
    };
    const std::map<int64_t, double> one = losses(1);
    EXPECT_EQ(one.size(), 96u);
    for (const int64_t lanes : {2, 3, 8, 40}) ExpectSameLosses(one, losses(lanes));
  }
  if (GetParam()) return;
  const std::map<int64_t, double> one = TokenLosses(text, Model(0), Windows(10, 4, 1));
  for (const int64_t lanes : {2, 7})
    ExpectSameLosses(one, TokenLosses(text, Model(0), Windows(10, 4, lanes)));
}

INSTANTIATE_TEST_SUITE_P(Streams, CausalScoreTest, ::testing::Bool());

TEST(CausalWalkErrorTest, NamesWhatDoesNotFit) {
  const data::MemoryText text = Text(5);
  const auto status = [&](int64_t mem_len, const CausalWalkOptions& options) {
    return CausalWalk::Create(text, Model(mem_len), options).status();
  };
  EXPECT_TRUE(status(4, {4, 5, false, false}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(status(0, {4, 1, true, false})));
  EXPECT_TRUE(absl::IsInvalidArgument(status(4, {0, 1, false, false})));
  EXPECT_TRUE(absl::IsInvalidArgument(status(6, {4, 1, false, false})));
}

}  // namespace
}  // namespace anyorder
