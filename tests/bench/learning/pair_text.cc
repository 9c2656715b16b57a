#include "tests/bench/learning/pair_text.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "data/sampling/corruption.h"
#include "data/sampling/permutation.h"

namespace anyorder::bench {
namespace {

constexpr int32_t kClassId = 3;
constexpr int32_t kSeparatorId = 4;
constexpr int32_t kMaskId = 6;
constexpr int64_t kNamesPerTarget = 4;

// SEP in the middle and SEP, SEP, CLS at the end: the rest of a half is names.
void PlaceFunctional(int64_t half, TextSample& sample) {
  const int64_t names = (half - 4) / 2;
  const int64_t middle = half + names / 2 * 2;
  const int64_t size = 2 * half;
  for (const int64_t slot : {middle, size - 3, size - 2, size - 1}) {
    sample.is_functional[slot] = 1;
    sample.tokens[slot] = slot == size - 1 ? kClassId : kSeparatorId;
  }
  for (int64_t slot = middle + 1; slot < size; ++slot)
    sample.segment[slot] = slot == size - 1 ? 2 : 1;
}

double XLogX(double x) { return x > 0 ? x * std::log(x) : 0.0; }

}  // namespace

double PairText::JointEntropy() const {
  return MarginalEntropy() + std::log(static_cast<double>(branches));
}

double PairText::MarginalEntropy() const { return std::log(static_cast<double>(firsts)); }

// By symmetry the entropy of one member is enough. What is seen: the member's own slot shows s, its
// partner's slot t. Given member x and partner y, each of r for x:
//   P(s | x) = mask_rate [s = mask] + random_rate / V + kept_rate [s = x], and likewise P(t | y).
double PairText::CorruptedEntropy(double mask_rate, double random_rate) const {
  const double kept_rate = 1.0 - mask_rate - random_rate;
  const double noise = random_rate / static_cast<double>(vocab_size());
  const int64_t mask = firsts;       // symbols 0..C-1: members; C: the mask
  const int64_t other = firsts + 1;  // any other token of the vocabulary: all tell equally little
  const auto num_other = static_cast<double>(vocab_size() - firsts - 1);
  const auto seen = [&](int64_t symbol, int64_t member) {
    if (symbol == mask) return mask_rate + noise;
    if (symbol == other) return num_other * noise;
    return noise + (symbol == member ? kept_rate : 0.0);
  };
  double entropy = 0;
  for (int64_t s = 0; s <= other; ++s) {
    for (int64_t t = 0; t <= other; ++t) {
      double total = 0;
      for (int64_t x = 0; x < firsts; ++x) {
        double partner = 0;
        for (int64_t k = 0; k < branches; ++k)
          partner += seen(t, (x + k) % firsts) / static_cast<double>(branches);
        const double joint = seen(s, x) * partner / static_cast<double>(firsts);
        entropy -= XLogX(joint);
        total += joint;
      }
      entropy += XLogX(total);
    }
  }
  return 2 * entropy;
}

TextSample PairText::Draw(const SamplingConfig& sampling, uint64_t seed, int64_t lane,
                          int64_t step) const {
  const int64_t half = sampling.reuse_len;
  ANYORDER_CHECK(half % (2 * kNamesPerTarget) == 0) << "half of " << half << " slots";
  const auto size = static_cast<size_t>(sampling.seq_len);
  TextSample sample;
  sample.lane = lane;
  sample.step = step;
  sample.tokens.resize(size);
  sample.segment.resize(size);
  sample.is_masked.resize(size);
  sample.is_functional.resize(size);
  sample.order.resize(size);
  PlaceFunctional(half, sample);

  RandomStream text(seed, RandomPurpose::kPairs, step, lane);
  RandomStream masks(seed, RandomPurpose::kSpans, step, lane);
  RandomStream orders(seed, RandomPurpose::kPermutation, step, lane);
  for (const int64_t begin : {int64_t{0}, half}) {
    std::vector<int64_t> names;  // first slots
    for (int64_t slot = begin; slot < begin + half; ++slot) {
      if (sample.is_functional[slot] != 0) continue;
      names.push_back(slot);
      const auto first = static_cast<int64_t>(text.Below(static_cast<uint32_t>(firsts)));
      const auto branch = static_cast<int64_t>(text.Below(static_cast<uint32_t>(branches)));
      sample.tokens[slot] = static_cast<int32_t>(kFirstId + first);
      sample.tokens[++slot] = static_cast<int32_t>(kFirstId + firsts + (first + branch) % firsts);
    }
    const std::vector<int32_t> chosen =
        data::DrawPermutation(static_cast<int64_t>(names.size()), masks);
    for (int64_t i = 0; i < half / (2 * kNamesPerTarget); ++i) {
      sample.is_masked[names[chosen[i]]] = 1;
      sample.is_masked[names[chosen[i]] + 1] = 1;
    }
    const std::vector<int32_t> order = data::DrawPermutation(half, orders);
    std::copy(order.begin(), order.end(), sample.order.begin() + begin);
  }
  RandomStream corruption(seed, RandomPurpose::kCorruption, step, lane);
  sample.input_tokens = data::CorruptTokens(sample.tokens, sample.is_masked, sampling, kMaskId,
                                            vocab_size(), corruption);
  return sample;
}

SamplingConfig PairSampling(int64_t seq_len) {
  SamplingConfig sampling;
  sampling.seq_len = seq_len;
  sampling.reuse_len = seq_len / 2;
  sampling.perm_size = seq_len / 2;
  sampling.num_predict = seq_len / kNamesPerTarget;
  sampling.mask_fraction = 1.0 / kNamesPerTarget;
  sampling.bidirectional = false;
  return sampling;
}

}  // namespace anyorder::bench
