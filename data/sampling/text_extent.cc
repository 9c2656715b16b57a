#include "data/sampling/text_extent.h"

#include <array>

namespace anyorder::data {
namespace {

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

}  // namespace

TextExtent DrawExtent(const SamplingConfig& config, SampleKind kind, RandomStream& random) {
  TextExtent extent;
  extent.tokens = config.seq_len - kNumFunctional;
  if (kind == SampleKind::kModePairs) extent.mode = DrawMode(config, random);
  if (config.short_sequence_prob > 0 && random.Uniform() < config.short_sequence_prob)
    extent.tokens = 2 + static_cast<int64_t>(random.Below64(extent.tokens - 1));
  return extent;
}

}  // namespace anyorder::data
