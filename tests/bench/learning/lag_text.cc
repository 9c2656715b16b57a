#include "tests/bench/learning/lag_text.h"

#include <cmath>

#include "core/base/philox.h"

namespace anyorder::bench {

double LagText::BlindEntropy() const { return std::log(static_cast<double>(symbols)); }

double LagText::InformedEntropy() const {
  const auto size = static_cast<double>(symbols);
  const double match = copies + (1 - copies) / size;
  return -match * std::log(match) - (1 - match) * std::log((1 - match) / (size - 1));
}

int32_t LagText::Token(uint64_t seed, int64_t lane, int64_t position) const {
  for (;; position -= lag) {
    RandomStream random(seed, RandomPurpose::kPairs, static_cast<uint64_t>(position),
                        static_cast<uint64_t>(lane));
    if (position < lag || random.Uniform() >= copies) {
      return kFirstId + static_cast<int32_t>(random.Below(static_cast<uint32_t>(symbols)));
    }
  }
}

TextSample LagText::Segment(int64_t seq_len, uint64_t seed, int64_t lane, int64_t step) const {
  TextSample sample;
  sample.lane = lane;
  sample.step = step;
  sample.segment.assign(static_cast<size_t>(seq_len), 0);
  for (int64_t slot = 0; slot <= seq_len; ++slot) {
    const int32_t token = Token(seed, lane, step * seq_len + slot);
    if (slot < seq_len) sample.tokens.push_back(token);
    if (slot > 0) sample.next_tokens.push_back(token);
  }
  return sample;
}

}  // namespace anyorder::bench
