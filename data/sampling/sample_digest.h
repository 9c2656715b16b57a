// Names what a step trained on in a few bytes, so that histories of runs can be compared
// (metrics.jsonl, `samples`).

#pragma once

#include <cstdint>
#include <string>

#include "core/objective/text_sample.h"

namespace anyorder::data {

// XXH3 over everything in `sample`: lane, step, tokens, targets, order. Depends on nothing else.
uint64_t SampleDigest(const TextSample& sample);

// Of all lanes of a step: the sums of the digests' halves. Sums of whole numbers below 2^53 are
// exact in double in any order, so ranks can sum theirs together with the gradient, and any
// number of ranks gets the same. Exact up to 2^21 lanes.
struct StepDigest {
  double high = 0;
  double low = 0;

  void Add(uint64_t sample_digest);
  // 16 hex digits.
  std::string Hex() const;
};

}  // namespace anyorder::data
