// A text source over vectors. Token ids are their positions plus kFirstId, so that a test sees
// where a token came from.

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "data/dataset/text_source.h"
#include "data/sampling/sampler.h"

namespace anyorder::data {

class MemoryText : public TextSource {
 public:
  static constexpr int32_t kClassId = 3;
  static constexpr int32_t kSeparatorId = 4;
  static constexpr int32_t kMaskId = 6;
  static constexpr int32_t kFirstId = 100;

  // Sentences of 1..2 * mean_sentence - 1 tokens; every second token, on average, starts a word.
  static MemoryText Random(int64_t num_tokens, int64_t mean_sentence, uint64_t seed) {
    RandomStream random(seed, RandomPurpose::kPrep, 0, 0);
    MemoryText text;
    uint8_t flag = 1;
    for (int64_t left = 0; static_cast<int64_t>(text.tokens.size()) < num_tokens; --left) {
      if (left == 0) {
        left = 1 + static_cast<int64_t>(random.Below64(2 * mean_sentence - 1));
        flag ^= 1;
      }
      text.tokens.push_back(kFirstId + static_cast<int32_t>(text.tokens.size()));
      text.flags.push_back(flag);
      text.starts.push_back(random.Below(2) == 0);
    }
    return text;
  }

  MemoryText Reversed() const {
    MemoryText text = *this;
    std::reverse(text.tokens.begin(), text.tokens.end());
    std::reverse(text.flags.begin(), text.flags.end());
    std::reverse(text.starts.begin(), text.starts.end());
    return text;
  }

  int64_t num_tokens() const override { return static_cast<int64_t>(tokens.size()); }
  VocabularyIds vocabulary() const override {
    return {kSeparatorId, kClassId, kMaskId, kFirstId + num_tokens()};
  }
  absl::Status ReadTokens(int64_t begin, int64_t end, int32_t* out) const override {
    return Copy(tokens, begin, end, out);
  }
  absl::Status ReadSentenceFlags(int64_t begin, int64_t end, uint8_t* out) const override {
    return Copy(flags, begin, end, out);
  }
  absl::Status ReadWordStarts(int64_t begin, int64_t end, uint8_t* out) const override {
    return Copy(starts, begin, end, out);
  }
  std::vector<int32_t> tokens;
  std::vector<uint8_t> flags;
  std::vector<uint8_t> starts;
  absl::Status failure;  // what every read returns, if not OK

 private:
  template <typename Value>
  absl::Status Copy(const std::vector<Value>& from, int64_t begin, int64_t end, Value* out) const {
    if (begin < 0 || begin > end || end > num_tokens()) return absl::InternalError("range");
    std::copy(from.begin() + begin, from.begin() + end, out);
    return failure;
  }
};

inline std::unique_ptr<Sampler> MakeSampler(const MemoryText& text, const SamplingConfig& config,
                                            int64_t num_lanes, SampleKind kind = SampleKind::kPairs,
                                            uint64_t seed = 17) {
  return Sampler::Create(text, config, kind, seed, num_lanes).value();
}

inline TextSample Take(const Sampler& sampler, int64_t lane, int64_t step) {
  return sampler.Sample(lane, step).value();
}

// Steps 0 to `steps` - 1 of each of `lanes` lanes.
template <typename Check>
void ForEachSample(const Sampler& sampler, int64_t lanes, int64_t steps, const Check& check) {
  for (int64_t lane = 0; lane < lanes; ++lane) {
    for (int64_t step = 0; step < steps; ++step) check(Take(sampler, lane, step));
  }
}

inline int64_t Count(const std::vector<uint8_t>& mask) {
  return std::accumulate(mask.begin(), mask.end(), int64_t{0});
}

// Five standard deviations of a count of `trials` independent tries: missed by chance once in 1.7
// million counts.
inline double Spread(double trials, double probability) {
  return 5 * std::sqrt(trials * probability * (1 - probability));
}

// Pairs of halves, each a whole number of blocks.
inline SamplingConfig PairConfig(int64_t seq_len, int64_t num_predict, int64_t perm_size) {
  return {.seq_len = seq_len,
          .reuse_len = seq_len / 2,
          .num_predict = num_predict,
          .perm_size = perm_size};
}

}  // namespace anyorder::data
