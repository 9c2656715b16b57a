#include "core/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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

absl::StatusOr<std::vector<Hypothesis>> SampleTexts(NextTokens& model, const SampleOptions& options,
                                                    const std::vector<uint64_t>& streams,
                                                    TokenListener listener) {
  const auto lanes = static_cast<size_t>(model.lanes());
  const int64_t vocab_size = model.vocab_size();
  std::vector<Hypothesis> texts(lanes);
  std::vector<uint8_t> is_done(lanes, 0);
  std::vector<int32_t> newest(lanes, 0);
  std::vector<int32_t> own(lanes);
  std::iota(own.begin(), own.end(), 0);
  for (int64_t t = 0; t < options.rules.max_tokens; ++t) {
    if (std::all_of(is_done.begin(), is_done.end(), [](uint8_t done) { return done != 0; })) break;
    RETURN_IF_ERROR(model.Next(newest, own));
    for (size_t b = 0; b < lanes; ++b) {
      if (is_done[b] != 0) continue;
      ASSIGN_OR_RETURN(const float* const lane, model.Logits(static_cast<int64_t>(b)));
      const NextTokenRules rules(options.rules, texts[b].tokens);
      RandomStream random(options.seed, RandomPurpose::kGeneration, static_cast<uint64_t>(t),
                          streams[b]);
      const TokenDistribution left(options.cuts, std::vector<double>(lane, lane + vocab_size),
                                   [&rules](int32_t one) { return rules.Allows(one); });
      const int32_t token = left.empty() ? -1 : left.Draw(random.Uniform());
      is_done[b] = token < 0 || token == options.rules.end_token ? 1 : 0;
      if (token < 0) continue;
      const double log_prob = static_cast<double>(lane[token]) - LogSumExp(lane, vocab_size);
      listener(static_cast<int64_t>(b), {t + 1, t, token, log_prob, std::exp(log_prob)});
      texts[b].log_prob += log_prob;
      texts[b].ended = token == options.rules.end_token;
      if (!texts[b].ended) texts[b].tokens.push_back(token);
      newest[b] = token;
    }
  }
  for (Hypothesis& text : texts) text.score = text.log_prob;
  return texts;
}

}  // namespace anyorder
