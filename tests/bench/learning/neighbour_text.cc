#include "tests/bench/learning/neighbour_text.h"

#include "core/base/philox.h"
#include "data/sampling/permutation.h"

namespace anyorder::bench {
namespace {

std::vector<int32_t> Tokens(
    int64_t symbols, int64_t size, uint64_t seed, int64_t lane, int64_t step) {
  RandomStream random(seed, RandomPurpose::kPairs, step, lane);
  std::vector<int32_t> values(static_cast<size_t>(size + 2));
  for (size_t i = 0; i < values.size(); i += 2)
    values[i] = static_cast<int32_t>(random.Below(static_cast<uint32_t>(symbols)));
  for (size_t i = 1; i + 1 < values.size(); i += 2)
    values[i] = static_cast<int32_t>((values[i - 1] + values[i + 1]) % symbols);
  values.resize(static_cast<size_t>(size));
  for (int32_t& value : values)
    value += NeighbourText::kFirstId;
  return values;
}

}  // namespace

TextSample NeighbourText::Window(const SamplingConfig& sampling,
                                 uint64_t seed,
                                 int64_t lane,
                                 int64_t step) const {
  TextSample sample;
  sample.lane = lane;
  sample.step = step;
  sample.tokens = Tokens(symbols, sampling.seq_len + 1, seed, lane, step);
  sample.next_tokens.assign(sample.tokens.begin() + 1, sample.tokens.end());
  sample.tokens.pop_back();
  sample.segment.assign(sample.tokens.size(), 0);
  return sample;
}

TextSample NeighbourText::Masked(const SamplingConfig& sampling,
                                 uint64_t seed,
                                 int64_t lane,
                                 int64_t step) const {
  TextSample sample;
  sample.lane = lane;
  sample.step = step;
  sample.tokens = Tokens(symbols, sampling.seq_len - 1, seed, lane, step);
  const auto size = static_cast<int64_t>(sample.tokens.size());
  sample.tokens.push_back(kClassId);
  sample.segment.assign(sample.tokens.size(), 0);
  sample.is_masked.assign(sample.tokens.size(), 0);
  sample.is_functional.assign(sample.tokens.size(), 0);
  sample.is_functional.back() = 1;
  sample.input_tokens = sample.tokens;
  RandomStream masks(seed, RandomPurpose::kSpans, step, lane);
  const std::vector<int32_t> order = data::DrawPermutation(size, masks);
  for (int64_t i = 0; i < sampling.NumTargets(SampleKind::kMaskedPairs); ++i) {
    sample.is_masked[order[i]] = 1;
    sample.input_tokens[order[i]] = kMaskId;
  }
  return sample;
}

std::vector<uint8_t> UndeterminedTokens(const std::vector<uint8_t>& hidden) {
  const size_t size = hidden.size();
  std::vector<uint8_t> unknown(size, 0);
  // Even tokens joined by odd ones that are seen are known together, from any of them.
  for (size_t begin = 0; begin < size;) {
    size_t end = begin;
    bool any = hidden[begin] == 0;
    while (end + 2 < size && hidden[end + 1] == 0) {
      end += 2;
      any = any || hidden[end] == 0;
    }
    for (size_t even = begin; even <= end; even += 2)
      unknown[even] = any ? 0 : 1;
    begin = end + 2;
  }
  // The last token may be odd: its right neighbour is never seen.
  for (size_t odd = 1; odd < size; odd += 2) {
    const bool determined = odd + 1 < size && unknown[odd - 1] == 0 && unknown[odd + 1] == 0;
    unknown[odd] = determined ? 0 : 1;
  }
  for (size_t i = 0; i < size; ++i)
    unknown[i] = hidden[i] != 0 ? unknown[i] : 0;
  return unknown;
}

}  // namespace anyorder::bench
