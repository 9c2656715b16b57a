// A text drawn from the model, token by token.

#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "core/generate/search.h"
#include "core/generate/token_draw.h"

namespace anyorder {

struct SampleOptions {
  TokenCuts cuts;
  uint64_t seed = 1;
  TokenRules rules;
  int64_t likeliest = 0;  // so many tokens are told with each that is drawn

  // InvalidArgument listing every fault.
  absl::Status Validate() const;
};

// Token t is drawn by RandomStream(seed, RandomPurpose::kGeneration, t, stream): a text depends on
// its seed, its number and its logits, never on its company. Tokens of equal probability are taken
// in the order of their ids. The log-probability of a text is the model's, without temperature and
// cuts, and so is the score. A text whose rules allow no token is done, not ended.
class SampledText {
 public:
  SampledText(SampleOptions options, uint64_t stream)
      : options_(std::move(options)), stream_(stream) {}

  // The next token, which `logits` [vocab_size] are about; its position counts from 0 behind the
  // prompt. None if the rules allow none. REQUIRES: not done.
  std::optional<WrittenToken> Draw(const float* logits, int64_t vocab_size);

  bool is_done() const { return is_done_; }
  const Hypothesis& text() const { return text_; }

 private:
  SampleOptions options_;
  uint64_t stream_;
  int64_t drawn_ = 0;
  bool is_done_ = false;
  Hypothesis text_;
};

}  // namespace anyorder
