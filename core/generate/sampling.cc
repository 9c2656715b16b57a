#include "core/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "core/base/fields.h"
#include "core/base/philox.h"
#include "core/base/status.h"

namespace anyorder {
namespace {

struct Choice {
  float logit = 0;
  int32_t token = 0;
};

bool IsLikelier(const Choice& a, const Choice& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

// Draws one of `choices`, which are in some fixed order; -1 if there is none.
class TokenDraw {
 public:
  TokenDraw(const SampleOptions& options, const float* logits, int64_t vocab_size,
            const NextTokenRules& rules)
      : options_(options) {
    for (int32_t token = 0; token < static_cast<int32_t>(vocab_size); ++token)
      if (rules.Allows(token)) choices_.push_back({logits[token], token});
    const auto k = static_cast<size_t>(options.top_k);
    const bool cuts = k > 0 && k < choices_.size();
    if (cuts) {
      std::partial_sort(choices_.begin(), choices_.begin() + options.top_k, choices_.end(),
                        IsLikelier);
      choices_.resize(k);
    } else if (options.top_p < 1.0) {
      std::sort(choices_.begin(), choices_.end(), IsLikelier);
    }
    Weigh();
  }

  int32_t Draw(double uniform) const {
    if (choices_.empty()) return -1;
    const double total = sums_.back();
    const auto found = std::upper_bound(sums_.begin(), sums_.end(), uniform * total);
    // uniform * total may round up to the total itself.
    const auto index =
        std::min<size_t>(static_cast<size_t>(found - sums_.begin()), sums_.size() - 1);
    return choices_[index].token;
  }

 private:
  // Running sums of weights, cut at top_p.
  void Weigh() {
    if (choices_.empty()) return;
    const float largest =
        std::max_element(choices_.begin(), choices_.end(), [](const Choice& a, const Choice& b) {
          return a.logit < b.logit;
        })->logit;
    double sum = 0;
    for (const Choice& choice : choices_) {
      sum += std::exp(static_cast<double>(choice.logit - largest) / options_.temperature);
      sums_.push_back(sum);
    }
    if (options_.top_p >= 1.0) return;
    const auto enough = std::lower_bound(sums_.begin(), sums_.end(), options_.top_p * sum);
    const auto kept =
        std::min<size_t>(static_cast<size_t>(enough - sums_.begin()) + 1, sums_.size());
    sums_.resize(kept);
    choices_.resize(kept);
  }

  const SampleOptions& options_;
  std::vector<Choice> choices_;
  std::vector<double> sums_;
};

}  // namespace

absl::Status SampleOptions::Validate() const {
  ANYORDER_RETURN_IF_ERROR(rules.Validate());
  FaultList faults;
  faults.Require(temperature > 0 && temperature <= 1e6,
                 absl::StrCat("temperature ", temperature, " must be in (0, 1e6]"));
  faults.Require(top_k >= 0, absl::StrCat("top-k ", top_k, " must be 0 (off) or more"));
  faults.Require(top_p > 0 && top_p <= 1, absl::StrCat("top-p ", top_p, " must be in (0, 1]"));
  return faults.ToStatus();
}

std::vector<Hypothesis> SampleTexts(NextTokens& model, const SampleOptions& options,
                                    int64_t first_stream) {
  const auto lanes = static_cast<size_t>(model.lanes());
  const int64_t vocab_size = model.vocab_size();
  std::vector<Hypothesis> texts(lanes);
  std::vector<uint8_t> is_done(lanes, 0);
  std::vector<int32_t> newest(lanes, 0);
  std::vector<int32_t> own(lanes);
  std::iota(own.begin(), own.end(), 0);
  for (int64_t t = 0; t < options.rules.max_tokens; ++t) {
    if (std::all_of(is_done.begin(), is_done.end(), [](uint8_t done) { return done != 0; })) break;
    const float* const logits = model.Next(newest, own);
    for (size_t b = 0; b < lanes; ++b) {
      if (is_done[b] != 0) continue;
      const float* const lane = logits + static_cast<int64_t>(b) * vocab_size;
      const NextTokenRules rules(options.rules, texts[b].tokens);
      RandomStream random(options.seed, RandomPurpose::kGeneration, static_cast<uint64_t>(t),
                          static_cast<uint64_t>(first_stream) + b);
      const int32_t token = TokenDraw(options, lane, vocab_size, rules).Draw(random.Uniform());
      is_done[b] = token < 0 || token == options.rules.end_token ? 1 : 0;
      if (token < 0) continue;
      texts[b].log_prob += static_cast<double>(lane[token]) - LogSumExp(lane, vocab_size);
      texts[b].ended = token == options.rules.end_token;
      if (!texts[b].ended) texts[b].tokens.push_back(token);
      newest[b] = token;
    }
  }
  for (Hypothesis& text : texts) text.score = text.log_prob;
  return texts;
}

}  // namespace anyorder
