// Bounds of masked diffusion, whole and by blocks, against what they are the mean of, by
// enumeration.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/base/philox.h"
#include "tests/core/generate/any_order/likelihood_cases.h"

namespace anyorder::testing::likelihood_test {
namespace {

// Tokens of a text that are predicted together.
struct Part {
  int64_t begin = 0, end = 0;
  std::vector<int64_t> asked;
};
std::vector<Part> PartsOf(const CanvasForm& form, const ScoredText& text) {
  std::vector<Part> parts;
  const auto length = static_cast<int64_t>(text.tokens.size());
  const int64_t size = form.family == CanvasFamily::kBlocks ? form.block_len : length;
  for (int64_t begin = 0; begin < length; begin += size) {
    Part part{begin, std::min(begin + size, length), {}};
    for (const int64_t position : text.asked)
      if (position >= part.begin && position < part.end) part.asked.push_back(position);
    if (!part.asked.empty()) parts.push_back(part);
  }
  return parts;
}

// Networks of masked diffusion, whole or by blocks.
class MaskedLikelihoodTest : public ::testing::TestWithParam<Case> {
 protected:
  // Of tokens at `masked`, the others being there, what is behind the part too.
  double SumOfMasked(const ScoredText& text, const Part& part, const std::vector<int64_t>& masked) {
    std::vector<int32_t> blank = text.tokens;
    for (const int64_t position : masked) blank[position] = kBlank;
    const LogitRows rows = ReadBlanks(pass_, model_.form, blank, masked, part.begin, part.end);
    double sum = 0;
    for (size_t i = 0; i < masked.size(); ++i) sum += LogOfSoftmax(rows[i], text.tokens[masked[i]]);
    return sum;
  }

  // Mean and variance of L / n times that over all sets of n masks, for each n.
  struct Moments {
    std::vector<double> mean, variance;
    double Mean() const {
      return std::accumulate(mean.begin(), mean.end(), 0.0) / static_cast<double>(mean.size());
    }
    double Within() const {
      return std::accumulate(variance.begin(), variance.end(), 0.0) /
             static_cast<double>(mean.size());
    }
    double Between() const {
      double sum = 0;
      for (const double one : mean) sum += (one - Mean()) * (one - Mean());
      return sum / static_cast<double>(mean.size());
    }
  };
  Moments MomentsOf(const ScoredText& text, const Part& part) {
    const size_t length = part.asked.size();
    std::vector<std::vector<double>> values(length);
    for (uint32_t set = 1; set < 1u << length; ++set) {
      std::vector<int64_t> masked;
      for (size_t i = 0; i < length; ++i)
        if ((set >> i & 1) != 0) masked.push_back(part.asked[i]);
      values[masked.size() - 1].push_back(SumOfMasked(text, part, masked) *
                                          static_cast<double>(length) /
                                          static_cast<double>(masked.size()));
    }
    Moments moments;
    for (const std::vector<double>& one : values) {
      const auto count = static_cast<double>(one.size());
      const double mean = std::accumulate(one.begin(), one.end(), 0.0) / count;
      double squares = 0;
      for (const double value : one) squares += (value - mean) * (value - mean);
      moments.mean.push_back(mean);
      moments.variance.push_back(squares / count);
    }
    return moments;
  }
  double Bound(const ScoredText& text) {
    double sum = 0;
    for (const Part& part : PartsOf(model_.form, text)) sum += MomentsOf(text, part).Mean();
    return sum;
  }

  // What ScoreTexts estimates. Only the draws are the product's: which masks is a matter of seed,
  // part and number of tokens.
  LogLikelihood PlainEstimate(const ScoredText& text, const ScoreOptions& options) {
    LogLikelihood result;
    double variance = 0;
    uint64_t number = 0;
    for (const Part& part : PartsOf(model_.form, text)) {
      const auto length = static_cast<double>(part.asked.size());
      const int64_t samples = part.asked.size() == 1 ? 1 : options.samples;
      const auto n = static_cast<double>(samples);
      std::vector<double> values;
      RandomStream shared(options.seed, RandomPurpose::kWritingOrder, 2 * number, 0);
      const double offset = shared.Uniform();
      for (int64_t i = 0; i < samples; ++i) {
        const double place = std::fmod(offset + static_cast<double>(i) / n, 1.0);
        const auto count = 1 + static_cast<size_t>(place * length);
        std::vector<int64_t> order = part.asked;
        RandomStream draws(options.seed, RandomPurpose::kWritingOrder, 2 * number + 1,
                           static_cast<uint64_t>(i));
        for (size_t k = 0; k < count; ++k)
          std::swap(order[k], order[k + draws.Below64(order.size() - k)]);
        order.resize(count);
        values.push_back(SumOfMasked(text, part, order) * length / static_cast<double>(count));
      }
      const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
      result.log_prob += mean;
      for (const double value : values)
        variance += (value - mean) * (value - mean) / n / std::max(1.0, n - 1);
      result.is_exact &= samples == 1;
      ++number;
    }
    result.standard_error = std::sqrt(variance);
    return result;
  }
  void ExpectPlainEstimates(const std::vector<ScoredText>& texts) {
    const ScoreOptions options{.samples = 7, .seed = 9};
    const std::vector<LogLikelihood> scores = Score(model_, texts, options);
    for (size_t n = 0; n < texts.size(); ++n) {
      const LogLikelihood expected = PlainEstimate(texts[n], options);
      const double bound = kDoubleBound * (1 - expected.log_prob);
      EXPECT_NEAR(scores[n].log_prob, expected.log_prob, bound) << n;
      EXPECT_NEAR(scores[n].standard_error, expected.standard_error, bound) << n;
      EXPECT_EQ(scores[n].is_exact, expected.is_exact);
      EXPECT_EQ(scores[n].token_log_probs.size(), expected.is_exact ? texts[n].asked.size() : 0);
    }
    for (const int64_t batch : {1, 3})
      ExpectSameBits(Score(model_, texts, {.samples = 7, .seed = 9, .batch = batch}), scores);
  }

  // The text that the most confident token of each pass makes of the asked ones.
  ScoredText Greedy(ScoredText text) {
    for (const Part& part : PartsOf(model_.form, text)) {
      std::vector<int32_t> blank = text.tokens;
      std::vector<int64_t> left = part.asked;
      for (const int64_t position : left) blank[position] = kBlank;
      while (!left.empty()) {
        const LogitRows rows = ReadBlanks(pass_, model_.form, blank, left, part.begin, part.end);
        size_t best = 0;
        const auto confidence = [&](size_t i) {
          return LogOfSoftmax(rows[i], LikeliestOf(rows[i]));
        };
        for (size_t i = 1; i < left.size(); ++i)
          if (confidence(i) > confidence(best)) best = i;
        blank[left[best]] = text.tokens[left[best]] = LikeliestOf(rows[best]);
        left.erase(left.begin() + static_cast<int64_t>(best));
      }
    }
    return text;
  }

  // A text of one part in which four tokens are asked about.
  ScoredText FourAsked() const {
    if (model_.form.family != CanvasFamily::kBlocks)
      return {.tokens = {3, 0, 2, 2, 4, 1, 0}, .asked = {1, 2, 4, 6}};
    return {.tokens = {3, 0, 2, 2, 4, 1, 0, 3}, .asked = {4, 5, 6, 7}};
  }

  CanvasModel model_ = GetParam().Make();
  PlainPass pass_{model_};
};

TEST_P(MaskedLikelihoodTest, EqualsTheMeanOverMasksThatDependOnNoToken) {
  EXPECT_FALSE(ScoresExactly(model_.form));
  ExpectPlainEstimates(RandomTexts(model_.form, 12, 4));
}

// The bound is the mean over all orders of the chain of one-token predictions (Ou et al. 2024).
TEST_P(MaskedLikelihoodTest, TheBoundIsTheMeanOverOrders) {
  const ScoredText text = FourAsked();
  const std::vector<Part> parts = PartsOf(model_.form, text);
  ASSERT_EQ(parts.size(), 1u);
  std::vector<int64_t> order = parts[0].asked;
  double sum = 0, count = 0;
  do {
    std::vector<int32_t> blank = Asked(text).blank;
    for (const int64_t position : order) {
      const LogitRows rows =
          ReadBlanks(pass_, model_.form, blank, {position}, parts[0].begin, parts[0].end);
      sum += LogOfSoftmax(rows[0], text.tokens[position]);
      blank[position] = text.tokens[position];
    }
    ++count;
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_NEAR(Bound(text), sum / count, 24 * kDoubleBound);
}

// Texts that are longer than what is seen: a block sees as many as training had, and what those
// have not seen.
TEST_P(MaskedLikelihoodTest, BlocksOutOfSightSayNothing) {
  if (model_.form.family != CanvasFamily::kBlocks) return;
  model_.form.seq_len = 8;
  const std::vector<int32_t> tokens = {3, 0, 2, 2, 4, 1, 0, 3, 1, 1, 4, 0, 2, 3, 1, 0};
  const ScoredText text{.tokens = tokens, .asked = {1, 2, 5, 9, 10, 11, 12, 15}};
  ExpectPlainEstimates({text, {.tokens = {3, 0, 2, 2}, .asked = {2, 3}}});
  ScoredText greedy = Greedy(text);
  greedy.wants_greedy = true;
  EXPECT_TRUE(Score(model_, {greedy})[0].is_greedy);
}

// Samples are two of each count of masks, so that what varies is what varies within a count: a
// fraction of what the reported error, which is that of independent samples, says.
TEST_P(MaskedLikelihoodTest, TheStandardErrorIsThatOfIndependentSamples) {
  const ScoredText text = FourAsked();
  const Moments moments = MomentsOf(text, PartsOf(model_.form, text)[0]);
  const int64_t samples = 8;
  const int seeds = 800;
  double sum = 0, squares = 0, reported = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const LogLikelihood score =
        Score(model_, {text}, {.samples = samples, .seed = static_cast<uint64_t>(seed)})[0];
    const double off = score.log_prob - moments.Mean();
    sum += off;
    squares += off * off;
    reported += score.standard_error * score.standard_error;
  }
  const double variance = moments.Within() / samples;
  EXPECT_NEAR(sum / seeds, 0, 5 * std::sqrt(variance / seeds));
  // A variance of n values varies by about sqrt(2 / n) of itself.
  const double limit = 5 * std::sqrt(2.0 / seeds);
  EXPECT_NEAR(squares / seeds / variance, 1, limit);
  // samples * (within + between) less what the mean itself varies by.
  const double expected = (samples * (moments.Within() + moments.Between()) - moments.Within()) /
                          (samples - 1) / samples;
  EXPECT_NEAR(reported / seeds / expected, 1, limit);
  EXPECT_GE(expected, variance);
}

// Two answers to one question: what they differ by varies less with the same masks.
TEST_P(MaskedLikelihoodTest, EqualSeedsDrawTheSameMasks) {
  const ScoredText a = FourAsked();
  ScoredText b = a;
  b.tokens[b.asked[1]] = (b.tokens[b.asked[1]] + 1) % kVocab;
  double together = 0, apart = 0;
  const double difference = Bound(a) - Bound(b);
  const int seeds = 300;
  for (int seed = 1; seed <= seeds; ++seed) {
    const auto first = static_cast<uint64_t>(seed);
    const std::vector<LogLikelihood> same = Score(model_, {a, b, a}, {.samples = 4, .seed = first});
    EXPECT_EQ(same[0].log_prob, same[2].log_prob);
    const LogLikelihood other = Score(model_, {b}, {.samples = 4, .seed = first + 1000})[0];
    together += std::pow(same[0].log_prob - same[1].log_prob - difference, 2);
    apart += std::pow(same[0].log_prob - other.log_prob - difference, 2);
  }
  EXPECT_LT(together, apart);
}

TEST_P(MaskedLikelihoodTest, OneTokenIsExact) {
  for (ScoredText text : RandomTexts(model_.form, 5, 6)) {
    text.asked = {text.asked.back()};
    const Part part = PartsOf(model_.form, text)[0];
    const LogitRows rows =
        ReadBlanks(pass_, model_.form, Asked(text).blank, text.asked, part.begin, part.end);
    text.tokens[text.asked[0]] = LikeliestOf(rows[0]);
    const LogLikelihood score = Score(model_, {text})[0];
    const double expected = LogOfSoftmax(rows[0], LikeliestOf(rows[0]));
    EXPECT_NEAR(score.log_prob, expected, kDoubleBound * (1 - expected));
    EXPECT_TRUE(score.is_exact);
    EXPECT_TRUE(score.is_greedy);
    EXPECT_EQ(score.standard_error, 0);
    EXPECT_EQ(score.token_log_probs, std::vector<double>{score.log_prob});
    text.tokens[text.asked[0]] = (text.tokens[text.asked[0]] + 1) % kVocab;
    EXPECT_FALSE(Score(model_, {text})[0].is_greedy);
  }
}

TEST_P(MaskedLikelihoodTest, OfOneSampleTheErrorIsInfinite) {
  const LogLikelihood score = Score(model_, {FourAsked()}, {.samples = 1})[0];
  EXPECT_EQ(score.standard_error, std::numeric_limits<double>::infinity());
  EXPECT_FALSE(score.is_exact);
}

TEST_P(MaskedLikelihoodTest, GreedyTextsAreThoseOfTheMostConfidentTokens) {
  for (const ScoredText& text : RandomTexts(model_.form, 6, 7)) {
    ScoredText greedy = Greedy(text);
    const ScoreOptions options{.samples = 2};
    const LogLikelihood unasked = Score(model_, {greedy}, options)[0];
    EXPECT_EQ(unasked.is_greedy, unasked.is_exact);
    greedy.wants_greedy = true;
    EXPECT_TRUE(Score(model_, {greedy}, options)[0].is_greedy);
    for (const int64_t position : greedy.asked) {
      ScoredText other = greedy;
      other.tokens[position] = (other.tokens[position] + 1) % kVocab;
      EXPECT_FALSE(Score(model_, {other}, options)[0].is_greedy);
    }
  }
}

TEST_P(MaskedLikelihoodTest, CompanyDoesNotChangeABit) {
  std::vector<ScoredText> texts = RandomTexts(model_.form, 7, 8);
  for (size_t n = 0; n < texts.size(); n += 2) texts[n].wants_greedy = true;
  const std::vector<LogLikelihood> expected = Score(model_, texts, {.samples = 11});
  std::vector<LogLikelihood> alone;
  for (const ScoredText& text : texts) alone.push_back(Score(model_, {text}, {.samples = 11})[0]);
  ExpectSameBits(alone, expected);
  for (const int64_t batch : {1, 4})
    ExpectSameBits(Score(model_, texts, {.samples = 11, .batch = batch}), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Networks, MaskedLikelihoodTest,
    ::testing::Values(
        Case{"masked_rope", "masked_diffusion", BackboneRope},
        Case{"masked_relative", "masked_diffusion", BackboneXlnet},
        Case{"masked_shifted", "masked_diffusion", BackboneLearned, BlocksOf(4, true)},
        Case{"blocks_rope", "block_diffusion", BackboneRope, BlocksOf(4)},
        Case{"blocks_shifted", "block_diffusion", BackboneLearned, BlocksOf(4, true)}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace anyorder::testing::likelihood_test
