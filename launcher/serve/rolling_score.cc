// ScoreRolling (answer.h): windows of a text of any length.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/base/unicode.h"
#include "launcher/serve/answer.h"

namespace anyorder::launcher {
namespace {

constexpr size_t kMostWordBytes = 64;
constexpr size_t kPartBytes = 1 << 16;  // encoded at a time: some hundredths of a second

// Where the text may be cut, its begin and end included: before spaces that follow a word, and
// within a word that is too long.
std::vector<size_t> Cuts(const std::string& text) {
  std::vector<size_t> cuts = {0};
  bool was_space = true;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool is_space = IsUnicodeSpace(NextCodePoint(text, at));
    if ((is_space && !was_space) || begin - cuts.back() >= kMostWordBytes) cuts.push_back(begin);
    was_space = is_space;
  }
  if (!text.empty()) cuts.push_back(text.size());
  return cuts;
}

// A text without context begins with the end of another one, which takes a place.
int64_t MostTextTokens(const TextService& service) { return service.facts().seq_len - 1; }

class Windows {
 public:
  Windows(TextService& service, const RollingRequest& request)
      : service_(service), request_(request), cuts_(Cuts(request.text)) {}

  // The tokens of the text, of which a part is encoded at a time.
  absl::StatusOr<int64_t> CountAll() {
    int64_t tokens = 0;
    for (size_t begin = 0; begin + 1 < cuts_.size();) {
      RETURN_IF_ERROR(CheckWanted());
      const auto end = std::upper_bound(cuts_.begin(), cuts_.end() - 1, cuts_[begin] + kPartBytes);
      const auto next = std::max<size_t>(begin + 1, end - cuts_.begin());
      tokens += Count(Between(begin, next));
      begin = next;
    }
    RETURN_IF_ERROR(fault_);
    tokens_per_word_ = static_cast<double>(tokens) / static_cast<double>(cuts_.size() - 1);
    return tokens;
  }

  // The requests of all windows. REQUIRES: CountAll.
  absl::StatusOr<std::vector<ScoreRequest>> Split() {
    const int64_t most = MostTextTokens(service_);
    const int64_t stride = request_.stride > 0 ? request_.stride : std::max<int64_t>(1, most / 2);
    std::vector<ScoreRequest> windows;
    for (size_t begin = 0; begin + 1 < cuts_.size();) {
      RETURN_IF_ERROR(CheckWanted());
      const size_t end = begin + WordsAfter(begin, std::min(stride, most));
      RETURN_IF_ERROR(fault_);
      if (end == begin)
        return InvalidArgument("'text' has ", cuts_[begin + 1] - cuts_[begin], " bytes, from byte ",
                               cuts_[begin], " on, that are more than ", stride,
                               " tokens; ask for a larger stride");
      const std::string continuation = Between(begin, end);
      const int64_t room = most - Count(continuation);
      windows.push_back({.context = Between(begin - WordsBefore(begin, room), begin),
                         .continuation = continuation,
                         .bound_samples = request_.bound_samples,
                         .seed = request_.seed,
                         .check_wanted = request_.check_wanted});
      begin = end;
    }
    RETURN_IF_ERROR(fault_);
    return windows;
  }

 private:
  absl::Status CheckWanted() const {
    return request_.check_wanted ? request_.check_wanted() : absl::OkStatus();
  }
  std::string Between(size_t begin, size_t end) const {
    return request_.text.substr(cuts_[begin], cuts_[end] - cuts_[begin]);
  }

  // 0 after a fault.
  int64_t Count(const std::string& text) {
    const absl::StatusOr<int64_t> tokens = service_.CountTokens(text);
    fault_.Update(tokens.status());
    return tokens.ok() ? *tokens : 0;
  }

  // Of `available` words, the most that `count` finds to be at most `tokens` tokens: first guessed
  // by the mean length of a word, then mended, since each count encodes a text.
  template <typename CountOf>
  size_t MostWords(size_t available, int64_t tokens, const CountOf& count) {
    const double guess = std::max(0.0, static_cast<double>(tokens)) / tokens_per_word_;
    size_t words = std::min(available, static_cast<size_t>(guess));
    int64_t used = words == 0 ? 0 : count(words);
    while (used > tokens) {
      const double shrunk =
          static_cast<double>(words) * static_cast<double>(tokens) / static_cast<double>(used);
      words = std::min(words - 1, static_cast<size_t>(std::max(0.0, shrunk)));
      used = words == 0 ? 0 : count(words);
    }
    while (words < available && fault_.ok()) {
      const double more = static_cast<double>(tokens - used) / tokens_per_word_ / 2;
      const size_t next =
          std::min(available, words + std::max<size_t>(1, static_cast<size_t>(more)));
      const int64_t next_used = count(next);
      if (next_used > tokens) break;
      words = next;
      used = next_used;
    }
    return words;
  }

  size_t WordsAfter(size_t begin, int64_t tokens) {
    return MostWords(cuts_.size() - 1 - begin, tokens,
                     [&](size_t words) { return Count(Between(begin, begin + words)); });
  }
  size_t WordsBefore(size_t end, int64_t tokens) {
    return MostWords(end, tokens, [&](size_t words) { return Count(Between(end - words, end)); });
  }

  TextService& service_;
  const RollingRequest& request_;
  const std::vector<size_t> cuts_;
  double tokens_per_word_ = 1;
  absl::Status fault_;
};

RollingScore Sum(const std::vector<TextScore>& scores) {
  RollingScore rolling{.sum = {.is_greedy = true}};
  double variance = 0;
  for (const TextScore& score : scores) {
    rolling.sum.log_prob += score.log_prob;
    variance += score.standard_error * score.standard_error;
    rolling.sum.is_exact &= score.is_exact;
    rolling.sum.is_greedy &= score.is_greedy;
    rolling.sum.tokens += score.tokens;
    rolling.sum.bytes += score.bytes;
    ++rolling.windows;
  }
  rolling.sum.standard_error = std::sqrt(variance);
  return rolling;
}

}  // namespace

absl::StatusOr<RollingScore> ScoreRolling(TextService& service, const RollingRequest& request) {
  Windows cut(service, request);
  ASSIGN_OR_RETURN(const int64_t tokens, cut.CountAll());
  std::vector<ScoreRequest> windows = {{.continuation = request.text,
                                        .bound_samples = request.bound_samples,
                                        .seed = request.seed,
                                        .check_wanted = request.check_wanted}};
  if (tokens > MostTextTokens(service)) {
    ASSIGN_OR_RETURN(windows, cut.Split());
  }
  std::vector<TextScore> scores;
  for (const ScoreRequest& window : windows) {
    ASSIGN_OR_RETURN(scores.emplace_back(), service.Score(window));
  }
  return Sum(scores);
}

}  // namespace anyorder::launcher
