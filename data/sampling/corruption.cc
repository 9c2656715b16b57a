#include "data/sampling/corruption.h"

#include <algorithm>

#include "core/base/check.h"
#include "data/sampling/permutation.h"
#include "data/sampling/span_sampler.h"

namespace anyorder::data {

namespace {

std::vector<TokenSpan> Units(absl::Span<const uint8_t> word_starts,
                             absl::Span<const uint8_t> functional, SpanKind spans) {
  std::vector<TokenSpan> units;
  const auto size = static_cast<int64_t>(functional.size());
  for (int64_t i = 0; i < size; ++i) {
    if (functional[i] != 0) continue;
    const bool begins =
        spans == SpanKind::kSingle || word_starts[i] != 0 || i == 0 || functional[i - 1] != 0;
    if (begins) units.push_back({.begin = i, .end = i});
    units.back().end = i + 1;
  }
  return units;
}

}  // namespace

std::vector<uint8_t> DrawUnitMask(absl::Span<const uint8_t> word_starts,
                                  absl::Span<const uint8_t> functional, SpanKind spans,
                                  int64_t goal, RandomStream& random) {
  ANYORDER_CHECK((spans == SpanKind::kSingle || spans == SpanKind::kWord) && goal >= 0)
      << "goal " << goal;
  const std::vector<TokenSpan> units = Units(word_starts, functional, spans);
  std::vector<uint8_t> mask(functional.size());
  int64_t left = goal;
  for (const int32_t index : DrawPermutation(static_cast<int64_t>(units.size()), random)) {
    if (left == 0) break;
    const TokenSpan& unit = units[index];
    if (unit.end - unit.begin > left) continue;
    std::fill(mask.begin() + unit.begin, mask.begin() + unit.end, 1);
    left -= unit.end - unit.begin;
  }
  ANYORDER_CHECK(spans == SpanKind::kWord || left == 0) << left << " of " << goal << " left";
  return mask;
}

std::vector<uint8_t> DrawNgramMask(absl::Span<const uint8_t> functional,
                                   const SamplingConfig& config, int64_t goal,
                                   RandomStream& random) {
  const auto size = static_cast<int64_t>(functional.size());
  std::vector<uint8_t> mask(functional.size());
  int64_t left = goal;
  // A permutation gives the next one of the tokens that are left with equal chance, whatever
  // n-grams took before.
  for (const int32_t begin : DrawPermutation(size, random)) {
    if (left == 0) break;
    if (functional[begin] != 0 || mask[begin] != 0) continue;
    int64_t length = 1;
    if (random.Uniform() < config.ngram_prob)
      length = 2 + static_cast<int64_t>(random.Below64(config.max_ngram - 1));
    const int64_t end = std::min(size, begin + length);
    for (int64_t i = begin; i < end && functional[i] == 0 && left > 0; ++i) {
      left -= mask[i] == 0 ? 1 : 0;
      mask[i] = 1;
    }
  }
  ANYORDER_CHECK(left == 0) << left << " of " << goal << " left";
  return mask;
}

std::vector<int32_t> CorruptTokens(absl::Span<const int32_t> tokens,
                                   absl::Span<const uint8_t> is_masked,
                                   const SamplingConfig& config, int32_t mask_id,
                                   int64_t vocab_size, RandomStream& random) {
  ANYORDER_CHECK(tokens.size() == is_masked.size() && mask_id >= 0 && mask_id < vocab_size)
      << tokens.size() << " tokens, " << is_masked.size() << " marks, mask " << mask_id << " of "
      << vocab_size;
  std::vector<int32_t> input(tokens.begin(), tokens.end());
  for (size_t i = 0; i < input.size(); ++i) {
    if (is_masked[i] == 0) continue;
    const double u = random.Uniform();
    if (u < config.mask_token_prob) {
      input[i] = mask_id;
    } else if (u < config.mask_token_prob + config.random_token_prob) {
      input[i] = static_cast<int32_t>(random.Below64(static_cast<uint64_t>(vocab_size)));
    }
  }
  return input;
}

}  // namespace anyorder::data
