// A text while it is written.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/philox.h"
#include "core/generate/any_order/write_options.h"
#include "core/generate/search.h"

namespace anyorder {

class LaneText {
 public:
  LaneText(const Canvas& canvas, const DrawOptions& draw)
      : tokens_(canvas.tokens),
        seed_(canvas.seed.value_or(draw.seed)),
        stream_(canvas.stream),
        banned_at_(canvas.banned_at),
        draw_(draw) {
    for (size_t i = 0; i < tokens_.size(); ++i)
      (tokens_[i] == kBlank ? blanks_ : given_).push_back(static_cast<int64_t>(i));
  }

  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t length() const { return static_cast<int64_t>(tokens_.size()); }
  bool is_done() const { return blanks_.empty(); }
  // Positions in ascending order: what is still blank; what was given.
  const std::vector<int64_t>& blanks() const { return blanks_; }
  const std::vector<int64_t>& given() const { return given_; }
  std::vector<int64_t> BlanksIn(int64_t begin, int64_t end) const {
    const auto first = std::lower_bound(blanks_.begin(), blanks_.end(), begin);
    return {first, std::lower_bound(first, blanks_.end(), end)};
  }

  // The number of the next pass is that of those counted, plus 1.
  void CountPass() { ++written_.passes; }
  int64_t passes() const { return written_.passes; }

  // What may be drawn from `logits` at a position, with temperature and cuts.
  TokenDistribution Drawn(int64_t position, const std::vector<double>& logits) const {
    return {draw_.cuts, logits, AllowedAt(position)};
  }
  // What the model says of the allowed tokens.
  TokenDistribution Plain(int64_t position, const std::vector<double>& logits) const {
    return {TokenCuts(), logits, AllowedAt(position)};
  }
  // The probability of one of them.
  double Probability(int64_t position, const std::vector<double>& logits, int32_t token) const {
    const AllowedTokens allowed = AllowedAt(position);
    double largest = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < logits.size(); ++i)
      if (allowed(static_cast<int32_t>(i))) largest = std::max(largest, logits[i]);
    double sum = 0;
    for (size_t i = 0; i < logits.size(); ++i)
      if (allowed(static_cast<int32_t>(i))) sum += std::exp(logits[i] - largest);
    return std::exp(logits[token] - largest) / sum;
  }
  // Draws of one position at one step, or of one round with position 0.
  RandomStream Draws(RandomPurpose purpose, int64_t step, int64_t position) const {
    const uint64_t place = static_cast<uint64_t>(step) << 32 | static_cast<uint64_t>(position);
    return {seed_, purpose, place, stream_};
  }
  int32_t DrawToken(const TokenDistribution& distribution, int64_t step, int64_t position) const {
    return distribution.Draw(Draws(RandomPurpose::kGeneration, step, position).Uniform());
  }

  const WrittenToken& Write(int64_t position, int32_t token, double log_prob, double confidence) {
    tokens_[position] = token;
    blanks_.erase(std::lower_bound(blanks_.begin(), blanks_.end(), position));
    written_.written.push_back({written_.passes, position, token, log_prob, confidence});
    written_.log_prob += log_prob;
    return written_.written.back();
  }
  // Whether an end token at blank `position` would end the text: all before it is there, and
  // nothing that was given stands behind it.
  bool EndsAt(int64_t position) const {
    return position == blanks_.front() && (given_.empty() || position > given_.back());
  }
  // If all before some end token that was written is there: what is behind it is done, too.
  void StopAtEnd(int32_t end_token) {
    const auto first_blank = blanks_.empty() ? tokens_.end() : tokens_.begin() + blanks_.front();
    const auto behind = given_.empty() ? tokens_.begin() : tokens_.begin() + given_.back() + 1;
    if (behind < first_blank && std::find(behind, first_blank, end_token) != first_blank)
      Stop(end_token);
  }
  // What is blank holds `end_token`, and nothing is left to write.
  void Stop(int32_t end_token) {
    for (const int64_t position : blanks_) tokens_[position] = end_token;
    blanks_.clear();
  }

  WrittenText Finish() {
    written_.tokens = tokens_;
    return std::move(written_);
  }

 private:
  // What may stand at a position. Lists [V], or null ones that ban nothing.
  struct AllowedTokens {
    const uint8_t* banned = nullptr;
    const uint8_t* banned_here = nullptr;
    bool operator()(int32_t token) const {
      return (banned == nullptr || banned[token] == 0) &&
             (banned_here == nullptr || banned_here[token] == 0);
    }
  };
  AllowedTokens AllowedAt(int64_t position) const {
    const auto here = banned_at_.find(position);
    return {draw_.banned.empty() ? nullptr : draw_.banned.data(),
            here == banned_at_.end() ? nullptr : here->second->data()};
  }

  std::vector<int32_t> tokens_;
  uint64_t seed_, stream_;
  std::map<int64_t, std::shared_ptr<const std::vector<uint8_t>>> banned_at_;
  const DrawOptions& draw_;
  std::vector<int64_t> blanks_, given_;
  WrittenText written_;
};

inline double LogProbability(const std::vector<double>& logits, int32_t token) {
  return logits[token] - LogSumExp(logits.data(), static_cast<int64_t>(logits.size()));
}

}  // namespace anyorder
