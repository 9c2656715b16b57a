// How a sample is to be read and how much of it is text: drawn before the text itself.

#pragma once

#include <cstdint>

#include "core/base/philox.h"
#include "core/config/sampling_config.h"

namespace anyorder::data {

// Tokens that are no text in a sample of two segments: SEP after A, SEP and CLS after B.
inline constexpr int64_t kNumFunctional = 3;

struct TextExtent {
  TextMode mode = TextMode::kBidirectional;
  // Tokens of both segments: seq_len - kNumFunctional, in a short sample uniform in [2, seq_len -
  // kNumFunctional].
  int64_t tokens = 0;
};

// kModePairs: a mode by the shares, then, if short samples are asked for, whether this is one and
// its length. Other kinds are bidirectional. REQUIRES: config is valid for `kind`.
TextExtent DrawExtent(const SamplingConfig& config, SampleKind kind, RandomStream& random);

}  // namespace anyorder::data
