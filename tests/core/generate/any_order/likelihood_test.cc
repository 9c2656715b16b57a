// Exact likelihoods against one-token passes; the bound of Eso-LM against the mean over orders.
// refusals.

#include "core/generate/any_order/likelihood.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/core/generate/any_order/likelihood_cases.h"
#include "tests/core/network/counting_backend.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::testing::likelihood_test {
namespace {

// Networks whose likelihoods are exact: the asked tokens in turn.
class ExactLikelihoodTest : public ::testing::TestWithParam<Case> {
 protected:
  // Logits of each asked token given those before it.
  LogitRows InTurn(const ScoredText& text) {
    Asked asked(text);
    LogitRows rows;
    const size_t num_given = asked.given.size();
    for (const int64_t position : text.asked) {
      if (model_.form.family == CanvasFamily::kBlocks) {
        rows.push_back(
            ReadBlanks(pass_, model_.form, asked.blank, {position}, position, position + 1)[0]);
      } else {
        rows.push_back(ReadNext(pass_, model_.form, asked.given, num_given, position));
      }
      asked.given.push_back({position, text.tokens[position]});
      asked.blank[position] = text.tokens[position];
    }
    return rows;
  }

  CanvasModel model_ = GetParam().Make();
  PlainPass pass_{model_};
};

TEST_P(ExactLikelihoodTest, TokensHaveTheProbabilitiesOfOneTokenPasses) {
  EXPECT_TRUE(ScoresExactly(model_.form));
  std::vector<ScoredText> texts = RandomTexts(model_.form, 20, 1);
  for (ScoredText& text : texts) text.likeliest = 2;
  const std::vector<LogLikelihood> scores = Score(model_, texts);
  ASSERT_EQ(scores.size(), texts.size());
  for (size_t n = 0; n < texts.size(); ++n) {
    const LogitRows rows = InTurn(texts[n]);
    double sum = 0;
    bool is_greedy = true;
    ASSERT_EQ(scores[n].token_log_probs.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const int32_t token = texts[n].tokens[texts[n].asked[i]];
      const double log_prob = LogOfSoftmax(rows[i], token);
      EXPECT_NEAR(scores[n].token_log_probs[i], log_prob, kDoubleBound * (1 - log_prob));
      sum += log_prob;
      is_greedy &= LikeliestOf(rows[i]) == token;
      if (model_.form.family == CanvasFamily::kBlocks) continue;
      const std::vector<LikelyToken>& likeliest = scores[n].token_likeliest.at(i);
      ASSERT_EQ(likeliest.size(), 2u);
      EXPECT_EQ(likeliest[0].token, LikeliestOf(rows[i]));
      EXPECT_GE(likeliest[0].log_prob, likeliest[1].log_prob);
      // The very number, by which clients tell whether the text is what the model would write.
      EXPECT_TRUE(likeliest[0].token != token ||
                  likeliest[0].log_prob == scores[n].token_log_probs[i]);
    }
    EXPECT_NEAR(scores[n].log_prob, sum, kDoubleBound * (1 - sum)) << n;
    EXPECT_EQ(scores[n].standard_error, 0);
    EXPECT_TRUE(scores[n].is_exact);
    EXPECT_EQ(scores[n].is_greedy, is_greedy);
  }
}

TEST_P(ExactLikelihoodTest, ProbabilitiesOfAllContinuationsSumToOne) {
  ScoredText text{.tokens = {3, 0, 0, 2, 0}, .asked = {1, 2, 4}};
  if (model_.form.family == CanvasFamily::kCausal) text.asked = {2, 3, 4};
  std::vector<ScoredText> all;
  for (int32_t number = 0; number < kVocab * kVocab * kVocab; ++number) {
    int32_t rest = number;
    for (const int64_t position : text.asked) {
      text.tokens[position] = rest % kVocab;
      rest /= kVocab;
    }
    all.push_back(text);
  }
  double sum = 0;
  for (const LogLikelihood& score : Score(model_, all)) sum += std::exp(score.log_prob);
  EXPECT_NEAR(sum, 1, 125 * kDoubleBound);
}

TEST_P(ExactLikelihoodTest, GreedyTextsAreThoseThatWritingGives) {
  std::vector<ScoredText> texts = RandomTexts(model_.form, 10, 2);
  for (ScoredText& text : texts) {
    for (const int64_t position : text.asked) {
      const size_t at =
          std::find(text.asked.begin(), text.asked.end(), position) - text.asked.begin();
      text.tokens[position] = LikeliestOf(InTurn(text)[at]);
    }
  }
  if (model_.form.family != CanvasFamily::kCausal && model_.form.family != CanvasFamily::kBlocks) {
    std::vector<Canvas> canvases;
    for (const ScoredText& text : texts) canvases.push_back({.tokens = Asked(text).blank});
    const WriteOptions options = {.method = WriteMethod::kSequential,
                                  .draw = {.cuts = {.temperature = 0}}};
    const std::vector<WrittenText> written = Write(model_, canvases, options);
    for (size_t n = 0; n < texts.size(); ++n) EXPECT_EQ(written[n].tokens, texts[n].tokens);
  }
  for (const LogLikelihood& score : Score(model_, texts)) EXPECT_TRUE(score.is_greedy);
  for (ScoredText& text : texts) {
    int32_t& last = text.tokens[text.asked.back()];
    last = (last + 1) % kVocab;
  }
  for (const LogLikelihood& score : Score(model_, texts)) EXPECT_FALSE(score.is_greedy);
}

TEST_P(ExactLikelihoodTest, CompanyDoesNotChangeABit) {
  const std::vector<ScoredText> texts = RandomTexts(model_.form, 11, 3);
  const std::vector<LogLikelihood> expected = Score(model_, texts);
  for (const int64_t batch : {1, 4})
    ExpectSameBits(Score(model_, texts, {.batch = batch}), expected);
}

INSTANTIATE_TEST_SUITE_P(Networks, ExactLikelihoodTest,
                         ::testing::Values(Case{"xlnet", "permutation_lm", BackboneXlnet},
                                           Case{"as_arm_rope", "as_arm", BackboneRope},
                                           Case{"sigma_gpt", "sigma_gpt", BackbonePairs},
                                           Case{"causal_relative", "causal_lm", BackboneXlnet},
                                           Case{"causal_learned", "causal_lm", BackboneLearned},
                                           Case{"blocks_of_one", "block_diffusion", BackboneRope,
                                                BlocksOf(1)},
                                           Case{"blocks_of_one_shifted", "block_diffusion",
                                                BackboneLearned, BlocksOf(1, true)}),
                         [](const auto& info) { return info.param.name; });

// The mean over the orders in which Eso-LM writes: each blank is diffusion's with probability
// alpha_0, those come first in random order, the others follow from left to right. Given tokens
// stand in random order, too.
double EsoBound(const CanvasModel& model, const ScoredText& text, double share) {
  PlainPass pass(model);
  Asked asked(text);
  std::vector<size_t> given(asked.given.size());
  std::iota(given.begin(), given.end(), 0);
  const size_t length = text.asked.size();
  double sum = 0, orders = 0;
  do {
    std::vector<int64_t> blanks = text.asked;
    do {
      for (uint32_t taken = 0; taken <= length; ++taken) {
        std::vector<int64_t> order = blanks;
        std::sort(order.begin() + taken, order.end());
        double chosen = 1;  // binomial
        for (uint32_t i = 0; i < taken; ++i)
          chosen *= static_cast<double>(length - i) / (i + 1) * share;
        chosen *= std::pow(1 - share, length - taken);
        std::vector<PlacedToken> known;
        for (const size_t i : given) known.push_back(asked.given[i]);
        for (const int64_t position : order) {
          sum += chosen * LogOfSoftmax(ReadNext(pass, model.form, known, given.size(), position),
                                       text.tokens[position]);
          known.push_back({position, text.tokens[position]});
        }
      }
      ++orders;
    } while (std::next_permutation(blanks.begin(), blanks.end()));
  } while (std::next_permutation(given.begin(), given.end()));
  return sum / orders;
}

TEST(EsoLikelihoodTest, TheEstimatesMeanIsThatOverOrders) {
  const ScoredText text{.tokens = {3, 0, 2, 1, 4}, .asked = {0, 2, 3}, .wants_greedy = true};
  for (const double share : {0.0, 0.4, 1.0}) {
    const CanvasModel model = CanvasModelOf("eso", "eso_lm", BackboneRope, Eso(EsoForm::kB, share));
    EXPECT_FALSE(ScoresExactly(model.form));
    const std::vector<LogLikelihood> scores =
        Score(model, {text, text}, {.samples = 4000, .batch = 500});
    EXPECT_NEAR(scores[0].log_prob, EsoBound(model, text, share), 5 * scores[0].standard_error);
    EXPECT_GT(scores[0].standard_error, 0);
    EXPECT_FALSE(scores[0].is_exact);
    EXPECT_FALSE(scores[0].is_greedy);
    EXPECT_EQ(scores[0].log_prob, scores[1].log_prob);
    ExpectSameBits(Score(model, {text, text}, {.samples = 4000, .batch = 300}), scores);
  }
}

TEST(LikelihoodMemoryTest, ALastGroupThatIsNotFullTakesNoMore) {
  for (const CanvasModel& model :
       {CanvasModelOf("as_arm", "as_arm", BackboneXlnet),
        CanvasModelOf("masked", "masked_diffusion", BackboneRope),
        CanvasModelOf("eso", "eso_lm", BackboneRope, Eso(EsoForm::kB, 0))}) {
    SCOPED_TRACE(model.name);
    const auto bytes_of = [&](size_t count, int64_t samples) {
      const std::vector<ScoredText> texts(count, {.tokens = {3, 0, 2, 1}, .asked = {2}});
      CountingBackend backend(model.vocab_size);
      EXPECT_TRUE(TryScore(model, texts, {.samples = samples, .batch = 4}, backend).ok());
      return backend.bytes();
    };
    EXPECT_EQ(bytes_of(5, 7), bytes_of(4, 4));
    EXPECT_EQ(bytes_of(7, 9), bytes_of(4, 4));
  }
}

TEST(LikelihoodMemoryTest, ActivationsThatDoNotFitAreOfFewerTexts) {
  for (const CanvasModel& model :
       {CanvasModelOf("as_arm", "as_arm", BackboneXlnet),
        CanvasModelOf("masked", "masked_diffusion", BackboneRope),
        CanvasModelOf("blocks", "block_diffusion", BackboneRope, BlocksOf(4)),
        CanvasModelOf("eso", "eso_lm", BackboneRope, Eso(EsoForm::kB, 0.5))}) {
    SCOPED_TRACE(model.name);
    const std::vector<ScoredText> texts = RandomTexts(model.form, 6, 10);
    const auto score = [&](int64_t batch, int64_t pass_bytes, int64_t* bytes) {
      CountingBackend backend(model.vocab_size);
      const std::vector<LogLikelihood> scores =
          TryScore(model, texts, {.samples = 5, .batch = batch, .pass_bytes = pass_bytes}, backend)
              .value();
      *bytes = backend.bytes();
      return scores;
    };
    const ScoreOptions usual;
    int64_t at_once = 0, one_by_one = 0, limited = 0;
    const std::vector<LogLikelihood> expected = score(5, usual.pass_bytes, &at_once);
    ExpectSameBits(score(1, usual.pass_bytes, &one_by_one), expected);
    ExpectSameBits(score(5, 1, &limited), expected);
    EXPECT_EQ(limited, one_by_one);
    ExpectSameBits(score(5, int64_t{1} << 17, &limited), expected);
  }
}

TEST(LikelihoodTest, OfNoTextIsNone) {
  for (const char* const name : {"as_arm", "masked_diffusion", "eso_lm"}) {
    const absl::StatusOr<std::vector<LogLikelihood>> scores =
        TryScore(CanvasModelOf(name, name, BackboneRope), {});
    EXPECT_TRUE(scores.ok() && scores->empty()) << name;
  }
}

void ExpectRefused(const CanvasModel& model, const ScoredText& text, const std::string& part) {
  const absl::Status status = TryScore(model, {text}).status();
  EXPECT_THAT(status, Fails(absl::IsFailedPrecondition, part));
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
}

TEST(LikelihoodRefusalTest, SaysWhatTheNetworkCannotSay) {
  const ScoredText middle{.tokens = {3, 0, 2, 1}, .asked = {1, 2}};
  const ScoredText begin{.tokens = {3, 0, 2, 1}, .asked = {0, 1, 2, 3}};
  ExpectRefused(CanvasModelOf("causal", "causal_lm", BackboneXlnet), middle,
                "ask about the end of the text, or use an any-order model");
  for (const EsoForm form : {EsoForm::kA, EsoForm::kMixed}) {
    ExpectRefused(CanvasModelOf("eso", "eso_lm", BackboneRope, Eso(form, 0.5)), middle,
                  "in its form \"b\" only (sampling.eso_form)");
  }
  const std::string first = "has not learned to predict the first one";
  ExpectRefused(CanvasModelOf("causal", "causal_lm", BackboneXlnet), begin, first);
  ExpectRefused(CanvasModelOf("sigma", "sigma_gpt", BackbonePairs), begin, first);
  const ScoredText front{.tokens = {3, 0, 2, 1}, .asked = {0, 2}};
  ExpectRefused(CanvasModelOf("dream", "masked_diffusion", BackboneRope, BlocksOf(4, true)), front,
                first);
  // A prompt is always there, so that its first token was never predicted.
  ExpectRefused(
      CanvasModelOf("dream_sft", "masked_diffusion_sft", BackboneRope, {.shifted_readout = true}),
      front, first);
  // Of pairs one given token is enough, wherever it stands.
  EXPECT_TRUE(TryScore(CanvasModelOf("sigma", "sigma_gpt", BackbonePairs), {front}).ok());
  ScoredText longer{.tokens = std::vector<int32_t>(17, 2), .asked = {15, 16}};
  for (const char* const name : {"causal_lm", "masked_diffusion"}) {
    ExpectTooLong(TryScore(CanvasModelOf(name, name, BackboneLearned), {longer}).status(),
                  "17 tokens, but the model has learned 16 positions");
  }
}

}  // namespace
}  // namespace anyorder::testing::likelihood_test
