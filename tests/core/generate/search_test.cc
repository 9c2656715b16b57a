// Searches against a second plain beam search, also one as wide as all texts, and exact
// probabilities, on models that are tables.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "core/base/fields.h"
#include "core/base/philox.h"
#include "core/generate/beam_search.h"
#include "core/generate/sampling.h"
#include "tests/testing/sample_texts.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::testing {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int32_t kEnd = 0;

// Logits that depend on the prompt and the whole text so far, and on nothing else.
class TableModel final : public NextTokens {
 public:
  TableModel(int64_t vocab_size, std::vector<int64_t> prompts, int64_t lanes_per_prompt,
             uint64_t seed)
      : vocab_size_(vocab_size), seed_(seed) {
    for (const int64_t prompt : prompts)
      for (int64_t i = 0; i < lanes_per_prompt; ++i) lanes_.push_back({prompt, {}});
  }

  int64_t vocab_size() const override { return vocab_size_; }
  int64_t lanes() const override { return static_cast<int64_t>(lanes_.size()); }
  int64_t calls() const { return calls_; }

  absl::Status Next(const Tokens& newest, const Tokens& parents) override {
    std::vector<Lane> next;
    for (size_t b = 0; b < lanes_.size(); ++b) {
      next.push_back(lanes_[parents[b]]);
      if (calls_ > 0) next.back().text.push_back(newest[b]);
    }
    lanes_ = next;
    ++calls_;
    return absl::OkStatus();
  }
  absl::StatusOr<const float*> Logits(int64_t lane) override {
    logits_ = LogitsOf(lanes_[lane].prompt, lanes_[lane].text);
    return logits_.data();
  }

  std::vector<float> LogitsOf(int64_t prompt, const Tokens& text) const {
    uint64_t state = seed_ + static_cast<uint64_t>(prompt) * 1000003;
    for (const int32_t token : text)
      state = state * 6364136223846793005u + static_cast<uint64_t>(token) + 1442695040888963407u;
    RandomStream random(state, RandomPurpose::kInit, text.size(), 0);
    std::vector<float> row(static_cast<size_t>(vocab_size_));
    for (float& logit : row) logit = static_cast<float>(2.0 * random.Normal());
    return row;
  }
  double LogProb(int64_t prompt, const Tokens& text, int32_t token) const {
    const std::vector<float> row = LogitsOf(prompt, text);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit));
    return static_cast<double>(row[token]) - std::log(sum);
  }

 private:
  struct Lane {
    int64_t prompt;
    Tokens text;
  };
  int64_t vocab_size_;
  uint64_t seed_;
  std::vector<Lane> lanes_;
  std::vector<float> logits_;
  int64_t calls_ = 0;
};

// The same logits whatever comes before.
class ConstantModel final : public NextTokens {
 public:
  ConstantModel(std::vector<float> logits, int64_t lanes)
      : logits_(std::move(logits)), lanes_(lanes) {}
  int64_t vocab_size() const override { return static_cast<int64_t>(logits_.size()); }
  int64_t lanes() const override { return lanes_; }
  absl::Status Next(const Tokens&, const Tokens&) override { return absl::OkStatus(); }
  absl::StatusOr<const float*> Logits(int64_t) override { return logits_.data(); }

 private:
  std::vector<float> logits_;
  int64_t lanes_;
};

// Searches of models that never fail.
std::vector<std::vector<Hypothesis>> Searched(NextTokens& model, const BeamOptions& options) {
  return BeamSearch(model, options).value();
}
std::vector<Hypothesis> Sampled(NextTokens& model, const SampleOptions& options,
                                uint64_t first_stream = 0) {
  std::vector<uint64_t> streams(static_cast<size_t>(model.lanes()));
  std::iota(streams.begin(), streams.end(), first_stream);
  return SampleTexts(model, options, streams).value();
}

TokenRules Rules(int64_t max_tokens) { return {.end_token = kEnd, .max_tokens = max_tokens}; }

double Score(const Hypothesis& text, double alpha) {
  return text.log_prob / std::pow((5.0 + static_cast<double>(text.length())) / 6.0, alpha);
}

// The search without early stop, by sorting everything. If it is as wide as there are texts it has
// all of them.
std::vector<Hypothesis> PlainBeamSearch(const TableModel& model, const BeamOptions& options,
                                        int64_t prompt) {
  struct Step {
    Hypothesis text;
    int32_t token;
  };
  std::vector<Hypothesis> live(1), finished;
  for (int64_t t = 0; t < options.rules.max_tokens; ++t) {
    std::vector<Step> steps;
    for (const Hypothesis& text : live) {
      for (int32_t token = 0; token < model.vocab_size(); ++token) {
        if (token == kEnd && t < options.rules.min_tokens) continue;
        Step step{text, token};
        step.text.log_prob += model.LogProb(prompt, text.tokens, token);
        steps.push_back(step);
      }
    }
    std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
      return a.text.log_prob > b.text.log_prob;
    });
    live.clear();
    for (size_t rank = 0; rank < steps.size(); ++rank) {
      Step& step = steps[rank];
      if (step.token == kEnd) {
        step.text.ended = true;
        if (static_cast<int64_t>(rank) < options.width) finished.push_back(step.text);
      } else if (static_cast<int64_t>(live.size()) < options.width) {
        step.text.tokens.push_back(step.token);
        live.push_back(step.text);
      }
    }
  }
  finished.insert(finished.end(), live.begin(), live.end());
  std::stable_sort(finished.begin(), finished.end(), [&](const Hypothesis& a, const Hypothesis& b) {
    return Score(a, options.length_penalty) > Score(b, options.length_penalty);
  });
  finished.resize(std::min<size_t>(finished.size(), static_cast<size_t>(options.width)));
  return finished;
}

// Expects the texts of the plain search; how many steps it took.
int64_t ExpectPlainSearch(int64_t vocab_size, uint64_t seed, const BeamOptions& options) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed << " width " << options.width);
  TableModel model(vocab_size, {0}, options.width, seed);
  const std::vector<Hypothesis> found = Searched(model, options).front();
  const std::vector<Hypothesis> expected = PlainBeamSearch(model, options, 0);
  EXPECT_EQ(found.size(), expected.size());
  // Each step an fp32 exponential per token and a few roundings in double.
  const double bound = 1e-6 * static_cast<double>(options.rules.max_tokens);
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    EXPECT_EQ(found[i].tokens, expected[i].tokens) << i;
    EXPECT_EQ(found[i].ended, expected[i].ended) << i;
    EXPECT_NEAR(found[i].log_prob, expected[i].log_prob, bound) << i;
    EXPECT_NEAR(found[i].score, Score(expected[i], options.length_penalty), bound) << i;
  }
  return model.calls();
}

TEST(BeamSearchTest, AsWideAsAllTextsFindsTheBestOfThem) {
  constexpr int64_t kVocab = 4;
  constexpr int64_t kLongest = 4;
  constexpr int64_t kWidth = 256;  // kVocab ^ kLongest
  for (const double alpha : {0.0, 0.6, 2.0}) {
    for (const int64_t min_tokens : {0, 2}) {
      BeamOptions options = {.width = kWidth, .length_penalty = alpha, .rules = Rules(kLongest)};
      options.rules.min_tokens = min_tokens;
      ASSERT_TRUE(options.Validate().ok());
      const uint64_t seed = 17 + static_cast<uint64_t>(min_tokens);
      ExpectPlainSearch(kVocab, seed, options);
      // 3 ^ n texts of n tokens.
      const TableModel model(kVocab, {0}, kWidth, seed);
      EXPECT_EQ(PlainBeamSearch(model, options, 0).size(),
                min_tokens == 0 ? 1 + 3 + 9 + 27 + 81 : 9 + 27 + 81);
    }
  }
}

TEST(BeamSearchTest, StopsEarlyOnlyWhereNothingBetterCanCome) {
  int64_t steps = 0;
  constexpr int64_t kLongest = 12;
  constexpr uint64_t kModels = 40;
  for (uint64_t seed = 0; seed < kModels; ++seed) {
    for (const int64_t width : {1, 2, 5}) {
      BeamOptions options = {.width = width, .rules = Rules(kLongest)};
      options.length_penalty = seed % 2 == 0 ? 0.0 : 0.9;
      options.rules.min_tokens = static_cast<int64_t>(seed % 3);
      steps += ExpectPlainSearch(6, seed, options);
    }
  }
  EXPECT_LT(steps, static_cast<int64_t>(kModels) * 3 * kLongest) << "no search stopped early";
}

TEST(BeamSearchTest, PromptsSideBySideGetWhatEachGetsAlone) {
  const BeamOptions options = {.width = 3, .length_penalty = 0.6, .rules = Rules(8)};
  const std::vector<int64_t> prompts = {4, 9, 2, 7};
  TableModel together(7, prompts, options.width, 5);
  const std::vector<std::vector<Hypothesis>> found = Searched(together, options);
  ASSERT_EQ(found.size(), prompts.size());
  for (size_t n = 0; n < prompts.size(); ++n) {
    TableModel alone(7, {prompts[n]}, options.width, 5);
    const std::vector<Hypothesis> expected = Searched(alone, options).front();
    ASSERT_EQ(found[n].size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(found[n][i].tokens, expected[i].tokens);
      EXPECT_EQ(found[n][i].score, expected[i].score);
    }
  }
}

TEST(BeamSearchTest, EqualProbabilitiesAreOrderedByTextThenToken) {
  ConstantModel model({-20, 1, 1, 1}, 2);
  const BeamOptions options = {.width = 2, .rules = Rules(3)};
  const std::vector<Hypothesis> found = Searched(model, options).front();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].tokens, (Tokens{1, 1, 1}));
  EXPECT_EQ(found[1].tokens, (Tokens{1, 1, 2}));
  EXPECT_FALSE(found[0].ended);
}

TEST(BeamSearchTest, FirstStopTakesTheFirstFinishedTexts) {
  // The end token is always second best: each step finishes one text, and going on never helps.
  ConstantModel model({0, 1, -9}, 2);
  const BeamOptions options = {.width = 2, .stop = SearchStop::kFirst, .rules = Rules(50)};
  const std::vector<Hypothesis> found = Searched(model, options).front();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].tokens, Tokens{});
  EXPECT_EQ(found[1].tokens, Tokens{1});
  EXPECT_TRUE(found[1].ended);
}

bool HasRepeatedNgram(const Tokens& tokens, size_t n) {
  std::set<Tokens> seen;
  for (size_t i = 0; i + n <= tokens.size(); ++i)
    if (!seen.insert(Tokens(tokens.begin() + static_cast<int64_t>(i),
                            tokens.begin() + static_cast<int64_t>(i + n)))
             .second)
      return true;
  return false;
}

TEST(TokenRulesTest, BlockedNgramsNeverComeTwice) {
  constexpr int64_t kLongest = 24;
  for (const int64_t n : {1, 2, 3}) {
    std::vector<float> logits = {-30, 3, 2.9f, 2, 1, 0.5f};
    logits.resize(26);
    BeamOptions beam = {.width = 3, .rules = Rules(kLongest)};
    ConstantModel model(logits, 3);
    EXPECT_TRUE(HasRepeatedNgram(Searched(model, beam).front().front().tokens, n));
    beam.rules.block_ngram = n;
    const std::vector<std::vector<Hypothesis>> found = Searched(model, beam);
    ASSERT_FALSE(found.front().empty());
    for (const Hypothesis& text : found.front()) {
      EXPECT_EQ(text.length(), kLongest);
      EXPECT_FALSE(HasRepeatedNgram(text.tokens, n)) << n;
    }
    const SampleOptions sample = {.rules = beam.rules};
    ConstantModel drawn(logits, 20);
    for (const Hypothesis& text : Sampled(drawn, sample))
      EXPECT_FALSE(HasRepeatedNgram(text.tokens, n)) << n;
  }
}

TEST(TokenRulesTest, LengthsAndBannedTokensHold) {
  ConstantModel model({9, 5, 1, 0}, 2);  // the end token is by far the likeliest
  BeamOptions options = {.width = 2, .rules = Rules(6)};
  options.rules.min_tokens = 3;
  options.rules.banned = {0, 1, 0, 0};
  const std::vector<std::vector<Hypothesis>> found = Searched(model, options);
  for (const Hypothesis& text : found.front()) {
    EXPECT_GE(text.tokens.size(), 3u);
    EXPECT_LE(text.length(), 6);
    EXPECT_EQ(std::count(text.tokens.begin(), text.tokens.end(), 1), 0);
  }
  EXPECT_EQ(found.front().front().tokens, (Tokens{2, 2, 2}));
}

// A network that wants nothing but them.
TEST(TokenRulesTest, BannedTokensAreInNoTextHoweverItIsChosen) {
  const std::vector<float> logits = {-1, 40, 30, 0, 0.5f, 20};
  TokenRules rules = Rules(8);
  rules.banned = {0, 1, 1, 0, 0, 1};
  const auto expect_none = [&](const Hypothesis& text) {
    for (const int32_t token : text.tokens) EXPECT_TRUE(token == 3 || token == 4) << token;
  };
  for (const int64_t block_ngram : {0, 2}) {
    rules.block_ngram = block_ngram;
    for (const int64_t width : {1, 4}) {
      for (const SearchStop stop : {SearchStop::kExact, SearchStop::kFirst}) {
        ConstantModel model(logits, width);
        const BeamOptions options = {.width = width, .stop = stop, .rules = rules};
        const std::vector<std::vector<Hypothesis>> found = Searched(model, options);
        EXPECT_FALSE(found.front().empty());
        for (const Hypothesis& text : found.front()) expect_none(text);
      }
    }
    const SampleOptions ways[] = {{.rules = rules},
                                  {.cuts = {.temperature = 50}, .rules = rules},
                                  {.cuts = {.top_k = 2}, .rules = rules},
                                  {.cuts = {.top_p = 0.5}, .rules = rules}};
    for (const SampleOptions& options : ways) {
      ConstantModel model(logits, 50);
      for (const Hypothesis& text : Sampled(model, options)) expect_none(text);
    }
  }
}

TEST(TokenRulesTest, WhereNoTokenIsAllowedTheTextStops) {
  ConstantModel model({0, 1}, 1);
  BeamOptions options = {.rules = Rules(4)};
  options.rules.min_tokens = 3;
  options.rules.banned = {0, 1};
  EXPECT_TRUE(Searched(model, options).front().empty());
  const SampleOptions sample = {.rules = options.rules};
  const Hypothesis text = Sampled(model, sample).front();
  EXPECT_TRUE(text.tokens.empty());
  EXPECT_FALSE(text.ended);
}

TEST(SamplingTest, DrawsTokensAsOftenAsTheirProbabilitySays) {
  const std::vector<float> logits = {-1, 2, 1, 0.5f, -2};
  constexpr int64_t kDraws = 20000;
  constexpr double kTemperature = 1.5;
  ConstantModel model(logits, kDraws);
  const SampleOptions options = {.cuts = {.temperature = kTemperature}, .rules = Rules(1)};
  std::map<int32_t, int64_t> counts;
  for (const Hypothesis& text : Sampled(model, options))
    ++counts[text.ended ? kEnd : text.tokens.front()];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit / kTemperature);
  for (int32_t token = 0; token < 5; ++token) {
    const double p = std::exp(logits[token] / kTemperature) / sum;
    // Five standard deviations of a binomial: one in 1.7 million by chance.
    EXPECT_NEAR(counts[token], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p))) << token;
  }
}

TEST(SamplingTest, CutsLeaveTheLikeliestTokens) {
  const std::vector<float> logits = {-9, 2, 1, 1.5f, -2};  // of 1, 3, 2, 4: 0.50, 0.30, 0.18, 0.01
  const auto drawn = [&](int64_t top_k, double top_p) {
    ConstantModel model(logits, 500);
    const SampleOptions options = {.cuts = {.top_k = top_k, .top_p = top_p}, .rules = Rules(1)};
    std::set<int32_t> tokens;
    for (const Hypothesis& text : Sampled(model, options)) tokens.insert(text.tokens.front());
    return tokens;
  };
  EXPECT_EQ(drawn(1, 1.0), (std::set<int32_t>{1}));
  EXPECT_EQ(drawn(2, 1.0), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(drawn(0, 0.45), (std::set<int32_t>{1}));
  EXPECT_EQ(drawn(0, 0.75), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(drawn(0, 0.9), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(drawn(2, 0.9), (std::set<int32_t>{1, 3}));
}

TEST(SamplingTest, TheLikeliestTokensAreTold) {
  for (const int64_t count : {0, 1, 3, 9}) {
    TableModel model(6, {4}, 1, 5);
    const SampleOptions options = {.rules = Rules(8), .likeliest = count};
    Tokens text;
    const auto listener = [&](int64_t, const WrittenToken& written) {
      ASSERT_EQ(written.likeliest.size(), static_cast<size_t>(std::min<int64_t>(count, 6)));
      double last = 0;
      for (const LikelyToken& one : written.likeliest) {
        EXPECT_LE(one.log_prob, last);
        EXPECT_NEAR(one.log_prob, model.LogProb(4, text, one.token), 1e-6);
        EXPECT_TRUE(one.token != written.token || one.log_prob == written.log_prob);
        last = one.log_prob;
      }
      text.push_back(written.token);
    };
    ASSERT_TRUE(SampleTexts(model, options, {0}, listener).ok());
  }
  const std::vector<float> equal(4, 1.5f);
  const auto likeliest = LikeliestTokens(equal.data(), 4, 2);
  EXPECT_EQ(likeliest[0].token, 0);
  EXPECT_EQ(likeliest[1].token, 1);
  EXPECT_NEAR(likeliest[1].log_prob, -std::log(4.0), 1e-6);
}

// Rules have a number for each token of the vocabulary.
TEST(SamplingTest, TextsShareTheirOptions) {
  EXPECT_LE(sizeof(SampledText), sizeof(Hypothesis) + 4 * sizeof(int64_t));
}

TEST(SamplingTest, ATextDependsOnSeedAndNumberAlone) {
  SampleOptions options = {.seed = 3, .rules = Rules(10)};
  TableModel together(9, {0, 0, 0, 0}, 1, 8);
  const std::vector<Hypothesis> all = Sampled(together, options, 100);
  std::set<Tokens> different;
  for (int64_t i = 0; i < 4; ++i) {
    TableModel alone(9, {0}, 1, 8);
    const Hypothesis text = Sampled(alone, options, 100 + i).front();
    EXPECT_EQ(text.tokens, all[i].tokens);
    EXPECT_EQ(text.log_prob, all[i].log_prob);
    different.insert(text.tokens);
    double log_prob = 0;
    Tokens before;
    for (const int32_t token : text.tokens) {
      log_prob += together.LogProb(0, before, token);
      before.push_back(token);
    }
    if (text.ended) log_prob += together.LogProb(0, before, kEnd);
    EXPECT_NEAR(text.log_prob, log_prob, 1e-5);
  }
  EXPECT_GT(different.size(), 1u);
  options.seed = 4;
  TableModel other(9, {0, 0, 0, 0}, 1, 8);
  EXPECT_NE(Sampled(other, options, 100)[0].tokens, all[0].tokens);
}

// Goes wrong at its third step, or in that step's second lane.
class FailingModel final : public NextTokens {
 public:
  explicit FailingModel(bool in_lane) : in_lane_(in_lane) {}
  int64_t vocab_size() const override { return 4; }
  int64_t lanes() const override { return 2; }
  absl::Status Next(const Tokens&, const Tokens&) override {
    return ++calls == 3 && !in_lane_ ? error : absl::OkStatus();
  }
  absl::StatusOr<const float*> Logits(int64_t lane) override {
    if (calls == 3 && lane == 1) return error;
    return logits_.data();
  }
  const absl::Status error = absl::FailedPreconditionError("the third step");
  int64_t calls = 0;

 private:
  const bool in_lane_;
  const std::vector<float> logits_ = {-9, 1, 2, 3};
};

TEST(SearchErrorTest, EndsTheSearchAtTheStepThatFails) {
  for (const bool in_lane : {false, true}) {
    FailingModel sampled(in_lane), searched(in_lane);
    EXPECT_EQ(SampleTexts(sampled, {.rules = Rules(9)}, {0, 1}).status(), sampled.error);
    EXPECT_EQ(BeamSearch(searched, {.width = 2, .rules = Rules(9)}).status(), searched.error);
    EXPECT_EQ(sampled.calls, 3);
    EXPECT_EQ(searched.calls, 3);
  }
}

TEST(SearchOptionsTest, RefuseWhatCannotBeMeant) {
  BeamOptions beam = {.width = 0, .length_penalty = -1};
  EXPECT_THAT(beam.Validate(), Says("length penalty -1"));
  beam = {};
  beam.rules.min_tokens = 128;
  EXPECT_FALSE(beam.Validate().ok());
  FaultList faults;
  CheckBounds("sampling", TokenCuts{.temperature = -1, .top_k = -1, .top_p = 0}, faults);
  EXPECT_THAT(faults.ToStatus(), Says("temperature is -1", "top_p is 0", "top_k is -1"));
}

}  // namespace
}  // namespace anyorder::testing
