// Tokens drawn from logits, with temperature, cuts and forbidden tokens, in fp64; who hears of
// them; and a text drawn token by token.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"

#include "core/base/check.h"
#include "core/base/fields.h"
#include "core/base/philox.h"
#include "core/generate/search.h"

namespace anyorder {

// The most tokens of a text, and the most of whatever an option counts in tokens or passes.
inline constexpr int64_t kMostTokens = int64_t{1} << 20;

struct TokenCuts {
  double temperature = 1.0;
  int64_t top_k = 0;   // of the allowed tokens
  double top_p = 1.0;  // Holtzman et al. 2020

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("temperature", self.temperature, "divide logits by X; 0: the most likely token",
          Between(0, 1e6));
    visit("top_k", self.top_k, "sample from the N most likely tokens; 0: all",
          Between(0, kMostTokens));
    visit("top_p", self.top_p,
          "nucleus sampling: sample from the most likely tokens of total probability X",
          PositiveFraction());
  }
  bool operator==(const TokenCuts&) const = default;
};

// The distribution that is left of logits. Tokens of equal logits are taken in the order of their
// ids. Has no token if none is allowed.
class TokenDistribution {
 public:
  TokenDistribution(const TokenCuts& cuts, const std::vector<double>& logits,
                    absl::FunctionRef<bool(int32_t)> is_allowed) {
    const auto is_likelier = [&logits](int32_t a, int32_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    };
    for (int32_t token = 0; token < static_cast<int32_t>(logits.size()); ++token)
      if (is_allowed(token)) tokens_.push_back(token);
    if (tokens_.empty()) return;
    const int64_t kept = cuts.temperature == 0 ? 1 : cuts.top_k;
    if (kept == 1) {
      tokens_.front() = *std::min_element(tokens_.begin(), tokens_.end(), is_likelier);
      tokens_.erase(tokens_.begin() + 1, tokens_.end());  // where resize(1) makes g++ 14 warn
    } else if (kept > 0 && kept < static_cast<int64_t>(tokens_.size())) {
      std::partial_sort(tokens_.begin(), tokens_.begin() + kept, tokens_.end(), is_likelier);
      tokens_.resize(static_cast<size_t>(kept));
    } else if (cuts.top_p < 1.0) {
      std::sort(tokens_.begin(), tokens_.end(), is_likelier);
    }
    const double largest = logits[*std::min_element(tokens_.begin(), tokens_.end(), is_likelier)];
    const double temperature = cuts.temperature == 0 ? 1 : cuts.temperature;
    double sum = 0;
    for (const int32_t token : tokens_) {
      weights_.push_back(std::exp((logits[token] - largest) / temperature));
      sum += weights_.back();
      sums_.push_back(sum);
    }
    if (cuts.top_p >= 1.0) return;
    const auto enough = std::lower_bound(sums_.begin(), sums_.end(), cuts.top_p * sum);
    const auto left =
        std::min<size_t>(static_cast<size_t>(enough - sums_.begin()) + 1, sums_.size());
    sums_.resize(left);
    weights_.resize(left);
    tokens_.resize(left);
  }

  bool empty() const { return tokens_.empty(); }
  // `uniform` in [0, 1). REQUIRES: not empty.
  int32_t Draw(double uniform) const {
    ANYORDER_CHECK(!empty()) << "no token to draw";
    const auto found = std::upper_bound(sums_.begin(), sums_.end(), uniform * sums_.back());
    // uniform * total may round up to the total itself.
    return tokens_[std::min<size_t>(static_cast<size_t>(found - sums_.begin()), sums_.size() - 1)];
  }
  // The token of the largest probability, the lowest id of equal ones. REQUIRES: not empty.
  int32_t Likeliest() const {
    ANYORDER_CHECK(!empty()) << "no token";
    size_t best = 0;
    for (size_t i = 1; i < tokens_.size(); ++i) {
      const bool is_as_likely = weights_[i] == weights_[best] && tokens_[i] < tokens_[best];
      if (weights_[i] > weights_[best] || is_as_likely) best = i;
    }
    return tokens_[best];
  }
  // 0 of a token that is cut or forbidden. O(tokens left).
  double Probability(int32_t token) const {
    const auto found = std::find(tokens_.begin(), tokens_.end(), token);
    return found == tokens_.end() ? 0 : probability(static_cast<size_t>(found - tokens_.begin()));
  }

  // The tokens left, in the order that Draw takes them, and their probabilities.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  double probability(size_t index) const { return weights_[index] / sums_.back(); }

 private:
  std::vector<int32_t> tokens_;
  std::vector<double> weights_;  // exp((logit - largest) / temperature)
  std::vector<double> sums_;     // running, of weights
};

// A token that was written: what is told of a text meanwhile.
struct WrittenToken {
  int64_t pass = 0;      // of the network, from 1: those that computed something for this text
  int64_t position = 0;  // in the text, what was given included
  int32_t token = 0;
  double log_prob = 0;    // the model's, given what it saw; without temperature and cuts, in nats
  double confidence = 0;  // what the method chose by, if it did; else the token's probability
  std::vector<LikelyToken> likeliest = {};  // in its place, the likeliest first, if asked for
};

// Called with each token when it has been written; `text` is its number in the call.
using TokenListener = absl::FunctionRef<void(int64_t text, const WrittenToken& token)>;

inline void NobodyListens(int64_t, const WrittenToken&) {}

// Asked after each pass that computed something for text `text`: whether it goes on. If not, its
// blanks stay unwritten. `is_done`: nothing is left to write.
using PassCheck = absl::FunctionRef<bool(int64_t text, bool is_done)>;

inline bool GoesOn(int64_t, bool) { return true; }

struct SampleOptions {
  TokenCuts cuts;
  uint64_t seed = 1;
  TokenRules rules;
  int64_t likeliest = 0;  // so many tokens are told with each that is drawn
};

// Token t is drawn by RandomStream(seed, RandomPurpose::kGeneration, t, stream): a text depends on
// its seed, its number and its logits, never on its company. Tokens of equal probability are taken
// in the order of their ids. The log-probability of a text is the model's, without temperature and
// cuts, and so is the score. A text whose rules allow no token is done, not ended.
class SampledText {
 public:
  // `options` are borrowed.
  SampledText(const SampleOptions* options, uint64_t stream) : options_(options), stream_(stream) {}

  // The next token, which `logits` [vocab_size] are about; its position counts from 0 behind the
  // prompt. None if the rules allow none. REQUIRES: not done.
  std::optional<WrittenToken> Draw(const float* logits, int64_t vocab_size) {
    ANYORDER_CHECK(!is_done_) << "after " << drawn_ << " tokens";
    const int64_t t = drawn_++;
    const NextTokenRules rules(options_->rules, text_.tokens);
    RandomStream random(options_->seed, RandomPurpose::kGeneration, static_cast<uint64_t>(t),
                        stream_);
    const TokenDistribution left(options_->cuts, std::vector<double>(logits, logits + vocab_size),
                                 [&rules](int32_t one) { return rules.Allows(one); });
    const int32_t token = left.empty() ? -1 : left.Draw(random.Uniform());
    text_.ended = token == options_->rules.end_token;
    is_done_ = token < 0 || text_.ended || drawn_ == options_->rules.max_tokens;
    if (token < 0) return std::nullopt;
    if (!text_.ended) text_.tokens.push_back(token);
    const double log_prob = static_cast<double>(logits[token]) - LogSumExp(logits, vocab_size);
    text_.score = text_.log_prob += log_prob;
    return WrittenToken{t + 1,
                        t,
                        token,
                        log_prob,
                        std::exp(log_prob),
                        LikeliestTokens(logits, vocab_size, options_->likeliest)};
  }

  bool is_done() const { return is_done_; }
  const Hypothesis& text() const { return text_; }

 private:
  const SampleOptions* options_;
  uint64_t stream_;
  int64_t drawn_ = 0;
  bool is_done_ = false;
  Hypothesis text_;
};

}  // namespace anyorder
