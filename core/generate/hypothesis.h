// A text that a search has found.

#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace anyorder {

struct Hypothesis {
  std::vector<int32_t> tokens;  // without the prompt and the end token
  bool ended = false;           // by the end token; else it is as long as it may be
  double log_prob = 0;          // of all tokens, the end token included, in nats
  double score = 0;             // log_prob / LengthPenalty

  int64_t length() const { return static_cast<int64_t>(tokens.size()) + (ended ? 1 : 0); }
};

// ((5 + length) / 6)^alpha (Wu et al. 2016, section 7; UniLM's decoder). `length` counts the end
// token.
inline double LengthPenalty(int64_t length, double alpha) {
  return std::pow((5.0 + static_cast<double>(length)) / 6.0, alpha);
}

}  // namespace anyorder
