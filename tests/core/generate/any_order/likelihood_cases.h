// Networks and texts whose likelihoods are asked for.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "core/generate/any_order/likelihood.h"
#include "tests/core/generate/any_order/plain_pass.h"
#include "tests/core/network/model_testing.h"

namespace anyorder::testing::likelihood_test {

inline constexpr int32_t kVocab = 5;
// Rounding of sums of at most 64 terms through a dozen operations.
inline constexpr double kDoubleBound = 1e-12;

// What the objective's networks are to methods that write; five tokens, of which 1 ends a text and
// 4 is the mask.
inline CanvasModel CanvasModelOf(const std::string& name, const std::string& objective,
                                 Backbone backbone, const AnyOrderConfig& config = {}) {
  CanvasModel made{
      .name = name, .model = SmallModel(), .form = {}, .vocab_size = kVocab, .weights = {}};
  made.model.mem_len = 0;
  backbone(made.model);
  const SamplingConfig sampling =
      objective == "permutation_lm" ? SmallSampling() : OneWaySampling(16, config);
  made.form = MakeObjectiveOrDie(objective, made.model, sampling)
                  ->Canvas({.mask = 4, .end_of_document = 1})
                  .value();
  made.weights = InitialWeights(made.model, made.vocab_size, 61);
  return made;
}

struct Case {
  std::string name;
  std::string objective;
  Backbone backbone;
  AnyOrderConfig config = {};

  CanvasModel Make() const { return CanvasModelOf(name, objective, backbone, config); }
};
inline void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

inline AnyOrderConfig BlocksOf(int64_t block_len, bool shifted = false) {
  return {.keep_first_token = shifted, .shifted_readout = shifted, .block_len = block_len};
}
inline AnyOrderConfig Eso(EsoForm form, double share) {
  return {.eso_form = form, .diffusion_share = share};
}

inline absl::StatusOr<std::vector<LogLikelihood>> TryScore(
    const CanvasModel& model, const std::vector<ScoredText>& texts,
    const ScoreOptions& options = {}, kernels::Backend& backend = SharedReference()) {
  return ScoreTexts(*StoredModel(model, backend), texts, options);
}
inline std::vector<LogLikelihood> Score(const CanvasModel& model,
                                        const std::vector<ScoredText>& texts,
                                        const ScoreOptions& options = {}) {
  return TryScore(model, texts, options).value();
}

// Texts of 3 to 9 tokens, asked at random, a causal one about its end.
inline std::vector<ScoredText> RandomTexts(const CanvasForm& form, size_t count, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kPairs, 0, 0);
  std::vector<ScoredText> texts(count);
  for (ScoredText& text : texts) {
    const auto length = static_cast<int64_t>(3 + random.Below(7));
    for (int64_t i = 0; i < length; ++i)
      text.tokens.push_back(static_cast<int32_t>(random.Below(kVocab)));
    const int64_t first = form.first_given ? 1 : 0;
    for (int64_t i = first; i < length; ++i)
      if (random.Below(2) == 0) text.asked.push_back(i);
    if (text.asked.empty()) text.asked.push_back(length - 1);
    if (form.family != CanvasFamily::kCausal) continue;
    const auto asked = static_cast<int64_t>(text.asked.size());
    std::iota(text.asked.begin(), text.asked.end(), length - asked);
  }
  return texts;
}

inline void ExpectSameBits(const std::vector<LogLikelihood>& some,
                           const std::vector<LogLikelihood>& expected) {
  ASSERT_EQ(some.size(), expected.size());
  for (size_t n = 0; n < some.size(); ++n) {
    EXPECT_EQ(some[n].log_prob, expected[n].log_prob) << n;
    EXPECT_EQ(some[n].standard_error, expected[n].standard_error) << n;
    EXPECT_EQ(some[n].is_exact, expected[n].is_exact) << n;
    EXPECT_EQ(some[n].is_greedy, expected[n].is_greedy) << n;
    EXPECT_EQ(some[n].token_log_probs, expected[n].token_log_probs) << n;
  }
}

inline int32_t LikeliestOf(const std::vector<double>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// A text with its asked tokens blank, and the places of the others.
struct Asked {
  explicit Asked(const ScoredText& text) : blank(text.tokens) {
    for (const int64_t position : text.asked) blank[position] = kBlank;
    for (const int64_t position : GivenOf(blank)) given.push_back({position, blank[position]});
  }
  std::vector<int32_t> blank;
  std::vector<PlacedToken> given;
};

}  // namespace anyorder::testing::likelihood_test
