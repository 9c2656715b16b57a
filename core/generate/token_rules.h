// Which tokens a text may go on with, whatever their probability.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace anyorder {

struct TokenRules {
  int32_t end_token = 0;
  int64_t min_tokens = 0;    // before the end token
  int64_t max_tokens = 128;  // generated at most, the end token included
  int64_t block_ngram = 0;   // no n tokens in a row may come twice in the generated text (Paulus et
                             // al. 2017); 0: they may
  std::vector<uint8_t> banned;  // [V] 1: never; empty: none is banned

  // InvalidArgument listing every fault.
  absl::Status Validate() const;
};

// The rules for what follows `tokens`.
class NextTokenRules {
 public:
  NextTokenRules(const TokenRules& rules, const std::vector<int32_t>& tokens);

  bool Allows(int32_t token) const;

 private:
  const TokenRules& rules_;
  bool may_end_;
  std::vector<int32_t> repeats_;  // would complete an n-gram that has been there
};

// log(sum(exp(logits))) over all V, in double and in index order.
double LogSumExp(const float* logits, int64_t vocab_size);

}  // namespace anyorder
