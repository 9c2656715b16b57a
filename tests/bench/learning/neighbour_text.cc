#include "tests/bench/learning/neighbour_text.h"

#include "core/base/philox.h"
#include "data/sampling/permutation.h"

namespace anyorder::bench {
namespace {

std::vector<int32_t> Tokens(int64_t symbols, int64_t size, uint64_t seed, int64_t lane,
                            int64_t step) {
  RandomStream random(seed, RandomPurpose::kPairs, step, lane);
  std::vector<int32_t> values(static_cast<size_t>(size + 2));
  for (size_t i = 0; i < values.size(); i += 2)
    values[i] = static_cast<int32_t>(random.Below(static_cast<uint32_t>(symbols)));
  for (size_t i = 1; i + 1 < values.size(); i += 2)
    values[i] = static_cast<int32_t>(symbols + values[i - 1] * symbols + values[i + 1]);
  values.resize(static_cast<size_t>(size));
  for (int32_t& value : values) value += NeighbourText::kFirstId;
  return values;
}

}  // namespace

TextSample NeighbourText::Window(const SamplingConfig& sampling, uint64_t seed, int64_t lane,
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

TextSample NeighbourText::Masked(const SamplingConfig& sampling, uint64_t seed, int64_t lane,
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

std::vector<uint8_t> UnknownSymbols(const std::vector<uint8_t>& hidden) {
  const size_t size = hidden.size();
  // The symbol of an even place, which may lie one behind the last token.
  const auto is_unknown = [&](size_t even) {
    const bool seen = even < size && hidden[even] == 0;
    const bool told_before = even > 0 && hidden[even - 1] == 0;
    const bool told_after = even + 1 < size && hidden[even + 1] == 0;
    return !seen && !told_before && !told_after;
  };
  std::vector<uint8_t> unknown(size, 0);
  for (size_t i = 0; i < size; ++i) {
    if (hidden[i] == 0) continue;
    if (i % 2 == 0) {
      unknown[i] = is_unknown(i) ? 1 : 0;
    } else {
      unknown[i] = static_cast<uint8_t>((is_unknown(i - 1) ? 1 : 0) + (is_unknown(i + 1) ? 1 : 0));
    }
  }
  return unknown;
}

}  // namespace anyorder::bench
