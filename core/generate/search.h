// What beam search and sampling have in common: the model they ask, the rules they keep, the texts
// they find.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "core/base/fields.h"

namespace anyorder {

// What a search asks of a model: logits of the next token of several texts at once.
class NextTokens {
 public:
  virtual ~NextTokens() = default;

  virtual int64_t vocab_size() const = 0;  // V
  // Texts that grow side by side. BeamSearch requires that those of one prompt are neighbours, and
  // equally many for each prompt.
  virtual int64_t lanes() const = 0;
  // Lane b's text becomes that of lane parents[b], a lane of the same prompt, with newest[b] behind
  // it. In the first call nothing has been chosen yet: newest is not read, and parents[b] is b.
  virtual absl::Status Next(const std::vector<int32_t>& newest,
                            const std::vector<int32_t>& parents) = 0;
  // Logits [V] of the token after lane b's text, valid until the next call. All of them are finite,
  // or there is an error. Lanes are asked in turn.
  virtual absl::StatusOr<const float*> Logits(int64_t lane) = 0;
};

// Which tokens a text may go on with, whatever their probability.
struct TokenRules {
  int32_t end_token = 0;
  int64_t min_tokens = 0;    // before the end token
  bool never_ends = false;   // the end token is not allowed at all
  int64_t max_tokens = 128;  // generated at most, the end token included
  int64_t block_ngram = 0;   // no n tokens in a row may come twice in the generated text (Paulus et
                             // al. 2017); 0: they may
  std::vector<uint8_t> banned;  // [V] 1: never; empty: none is banned

  // InvalidArgument listing every fault.
  absl::Status Validate() const {
    FaultList faults;
    faults.Require(max_tokens >= 1,
                   absl::StrCat("at most ", max_tokens, " tokens, but at least 1 must be allowed"));
    faults.Require(min_tokens >= 0 && min_tokens < max_tokens,
                   absl::StrCat("at least ", min_tokens,
                                " tokens before the end, but they and the end token must fit in ",
                                max_tokens));
    faults.Require(block_ngram >= 0, absl::StrCat("n-grams of ", block_ngram, " tokens"));
    return faults.ToStatus();
  }
};

// The rules for what follows `tokens`.
class NextTokenRules {
 public:
  NextTokenRules(const TokenRules& rules, const std::vector<int32_t>& tokens)
      : rules_(rules),
        may_end_(!rules.never_ends && static_cast<int64_t>(tokens.size()) >= rules.min_tokens) {
    const auto size = static_cast<int64_t>(tokens.size());
    const int64_t before = rules.block_ngram - 1;
    if (before < 0 || size < before) return;
    const auto tail = tokens.end() - before;
    for (int64_t begin = 0; begin + before < size; ++begin) {
      if (std::equal(tail, tokens.end(), tokens.begin() + begin))
        repeats_.push_back(tokens[begin + before]);
    }
  }

  bool Allows(int32_t token) const {
    if (token == rules_.end_token) return may_end_;
    if (!rules_.banned.empty() && rules_.banned[token] != 0) return false;
    return std::find(repeats_.begin(), repeats_.end(), token) == repeats_.end();
  }

 private:
  const TokenRules& rules_;
  bool may_end_;
  std::vector<int32_t> repeats_;  // would complete an n-gram that has been there
};

// log(sum(exp(logits))) over all V, summed in double and in index order.
template <typename T>
double LogSumExp(const T* logits, int64_t vocab_size) {
  const T largest = *std::max_element(logits, logits + vocab_size);
  double sum = 0;
  for (int64_t token = 0; token < vocab_size; ++token)
    sum += static_cast<double>(std::exp(logits[token] - largest));
  return static_cast<double>(largest) + std::log(sum);
}

struct LikelyToken {
  int32_t token = 0;
  double log_prob = 0;
};

// The `count` likeliest tokens, or all V, the likeliest first and the lowest id of equal ones: the
// model's own log-probabilities, whatever a method may write.
template <typename T>
std::vector<LikelyToken> LikeliestTokens(const T* logits, int64_t vocab_size, int64_t count) {
  std::vector<LikelyToken> likeliest;
  if (count <= 0) return likeliest;
  std::vector<int32_t> order(static_cast<size_t>(vocab_size));
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + std::min(count, vocab_size);
  std::partial_sort(order.begin(), end, order.end(), [logits](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  const double sum = LogSumExp(logits, vocab_size);
  for (auto token = order.begin(); token != end; ++token)
    likeliest.push_back({*token, static_cast<double>(logits[*token]) - sum});
  return likeliest;
}

// A text that a search has found.
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
