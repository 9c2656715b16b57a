#include "core/generate/search.h"

#include "absl/strings/str_cat.h"

#include "core/base/fields.h"

namespace anyorder {

absl::Status TokenRules::Validate() const {
  FaultList faults;
  faults.Require(max_tokens >= 1,
                 absl::StrCat("at most ", max_tokens, " tokens, but at least 1 must be allowed"));
  faults.Require(
      min_tokens >= 0 && min_tokens < max_tokens,
      absl::StrCat("at least ", min_tokens,
                   " tokens before the end, but they and the end token must fit in ", max_tokens));
  faults.Require(block_ngram >= 0, absl::StrCat("n-grams of ", block_ngram, " tokens"));
  return faults.ToStatus();
}

NextTokenRules::NextTokenRules(const TokenRules& rules, const std::vector<int32_t>& tokens)
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

bool NextTokenRules::Allows(int32_t token) const {
  if (token == rules_.end_token) return may_end_;
  if (!rules_.banned.empty() && rules_.banned[token] != 0) return false;
  return std::find(repeats_.begin(), repeats_.end(), token) == repeats_.end();
}

}  // namespace anyorder
