#include "data/sampling/span_sampler.h"

#include <algorithm>

#include "core/base/check.h"

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

}  // namespace anyorder::data
