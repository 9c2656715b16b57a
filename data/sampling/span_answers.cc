#include "data/sampling/span_answers.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/check.h"

namespace anyorder::data {
namespace {

// Of a window for one of its tokens; both in tokens of the passage.
int64_t Context(const WindowPrediction& window, int64_t token) {
  const int64_t left = token - window.window_begin;
  const int64_t right = window.window_begin + window.num_tokens - 1 - token;
  return std::min(left, right);
}

// Whether no window has more context for the token.
bool HasMaxContext(const std::vector<WindowPrediction>& windows, const WindowPrediction& window,
                   int64_t token) {
  const WindowPrediction* best = nullptr;
  for (const WindowPrediction& other : windows) {
    if (Context(other, token) < 0) continue;
    const auto score = [&](const WindowPrediction& one) {
      return 100 * Context(one, token) + one.num_tokens;  // 1 and 0.01 in the released code
    };
    if (best == nullptr || score(other) > score(*best)) best = &other;
  }
  return best == &window;
}

// The characters of tokens [begin, end) without those of white space at either end.
CharacterRange CharactersOfTokens(const OriginalPassage& passage, int64_t begin, int64_t end) {
  const auto range = [&](int64_t token) { return passage.tokens[static_cast<size_t>(token)]; };
  while (begin < end && range(begin).begin == range(begin).end) ++begin;
  while (begin < end && range(end - 1).begin == range(end - 1).end) --end;
  return begin == end ? CharacterRange() : CharacterRange{range(begin).begin, range(end - 1).end};
}

// Those that count, the best first.
std::vector<SpanAnswer> AllAnswers(const std::vector<WindowPrediction>& windows,
                                   const OriginalPassage& passage, int64_t max_tokens) {
  std::vector<SpanAnswer> answers;
  for (const WindowPrediction& window : windows) {
    const int64_t first = window.window_begin;
    ANYORDER_CHECK(first >= 0 && first + window.num_tokens <= std::ssize(passage.tokens)) << first;
    for (const SpanCandidate& candidate : window.candidates) {
      ANYORDER_CHECK(0 <= candidate.begin && candidate.begin < candidate.end &&
                     candidate.end <= window.num_tokens)
          << candidate.begin << " to " << candidate.end << " of " << window.num_tokens;
      if (candidate.end - candidate.begin > max_tokens) continue;
      if (!HasMaxContext(windows, window, first + candidate.begin)) continue;
      const CharacterRange characters =
          CharactersOfTokens(passage, first + candidate.begin, first + candidate.end);
      if (characters.begin == characters.end) continue;
      answers.push_back({"", characters, candidate.log_probability});
    }
  }
  std::stable_sort(answers.begin(), answers.end(), [](const auto& a, const auto& b) {
    return a.log_probability > b.log_probability;
  });
  return answers;
}

// Of the numbers that are known; NaN if none is.
template <typename Member>
double Smallest(const std::vector<WindowPrediction>& windows, Member member) {
  double smallest = std::numeric_limits<double>::quiet_NaN();
  for (const WindowPrediction& window : windows) smallest = std::fmin(smallest, window.*member);
  return smallest;
}

}  // namespace

QuestionPrediction MergeWindows(const std::vector<WindowPrediction>& windows,
                                const OriginalPassage& passage, const SpanAnswerOptions& options) {
  QuestionPrediction merged;
  std::set<std::string> seen;
  for (SpanAnswer& answer : AllAnswers(windows, passage, options.max_tokens)) {
    if (merged.answers.size() == options.n_best) break;
    answer.text = CharactersOf(passage.text, answer.characters);
    if (seen.insert(answer.text).second) merged.answers.push_back(answer);
  }
  merged.null_score = Smallest(windows, &WindowPrediction::answer_logit);
  if (std::isnan(merged.null_score) && !merged.answers.empty()) {
    merged.null_score = Smallest(windows, &WindowPrediction::null_log_probability) -
                        merged.answers.front().log_probability;
  }
  return merged;
}

}  // namespace anyorder::data
