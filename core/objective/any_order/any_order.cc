#include "core/objective/any_order/any_order.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder {
namespace {

// No lane has these numbers.
constexpr uint64_t kAllLanes = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kRateDraws = uint64_t{1} << 62;

// Added to a count of tokens it changes no digit; alone it divides a sum of nothing.
constexpr double kNoTokens = 1e-30;

// The binary digits of `n` mirrored at the point: 0, 1/2, 1/4, 3/4, 1/8, ...
double VanDerCorput(uint64_t n) {
  double value = 0;
  for (double digit = 0.5; n > 0; n >>= 1, digit /= 2) value += (n & 1) != 0 ? digit : 0;
  return value;
}

// Masks `count` of tokens [begin, end).
void MaskCount(int64_t begin, int64_t end, int64_t count, RandomStream& random,
               std::vector<uint8_t>& masked) {
  std::vector<int64_t> places(static_cast<size_t>(end - begin));
  std::iota(places.begin(), places.end(), begin);
  DrawFirst(count, random, places.begin(), places.end());
  for (int64_t i = 0; i < count; ++i) masked[places[i]] = 1;
}

// BD3-LM's code takes this minimum of rates, and a maximum of 1, for none.
constexpr double kNoMinimum = 1e-3;

bool HasResampling(const AnyOrderConfig& config) {
  return config.resample_blocks && (config.mask_rate_min > kNoMinimum || config.mask_rate_max < 1);
}

// Whether a block keeps masks that are `count` of `size` tokens.
bool IsAccepted(const AnyOrderConfig& config, int64_t count, int64_t size) {
  const double fraction = static_cast<double>(count) / static_cast<double>(size);
  return (config.mask_rate_min <= kNoMinimum || fraction >= config.mask_rate_min) &&
         fraction <= config.mask_rate_max;
}

// Masks each token of [begin, end) with probability `rate`; resamples all of them until their
// number is accepted.
void MaskAtRate(const AnyOrderConfig& config, int64_t begin, int64_t end, double rate,
                RandomStream& random, std::vector<uint8_t>& masked) {
  int64_t count = 0;
  do {
    count = 0;
    for (int64_t i = begin; i < end; ++i) {
      masked[i] = random.Uniform() < rate ? 1 : 0;
      count += masked[i];
    }
  } while (HasResampling(config) && !IsAccepted(config, count, end - begin));
}

// How likely a token of a block is masked, and what its loss then weighs.
struct Noise {
  double rate = 0;
  double weight = 0;
};

// REQUIRES: u in [0, 1).
Noise NoiseAt(const AnyOrderConfig& config, double u) {
  // From the top: 1 - u is in (0, 1], so that a rate is never 0.
  const double t = config.mask_rate_min + (config.mask_rate_max - config.mask_rate_min) * (1 - u);
  if (config.loss_weight == LossWeight::kTime) return {(1 - config.mask_rate_min) * t, 1 / t};
  return {t, config.loss_weight == LossWeight::kRate ? 1 / t : 1.0};
}

}  // namespace

RandomStream StepDraws(const TextSample& sample) {
  return RandomStream(sample.seed, RandomPurpose::kObjective, static_cast<uint64_t>(sample.step),
                      kAllLanes);
}

double SpreadUniform(const TextSample& sample, int64_t index, int64_t count,
                     const AnyOrderConfig& config) {
  const auto place = static_cast<uint64_t>(sample.lane * count + index);
  const auto places = static_cast<double>(sample.num_lanes * count);
  // Not LaneDraws, whose numbers choose the tokens: rate and choice must not depend on each other.
  const auto own = [&sample, place] {
    return RandomStream(sample.seed, RandomPurpose::kObjective, static_cast<uint64_t>(sample.step),
                        kRateDraws + place)
        .Uniform();
  };
  if (!config.stratified_rates) return own();
  const double turn = StepDraws(sample).Uniform();
  double spread = 0;
  switch (config.rate_strata) {
    case RateStrata::kVanDerCorput: spread = turn + VanDerCorput(place); break;
    case RateStrata::kOwn:
      // In whole strata: a lane always reads the same part of the text.
      spread = (own() + std::floor(turn * places) + static_cast<double>(place)) / places;
      break;
    case RateStrata::kShared: spread = turn + static_cast<double>(place) / places; break;
  }
  return spread - std::floor(spread);
}

absl::Status CheckStrata(const AnyOrderConfig& config) {
  if (config.stratified_rates || config.rate_strata == AnyOrderConfig().rate_strata)
    return absl::OkStatus();
  return InvalidArgument("[sampling] rate_strata is \"", EnumName(config.rate_strata),
                         "\" but stratified_rates is false: each lane samples its rate "
                         "independently; leave out rate_strata, or set stratified_rates = true");
}

MaskedText DrawMasks(const TextSample& sample, const AnyOrderConfig& config, int64_t length,
                     int64_t block_len, RandomStream& random) {
  ANYORDER_CHECK(length >= 1 && block_len >= 1) << length << " tokens in blocks of " << block_len;
  MaskedText text;
  text.masked.assign(static_cast<size_t>(length), 0);
  text.weights.assign(static_cast<size_t>(length), 0.0f);
  const int64_t num_blocks = (length + block_len - 1) / block_len;
  for (int64_t block = 0; block < num_blocks; ++block) {
    const int64_t begin = block * block_len;
    const int64_t end = std::min(length, begin + block_len);
    const double u = SpreadUniform(sample, block, num_blocks, config);
    auto [rate, weight] = NoiseAt(config, u);
    if (config.mask_draw == MaskDraw::kCount) {
      const auto size = static_cast<double>(end - begin);
      const auto count = static_cast<int64_t>(std::clamp(std::ceil(rate * size), 1.0, size));
      MaskCount(begin, end, count, random, text.masked);
      if (config.loss_weight == LossWeight::kRate) weight = size / static_cast<double>(count);
    } else {
      MaskAtRate(config, begin, end, rate, random, text.masked);
    }
    for (int64_t i = begin; i < end; ++i)
      text.weights[i] = text.masked[i] != 0 ? static_cast<float>(weight) : 0.0f;
  }
  if (config.keep_first_token) {
    text.masked[0] = 0;
    text.weights[0] = 0.0f;
  }
  return text;
}

void WeighByContext(const std::vector<int32_t>& documents, MaskedText& text) {
  constexpr double kGeometric = 0.3;
  const int64_t length = std::ssize(text.masked);
  std::vector<double> sums(text.masked.size(), 0.0);
  // What the tokens on one side of i weigh there: those before it, then those behind it.
  const auto add = [&](int64_t i, int64_t nearest, double& side) {
    side *= 1 - kGeometric;
    if (nearest < 0 || nearest >= length) return;
    if (documents[i] != documents[nearest]) {
      side = 0;
    } else if (text.masked[nearest] == 0) {
      side += 0.5 * kGeometric;
    }
    sums[i] += side;
  };
  double side = 0;
  for (int64_t i = 0; i < length; ++i) add(i, i - 1, side);
  side = 0;
  for (int64_t i = length - 1; i >= 0; --i) add(i, i + 1, side);
  for (int64_t i = 0; i < length; ++i)
    text.weights[i] = text.masked[i] != 0 ? static_cast<float>(sums[i]) : 0.0f;
}

double DivisorOf(const MaskedText& text, const AnyOrderConfig& config) {
  if (config.loss_divisor == LossDivisor::kAnswers) return 1;
  const auto count = config.loss_divisor == LossDivisor::kMasked
                         ? std::count(text.masked.begin(), text.masked.end(), 1)
                         : std::ssize(text.masked) - (config.keep_first_token ? 1 : 0);
  return count > 0 ? static_cast<double>(count) : kNoTokens;
}

bool AverageIsNll(const AnyOrderConfig& config) {
  return config.loss_weight == LossWeight::kRate && config.loss_divisor != LossDivisor::kMasked &&
         !HasResampling(config);
}

std::string DiffusionQuantity(const AnyOrderConfig& config) {
  // Up to a hundredth: the least rate that releases train with is a thousandth, against a division
  // by nearly 0.
  const bool has_all_rates = config.mask_rate_min <= 0.01 && config.mask_rate_max >= 0.99;
  const bool by_time = config.loss_weight == LossWeight::kTime;
  const bool by_tokens = config.loss_divisor != LossDivisor::kMasked;
  const std::string bound =
      absl::StrCat("upper bound of the NLL in nats per token",
                   config.keep_first_token ? " but the first, which is given" : "");
  if (has_all_rates && AverageIsNll(config)) return bound;
  if (has_all_rates && by_time && by_tokens && !HasResampling(config))
    return absl::StrCat(bound, ", times about ", 1 - config.mask_rate_min, " (weights 1/t)");
  return absl::StrCat(config.loss_weight == LossWeight::kOne ? "NLL" : "weighted NLL",
                      " of masked tokens at rates from ", config.mask_rate_min, " to ",
                      config.mask_rate_max, by_tokens ? "" : ", divided by their number",
                      " (no bound)");
}

absl::Status CheckResampling(const AnyOrderConfig& config) {
  if (!config.resample_blocks) return absl::OkStatus();
  if (config.mask_draw == MaskDraw::kCount) {
    return absl::InvalidArgumentError(
        "[sampling] resample_blocks is true but mask_draw is \"count\", by which the masked "
        "fraction is the rate itself; use mask_draw = \"rate\"");
  }
  if (config.loss_weight == LossWeight::kTime) {
    return absl::InvalidArgumentError(
        "[sampling] resample_blocks is true but loss_weight is \"time\", whose rates (1 - "
        "mask_rate_min) t are not those of the interval; use \"rate\" or \"one\"");
  }
  for (int64_t count = 0; count <= config.block_len; ++count)
    if (IsAccepted(config, count, config.block_len)) return absl::OkStatus();
  return InvalidArgument(
      "[sampling] resample_blocks is true but no fraction of block_len=", config.block_len,
      " tokens lies in [mask_rate_min=", config.mask_rate_min,
      ", mask_rate_max=", config.mask_rate_max, "]; use longer blocks or a wider range");
}

absl::Status CheckMaskRates(const AnyOrderConfig& config) {
  RETURN_IF_ERROR(CheckStrata(config));
  const bool counts = config.mask_draw == MaskDraw::kCount;
  const bool by_time = config.loss_weight == LossWeight::kTime;
  if (by_time && (counts || config.mask_rate_min <= 0 || config.mask_rate_min >= 1)) {
    return absl::InvalidArgumentError(
        "[sampling] loss_weight is \"time\", which masks each token with probability (1 - "
        "mask_rate_min) t; use mask_draw = \"rate\" and a mask_rate_min between 0 and 1");
  }
  const bool is_range = config.mask_rate_min <= config.mask_rate_max;
  const bool divides = config.loss_weight == LossWeight::kRate && !counts;
  if (is_range && (!divides || config.mask_rate_min > 0)) return absl::OkStatus();
  return InvalidArgument(
      "[sampling] mask_rate_min=", config.mask_rate_min, ", mask_rate_max=", config.mask_rate_max,
      " must satisfy 0 < min <= max <= 1: a loss weighs 1 / rate; a minimum of 0 needs "
      "mask_draw = \"count\", or loss_weight = \"one\" or \"cart\"");
}

CanvasForm DiffusionCanvas(CanvasFamily family, const AnyOrderConfig& config, int64_t seq_len,
                           const GenerationTokens& tokens) {
  CanvasForm form = MakeCanvas(family, seq_len, tokens);
  if (family == CanvasFamily::kBlocks) form.block_len = config.block_len;
  form.shifted = config.shifted_readout;
  form.first_given = config.keep_first_token || config.shifted_readout;
  return form;
}

}  // namespace anyorder
