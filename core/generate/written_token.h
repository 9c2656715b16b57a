// What is told of a text while it is written.

#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace anyorder {

// A token that was written.
struct WrittenToken {
  int64_t pass = 0;      // of the network, from 1: those that computed something for this text
  int64_t position = 0;  // in the text, what was given included
  int32_t token = 0;
  double log_prob = 0;    // the model's, given what it saw; without temperature and cuts, in nats
  double confidence = 0;  // what the method chose by, if it did; else the token's probability
};

// Called with each token when it has been written; `text` is its number in the call.
using TokenListener = absl::FunctionRef<void(int64_t text, const WrittenToken& token)>;

inline void NobodyListens(int64_t, const WrittenToken&) {}

}  // namespace anyorder
