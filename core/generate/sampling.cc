#include "core/generate/sampling.h"

#include <cmath>

#include "core/base/check.h"
#include "core/base/fields.h"
#include "core/base/philox.h"
#include "core/base/status.h"

namespace anyorder {
absl::Status SampleOptions::Validate() const {
  RETURN_IF_ERROR(rules.Validate());
  FaultList faults;
  CheckBounds("sampling", cuts, faults);
  return faults.ToStatus();
}

std::optional<WrittenToken> SampledText::Draw(const float* logits, int64_t vocab_size) {
  ANYORDER_CHECK(!is_done_) << "after " << drawn_ << " tokens";
  const int64_t t = drawn_++;
  const NextTokenRules rules(options_.rules, text_.tokens);
  RandomStream random(options_.seed, RandomPurpose::kGeneration, static_cast<uint64_t>(t), stream_);
  const TokenDistribution left(options_.cuts, std::vector<double>(logits, logits + vocab_size),
                               [&rules](int32_t one) { return rules.Allows(one); });
  const int32_t token = left.empty() ? -1 : left.Draw(random.Uniform());
  text_.ended = token == options_.rules.end_token;
  is_done_ = token < 0 || text_.ended || drawn_ == options_.rules.max_tokens;
  if (token < 0) return std::nullopt;
  if (!text_.ended) text_.tokens.push_back(token);
  const double log_prob = static_cast<double>(logits[token]) - LogSumExp(logits, vocab_size);
  text_.score = text_.log_prob += log_prob;
  return WrittenToken{t + 1,
                      t,
                      token,
                      log_prob,
                      std::exp(log_prob),
                      LikeliestTokens(logits, vocab_size, options_.likeliest)};
}

}  // namespace anyorder
