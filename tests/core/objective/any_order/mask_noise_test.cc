#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/objective/any_order/any_order.h"
#include "core/objective/lane_frame.h"

namespace anyorder::testing {
namespace {

// A lane of a step; of `num_lanes` lanes, as the sampler hands them over, if that is not 0.
TextSample At(int64_t lane, int64_t step, int64_t num_lanes = 0) {
  TextSample sample = {.lane = lane, .step = step, .seed = 7};
  if (num_lanes > 0) sample.num_lanes = num_lanes;
  return sample;
}

// The masks of so many tokens in blocks of `block_len`, by the lane's own draws.
MaskedText MasksAt(const TextSample& sample, const AnyOrderConfig& config, int64_t length,
                   int64_t block_len) {
  RandomStream random = LaneDraws(sample);
  return DrawMasks(sample, config, length, block_len, random);
}

// Mean and standard error of numbers.
struct Estimate {
  double sum = 0;
  double squares = 0;
  double count = 0;

  void Add(double x) {
    sum += x;
    squares += x * x;
    ++count;
  }
  double mean() const { return sum / count; }
  double error() const { return std::sqrt((squares / count - mean() * mean()) / (count - 1)); }
};

TEST(SpreadUniformTest, EachPowerOfTwoOfLanesHasOneDrawInEachStratum) {
  for (const int64_t lanes : {1, 2, 8, 64}) {
    for (int64_t step = 0; step < 5; ++step) {
      std::vector<double> draws;
      for (int64_t lane = 0; lane < lanes; ++lane)
        draws.push_back(SpreadUniform(At(lane, step), 0, 1, {}));
      std::sort(draws.begin(), draws.end());
      // A turned grid: neighbours are 1 / lanes apart.
      for (size_t i = 1; i < draws.size(); ++i)
        EXPECT_NEAR(draws[i] - draws[i - 1], 1.0 / static_cast<double>(lanes), 1e-15);
      EXPECT_GE(draws.front(), 0);
      EXPECT_LT(draws.back(), 1);
    }
  }
}

TEST(SpreadUniformTest, BlocksOfALaneContinueTheSequence) {
  for (int64_t block = 0; block < 4; ++block) {
    EXPECT_EQ(SpreadUniform(At(3, 2), block, 4, {}), SpreadUniform(At(12 + block, 2), 0, 1, {}));
  }
}

TEST(SpreadUniformTest, EveryLaneAloneIsUniform) {
  constexpr int kSteps = 20000;
  for (const bool stratified : {false, true}) {
    for (const int64_t lane : {0, 1, 5}) {
      Estimate first, second;
      for (int64_t step = 0; step < kSteps; ++step) {
        const double u = SpreadUniform(At(lane, step), 0, 1, {.stratified_rates = stratified});
        first.Add(u);
        second.Add(u * u);
      }
      EXPECT_NEAR(first.mean(), 1.0 / 2, 5 * first.error()) << lane;
      EXPECT_NEAR(second.mean(), 1.0 / 3, 5 * second.error()) << lane;
    }
  }
}

// MDLM and BD3-LM: t = (u_i + i) / n, u_i a number of the row's (of its block's) own. Which row has
// which stratum changes, or text would always be masked at the same rate.
TEST(SpreadUniformTest, OwnStrataHaveOneDrawEachAtAnyNumberOfLanes) {
  const AnyOrderConfig config = {.rate_strata = RateStrata::kOwn};
  for (const int64_t lanes : {1, 3, 6, 8}) {
    const double n = 2.0 * static_cast<double>(lanes);
    Estimate first, inside, product;
    for (int64_t step = 0; step < 4000; ++step) {
      std::vector<double> draws;
      for (int64_t lane = 0; lane < lanes; ++lane)
        for (int64_t block = 0; block < 2; ++block)
          draws.push_back(SpreadUniform(At(lane, step, lanes), block, 2, config));
      first.Add(draws[0]);
      std::vector<double> within;
      for (const double draw : draws) within.push_back(draw * n - std::floor(draw * n));
      inside.Add(within[1]);
      product.Add((within[0] - 0.5) * (within[1] - 0.5));
      std::sort(draws.begin(), draws.end());
      for (size_t i = 0; i < draws.size(); ++i)
        ASSERT_EQ(std::floor(draws[i] * n), static_cast<double>(i)) << "one draw in each stratum";
    }
    EXPECT_NEAR(first.mean(), 0.5, 5 * first.error());
    EXPECT_NEAR(inside.mean(), 0.5, 5 * inside.error());
    EXPECT_NEAR(product.mean(), 0, 5 * product.error()) << "each place has its own number";
  }
}

// SMDM and Dream's evaluation: t = (u + i / n) mod 1, one u for all rows.
TEST(SpreadUniformTest, ASharedNumberTurnsAGridOfAnyNumberOfLanes) {
  const AnyOrderConfig config = {.rate_strata = RateStrata::kShared};
  for (const int64_t lanes : {1, 3, 6, 8}) {
    Estimate first;
    for (int64_t step = 0; step < 4000; ++step) {
      const double u = SpreadUniform(At(0, step, lanes), 0, 1, config);
      first.Add(u);
      for (int64_t lane = 1; lane < lanes; ++lane) {
        const double turned = u + static_cast<double>(lane) / static_cast<double>(lanes);
        const double draw = SpreadUniform(At(lane, step, lanes), 0, 1, config);
        EXPECT_NEAR(draw, turned < 1 ? turned : turned - 1, 1e-15);
        ASSERT_TRUE(draw >= 0 && draw < 1);
      }
    }
    EXPECT_NEAR(first.mean(), 0.5, 5 * first.error());
  }
}

TEST(SpreadUniformTest, WithoutStrataLanesDrawAlone) {
  Estimate product;
  for (int64_t step = 0; step < 20000; ++step) {
    product.Add((SpreadUniform(At(0, step), 0, 1, {.stratified_rates = false}) - 0.5) *
                (SpreadUniform(At(1, step), 0, 1, {.stratified_rates = false}) - 0.5));
  }
  EXPECT_NEAR(product.mean(), 0, 5 * product.error());
}

// A distribution of four bits whose every conditional is known: log p(x_i | the unmasked ones) by
// summing out the masked ones.
class ToyText {
 public:
  static constexpr int kLength = 4;
  static constexpr uint32_t kText = 0b0110;

  ToyText() {
    RandomStream random(3, RandomPurpose::kPairs, 0, 0);
    for (double& p : joint_) p = 0.05 + random.Uniform();
    const double total = std::accumulate(joint_.begin(), joint_.end(), 0.0);
    for (double& p : joint_) p /= total;
  }
  double Nll() const { return -std::log(joint_[kText]); }
  // Of the text's token i where the tokens of the bit set `masked`, i among them, are not known.
  double NllOf(int i, uint32_t masked) const {
    return std::log(Marginal(masked)) - std::log(Marginal(masked & ~(1u << i)));
  }
  double WeightedLoss(const MaskedText& draw) const {
    uint32_t masked = 0;
    for (int i = 0; i < kLength; ++i) masked |= draw.masked[i] != 0 ? 1u << i : 0;
    double sum = 0;
    for (int i = 0; i < kLength; ++i)
      if (draw.masked[i] != 0) sum += draw.weights[i] * NllOf(i, masked);
    return sum;
  }
  // Its mean over rates uniform in [low, high]: a polynomial of degree 3 in the rate, which
  // Simpson's rule integrates exactly.
  double MeanLoss(double low, double high = 1) const {
    double sum = 0;
    for (uint32_t masked = 1; masked < joint_.size(); ++masked) {
      const int k = std::popcount(masked);
      const auto density = [k](double p) {
        return std::pow(p, k - 1) * std::pow(1 - p, kLength - k);
      };
      const double weight = (density(low) + 4 * density((high + low) / 2) + density(high)) / 6;
      for (int i = 0; i < kLength; ++i)
        if ((masked >> i & 1) != 0) sum += weight * NllOf(i, masked);
    }
    return sum;
  }

 private:
  // Of the tokens that are not masked.
  double Marginal(uint32_t masked) const {
    double sum = 0;
    for (uint32_t x = 0; x < joint_.size(); ++x)
      if (((x ^ kText) & ~masked) == 0) sum += joint_[x];
    return sum;
  }

  std::array<double, 1 << kLength> joint_;
};

// What `toy` loses by drawn masks, of so many steps of four lanes; visit(lane's sample, draw) may
// look at each draw. Lanes of one step depend on each other where rates are stratified: a step is
// one observation.
Estimate LossOfDraws(const ToyText& toy, const AnyOrderConfig& config,
                     const std::function<void(const TextSample&, const MaskedText&)>& visit = {}) {
  Estimate estimate;
  for (int64_t step = 0; step < 20000; ++step) {
    double sum = 0;
    for (int64_t lane = 0; lane < 4; ++lane) {
      const MaskedText draw = MasksAt(At(lane, step), config, 4, 4);
      if (visit) visit(At(lane, step), draw);
      sum += toy.WeightedLoss(draw);
    }
    estimate.Add(sum / 4);
  }
  return estimate;
}

// With the true conditionals every order has the text's probability, so that the bound is met: the
// estimator's mean is the NLL itself.
TEST(DrawMasksTest, TheMeanOfTheWeightedLossIsTheNllOfAKnownDistribution) {
  const ToyText toy;
  EXPECT_NEAR(toy.MeanLoss(0), toy.Nll(), 1e-12);
  for (const MaskDraw kind : {MaskDraw::kCount, MaskDraw::kRate}) {
    for (const bool stratified : {false, true}) {
      const AnyOrderConfig config = {.mask_rate_min = kind == MaskDraw::kCount ? 0.0 : 0.05,
                                     .stratified_rates = stratified,
                                     .mask_draw = kind};
      const Estimate estimate = LossOfDraws(toy, config);
      const double expected = kind == MaskDraw::kCount ? toy.Nll() : toy.MeanLoss(0.05);
      EXPECT_NEAR(estimate.mean(), expected, 5 * estimate.error());
      EXPECT_LT(estimate.error(), 0.01 * toy.Nll()) << "the test would not notice an error";
    }
  }
}

// MDLM: t uniform in [e, 1], masked with probability p = (1 - e) t, weight 1/t. With dp = (1 - e)
// dt the mean is (1 - e) times that of 1/p over p uniform in [e (1 - e), 1 - e].
TEST(DrawMasksTest, WeightsByTimeAreTheirShareOfTheBound) {
  const ToyText toy;
  constexpr double kEps = 0.05;
  const AnyOrderConfig config = {.mask_rate_min = kEps, .loss_weight = LossWeight::kTime};
  Estimate masked;
  double count = 0;
  const auto look = [&](const TextSample& sample, const MaskedText& draw) {
    const double t = kEps + (1 - kEps) * (1 - SpreadUniform(sample, 0, 1, {}));
    for (int i = 0; i < 4; ++i) {
      count += draw.masked[i];
      EXPECT_EQ(draw.weights[i], draw.masked[i] != 0 ? static_cast<float>(1 / t) : 0.0f);
    }
    if (sample.lane == 3) masked.Add(std::exchange(count, 0) / 16);
  };
  const Estimate estimate = LossOfDraws(toy, config, look);
  const double expected = (1 - kEps) * toy.MeanLoss(kEps * (1 - kEps), 1 - kEps);
  EXPECT_NEAR(estimate.mean(), expected, 5 * estimate.error());
  EXPECT_GT(std::abs(expected - toy.MeanLoss(kEps)), 10 * estimate.error())
      << "the test would not tell 1/t from 1/p";
  EXPECT_NEAR(masked.mean(), (1 - kEps) * (1 + kEps) / 2, 5 * masked.error());
}

// BD3-LM resamples masks at the block's own rate while their fraction leaves [min, max], so that
// counts are binomial under the condition that they are inside.
TEST(DrawMasksTest, ResampledBlocksHaveTheConditionedCounts) {
  constexpr int64_t kBlock = 4;
  struct Range {
    double min, max;
    int least, most;
  };
  for (const Range range : {Range{0.3, 0.8, 2, 3}, {0.45, 1, 2, 4}, {1e-3, 0.5, 0, 2}}) {
    const AnyOrderConfig config = {.mask_rate_min = range.min,
                                   .mask_rate_max = range.max,
                                   .block_len = kBlock,
                                   .resample_blocks = true};
    std::vector<Estimate> shares(kBlock + 1);
    for (int64_t step = 0; step < 8000; ++step) {
      const MaskedText draw = MasksAt(At(1, step), config, 2 * kBlock, kBlock);
      const auto count = std::count(draw.masked.begin(), draw.masked.begin() + kBlock, 1);
      ASSERT_TRUE(count >= range.least && count <= range.most) << count;
      // Against the probability of the count at the block's rate.
      const double u = SpreadUniform(At(1, step), 0, 2, {});
      const double p = range.min + (range.max - range.min) * (1 - u);
      double inside = 0;
      std::vector<double> probability(kBlock + 1, 0.0);
      constexpr double kChoose[] = {1, 4, 6, 4, 1};
      for (int k = range.least; k <= range.most; ++k) {
        probability[k] = kChoose[k] * std::pow(p, k) * std::pow(1 - p, kBlock - k);
        inside += probability[k];
      }
      for (int k = range.least; k <= range.most; ++k)
        shares[k].Add((count == k ? 1 : 0) - probability[k] / inside);
    }
    for (int k = range.least; k <= range.most; ++k)
      EXPECT_NEAR(shares[k].mean(), 0, 5 * shares[k].error()) << k;
  }
}

// Rates and counts of all tokens, the first of them shown after all: for the others the bound is
// that of a text which is shorter by one, given its first token.
TEST(DrawMasksTest, WithTheFirstTokenGivenTheMeanIsTheNllOfTheOthers) {
  const ToyText toy;
  const double given = toy.Nll() - toy.NllOf(0, 0b1111);
  for (const MaskDraw kind : {MaskDraw::kCount, MaskDraw::kRate}) {
    const AnyOrderConfig config = {.mask_rate_min = kind == MaskDraw::kCount ? 0.0 : 1e-4,
                                   .mask_draw = kind,
                                   .keep_first_token = true};
    const Estimate estimate =
        LossOfDraws(toy, config, [&](const TextSample&, const MaskedText& draw) {
          EXPECT_EQ(draw.masked[0], 0);
          EXPECT_EQ(DivisorOf(draw, config), 3);
        });
    // What rates below 1e-4 leave out and the others scale up is less than a ten-thousandth of it.
    EXPECT_NEAR(estimate.mean(), given, 5 * estimate.error() + 1e-4 * given);
    EXPECT_LT(estimate.error(), 0.02 * given) << "the test would not notice an error";
  }
}

// Dream's weights by their formula, over all pairs.
TEST(WeighByContextTest, UnmaskedTokensOfTheDocumentCountByTheirDistance) {
  RandomStream random(11, RandomPurpose::kPairs, 0, 0);
  for (int text = 0; text < 20; ++text) {
    constexpr int kLength = 23;
    MaskedText draw{std::vector<uint8_t>(kLength), std::vector<float>(kLength, 7.0f)};
    std::vector<int32_t> documents(kLength + 5, 0);
    for (int i = 0; i < kLength; ++i) {
      draw.masked[i] = random.Below(3) > 0 ? 1 : 0;
      documents[i] = (i > 0 ? documents[i - 1] : 0) + (text > 9 && random.Below(6) == 0 ? 1 : 0);
    }
    WeighByContext(documents, draw);
    for (int i = 0; i < kLength; ++i) {
      double expected = 0;
      for (int j = 0; j < kLength; ++j) {
        if (draw.masked[j] != 0 || documents[j] != documents[i]) continue;
        expected += 0.5 * 0.3 * std::pow(0.7, std::abs(i - j) - 1);
      }
      // At most 2 kLength roundings of fp64, and one to fp32.
      if (draw.masked[i] == 0) expected = 0;
      EXPECT_NEAR(draw.weights[i], expected, 1e-7 * expected) << i;
    }
  }
}

TEST(DrawMasksTest, MasksDoNotDependOnTheWeightOfOne) {
  for (const MaskDraw kind : {MaskDraw::kCount, MaskDraw::kRate}) {
    AnyOrderConfig config = {.mask_rate_min = 0.5, .mask_draw = kind};
    const MaskedText by_rate = MasksAt(At(2, 3), config, 12, 4);
    config.loss_weight = LossWeight::kOne;
    const MaskedText by_one = MasksAt(At(2, 3), config, 12, 4);
    EXPECT_EQ(by_one.masked, by_rate.masked);
    EXPECT_EQ(by_one.weights, std::vector<float>(by_one.masked.begin(), by_one.masked.end()));
  }
}

// A bound is claimed only of weights whose mean is one.
TEST(DiffusionQuantityTest, SaysWhatIsNoBound) {
  const std::string bound = "upper bound of the NLL in nats per token";
  const std::string weighted = "weighted NLL of masked tokens at rates from ";
  const std::pair<AnyOrderConfig, std::string> cases[] = {
      {{}, bound},
      {{.loss_weight = LossWeight::kTime}, bound + ", times about 0.999 (weights 1/t)"},
      {{.mask_rate_min = 0.3, .mask_rate_max = 0.8}, weighted + "0.3 to 0.8 (no bound)"},
      {{.loss_weight = LossWeight::kOne},
       "NLL of masked tokens at rates from 0.001 to 1 (no bound)"},
      {{.loss_divisor = LossDivisor::kMasked},
       weighted + "0.001 to 1, divided by their number (no bound)"},
      {{.loss_weight = LossWeight::kCart}, weighted + "0.001 to 1 (no bound)"},
      {{.keep_first_token = true}, bound + " but the first, which is given"},
      {{.resample_blocks = true}, bound},  // the whole range is no limit
      {{.mask_rate_min = 0.01, .resample_blocks = true}, weighted + "0.01 to 1 (no bound)"}};
  for (const auto& [config, expected] : cases) EXPECT_EQ(DiffusionQuantity(config), expected);
}

TEST(DrawMasksTest, EachBlockHasItsRateAndItsWeightsCountItsTokens) {
  Estimate sums;
  for (int64_t step = 0; step < 4000; ++step) {
    const MaskedText draw = MasksAt(At(2, step), {}, 14, 4);
    for (int64_t block = 0; block < 4; ++block) {
      const int64_t end = std::min<int64_t>(14, 4 * block + 4);
      const double u = SpreadUniform(At(2, step), block, 4, {});
      const double rate = 1e-3 + (1 - 1e-3) * (1 - u);
      for (int64_t i = 4 * block; i < end; ++i)
        EXPECT_EQ(draw.weights[i], draw.masked[i] != 0 ? static_cast<float>(1 / rate) : 0.0f);
    }
    sums.Add(std::accumulate(draw.weights.begin(), draw.weights.end(), 0.0));
  }
  EXPECT_NEAR(sums.mean(), 14, 5 * sums.error());
}

TEST(DrawMasksTest, CountsAreUniformAndExact) {
  const AnyOrderConfig config = {.mask_rate_min = 0, .mask_draw = MaskDraw::kCount};
  std::vector<int> seen(6, 0);
  for (int64_t lane = 0; lane < 500; ++lane) {
    const MaskedText draw = MasksAt(At(lane, 1), config, 5, 5);
    const auto count = std::count(draw.masked.begin(), draw.masked.end(), 1);
    ++seen[count];
    for (int64_t i = 0; i < 5; ++i)
      EXPECT_EQ(draw.weights[i], draw.masked[i] != 0 ? 5.0f / static_cast<float>(count) : 0.0f);
  }
  EXPECT_EQ(seen[0], 0);
  // The rates are spread evenly, and so are the counts.
  for (int count = 1; count <= 5; ++count) EXPECT_NEAR(seen[count], 100, 10) << count;
}

TEST(DrawMasksTest, ARateOfOneMasksAll) {
  const AnyOrderConfig config = {.mask_rate_min = 1, .mask_rate_max = 1};
  EXPECT_EQ(MasksAt(At(2, 3), config, 9, 1).weights, std::vector<float>(9, 1.0f));
}

}  // namespace
}  // namespace anyorder::testing
