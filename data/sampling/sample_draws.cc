#include "data/sampling/sample_draws.h"

#include <algorithm>
#include <array>

#include "core/base/check.h"
#include "core/objective/lane_frame.h"

namespace anyorder::data {

namespace {

// Where spans may begin and end in one half.
class SpanPlaces {
 public:
  SpanPlaces(const HalfText& half, const SamplingConfig& config) : half_(half), config_(config) {}

  int64_t size() const { return static_cast<int64_t>(half_.word_starts.size()); }
  bool MayChoose(int64_t i) const { return config_.functional_targets || half_.functional[i] == 0; }

  // The first word start at or after `i` that may be chosen, or size().
  int64_t NextStart(int64_t i) const {
    while (i < size() && (half_.word_starts[i] == 0 || !MayChoose(i))) ++i;
    return std::min(i, size());
  }

  // One past the span from `begin` of `length` tokens or words and at most `most` tokens; -1 if
  // there is none. The released code wants a token after every span, because it looks there for the
  // next word's start, so a span cannot end where the half does.
  int64_t SpanEnd(int64_t begin, int64_t length, int64_t most) const {
    if (config_.spans == SpanKind::kWord) return WordSpanEnd(begin, length, most);
    int64_t end = begin + 1;
    while (end < size() && end < begin + length && MayChoose(end)) ++end;
    return end < size() ? end : -1;
  }

 private:
  int64_t WordSpanEnd(int64_t begin, int64_t words, int64_t most) const {
    int64_t end = -1;  // of the whole words found so far
    for (int64_t i = begin + 1; i - begin <= most; ++i) {
      if (i == size()) return -1;
      if (half_.word_starts[i] == 0 && MayChoose(i)) continue;
      end = i;
      if (--words == 0 || !MayChoose(i)) break;
    }
    return end;
  }

  const HalfText& half_;
  const SamplingConfig& config_;
};

TextMode DrawMode(const SamplingConfig& config, RandomStream& random) {
  const std::array<double, kNumTextModes> shares = {
      config.bidirectional_share, config.seq2seq_share, config.left_to_right_share,
      config.right_to_left_share};
  double sum = 0;
  for (const double share : shares) sum += share;
  double left = random.Uniform() * sum;
  // Rounding could leave a little after the last mode that is asked for.
  TextMode mode = TextMode::kBidirectional;
  for (int i = 0; i < kNumTextModes; ++i) {
    if (shares[i] == 0) continue;
    mode = static_cast<TextMode>(i);
    if (left < shares[i]) break;
    left -= shares[i];
  }
  return mode;
}

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

SpanLengths::SpanLengths(int64_t max_span) {
  double total = 0;
  for (int64_t l = 1; l <= max_span; ++l) total += 1.0 / static_cast<double>(l);
  double sum = 0;
  for (int64_t l = 1; l < max_span; ++l) {
    sum += 1.0 / static_cast<double>(l) / total;
    cumulative_.push_back(sum);
  }
  cumulative_.push_back(1.0);
}

int64_t SpanLengths::Draw(RandomStream& random) const {
  const double u = random.Uniform();
  return 1 +
         (std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, u) - cumulative_.begin());
}

std::vector<TokenSpan> DrawSpans(const HalfText& half, int64_t goal, const SamplingConfig& config,
                                 const SpanLengths& lengths, RandomStream& random) {
  std::vector<TokenSpan> spans;
  if (config.spans == SpanKind::kSingle) return spans;
  const SpanPlaces places(half, config);
  int64_t left_to_do = goal;
  for (int64_t current = 0; current < places.size() && left_to_do > 0;) {
    const int64_t length = std::min(lengths.Draw(random), left_to_do);
    const int64_t context = length * config.mask_alpha / config.mask_beta;
    const auto left = static_cast<int64_t>(random.Below64(context));
    const int64_t begin = places.NextStart(current + left);
    if (begin == places.size()) break;
    const int64_t end = places.SpanEnd(begin, length, left_to_do);
    if (end < 0) break;
    spans.push_back({.begin = begin, .end = end});
    left_to_do -= end - begin;
    current = end + context - left;
  }
  return spans;
}

std::vector<uint8_t> DrawSpanMask(const HalfText& half, int64_t goal, const SamplingConfig& config,
                                  const SpanLengths& lengths, RandomStream& random) {
  const SpanPlaces places(half, config);
  int64_t choosable = 0;
  for (int64_t i = 0; i < places.size(); ++i) choosable += places.MayChoose(i) ? 1 : 0;
  ANYORDER_CHECK(goal >= 0 && goal <= choosable) << goal << " of " << choosable;

  std::vector<uint8_t> mask(places.size());
  int64_t done = 0;
  for (const TokenSpan& span : DrawSpans(half, goal, config, lengths, random)) {
    std::fill(mask.begin() + span.begin, mask.begin() + span.end, 1);
    done += span.end - span.begin;
  }
  while (done < goal) {
    const auto i = static_cast<int64_t>(random.Below64(places.size()));
    if (mask[i] != 0 || !places.MayChoose(i)) continue;
    mask[i] = 1;
    ++done;
  }
  return mask;
}

TextExtent DrawExtent(const SamplingConfig& config, SampleKind kind, RandomStream& random) {
  TextExtent extent;
  extent.tokens = config.seq_len - kNumFunctional;
  if (kind == SampleKind::kModePairs) extent.mode = DrawMode(config, random);
  if (config.short_sequence_prob > 0 && random.Uniform() < config.short_sequence_prob)
    extent.tokens = 2 + static_cast<int64_t>(random.Below64(extent.tokens - 1));
  return extent;
}

void FillOrder(absl::Span<const int32_t> permutation, absl::Span<int32_t> order) {
  const size_t block_size = permutation.size();
  ANYORDER_CHECK(block_size > 0 && order.size() % block_size == 0)
      << order.size() << " / " << block_size;
  for (size_t j = 0; j < order.size(); ++j) {
    const size_t offset = j % block_size;
    order[j] = static_cast<int32_t>(j - offset) + permutation[offset];
  }
}

std::vector<uint8_t> DrawUnitMask(absl::Span<const uint8_t> word_starts,
                                  absl::Span<const uint8_t> functional, SpanKind spans,
                                  int64_t goal, RandomStream& random) {
  ANYORDER_CHECK((spans == SpanKind::kSingle || spans == SpanKind::kWord) && goal >= 0)
      << "goal " << goal;
  const std::vector<TokenSpan> units = Units(word_starts, functional, spans);
  std::vector<uint8_t> mask(functional.size());
  int64_t left = goal;
  for (const int32_t index : DrawOrder(static_cast<int64_t>(units.size()), random)) {
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
  for (const int32_t begin : DrawOrder(size, random)) {
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

}  // namespace anyorder::data
