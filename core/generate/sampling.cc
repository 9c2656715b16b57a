#include "core/generate/sampling.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/base/status.h"

namespace anyorder {

TokenDistribution::TokenDistribution(const TokenCuts& cuts, const std::vector<double>& logits,
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
  const auto left = std::min<size_t>(static_cast<size_t>(enough - sums_.begin()) + 1, sums_.size());
  sums_.resize(left);
  weights_.resize(left);
  tokens_.resize(left);
}

int32_t TokenDistribution::Draw(double uniform) const {
  ANYORDER_CHECK(!empty()) << "no token to draw";
  const auto found = std::upper_bound(sums_.begin(), sums_.end(), uniform * sums_.back());
  // uniform * total may round up to the total itself.
  return tokens_[std::min<size_t>(static_cast<size_t>(found - sums_.begin()), sums_.size() - 1)];
}

int32_t TokenDistribution::Likeliest() const {
  ANYORDER_CHECK(!empty()) << "no token";
  size_t best = 0;
  for (size_t i = 1; i < tokens_.size(); ++i) {
    const bool is_as_likely = weights_[i] == weights_[best] && tokens_[i] < tokens_[best];
    if (weights_[i] > weights_[best] || is_as_likely) best = i;
  }
  return tokens_[best];
}

double TokenDistribution::Probability(int32_t token) const {
  const auto found = std::find(tokens_.begin(), tokens_.end(), token);
  return found == tokens_.end() ? 0 : probability(static_cast<size_t>(found - tokens_.begin()));
}

absl::Status SampleOptions::Validate() const {
  RETURN_IF_ERROR(rules.Validate());
  FaultList faults;
  CheckBounds("sampling", cuts, faults);
  return faults.ToStatus();
}

std::optional<WrittenToken> SampledText::Draw(const float* logits, int64_t vocab_size) {
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

}  // namespace anyorder
