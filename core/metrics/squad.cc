#include "core/metrics/squad.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "core/base/check.h"
#include "core/base/unicode.h"

namespace anyorder::metrics {
namespace {

// Python's string.punctuation.
bool IsPunctuation(char c) { return absl::ascii_ispunct(static_cast<unsigned char>(c)); }

bool IsArticle(std::string_view word) { return word == "a" || word == "an" || word == "the"; }

// Replaces articles and white space by spaces; an article is bounded by what is no letter, not by
// white space alone.
std::string WithoutArticles(std::string_view text) {
  std::string out;
  size_t word = 0;  // where it begins in `out`
  const auto end_word = [&] {
    if (!IsArticle(std::string_view(out).substr(word))) return;
    out.resize(word);
    out.push_back(' ');
  };
  for (size_t i = 0; i < text.size();) {
    const char32_t c = NextCodePoint(text, i);
    if (IsWordCharacter(c)) {
      AppendUtf8(c, out);
      continue;
    }
    end_word();
    AppendUtf8(IsUnicodeSpace(c) ? U' ' : c, out);
    word = out.size();
  }
  end_word();
  return out;
}

// Of a normalized answer.
std::vector<std::string> WordsOf(const std::string& normalized) {
  return absl::StrSplit(normalized, ' ', absl::SkipEmpty());
}

double F1OfWords(const std::vector<std::string>& predicted, const std::vector<std::string>& given,
                 SquadVersion version) {
  if (version == SquadVersion::k2_0 && (predicted.empty() || given.empty()))
    return predicted.empty() && given.empty() ? 1 : 0;
  std::map<std::string, int64_t> left;
  for (const std::string& word : given) ++left[word];
  double common = 0;
  for (const std::string& word : predicted) {
    const auto found = left.find(word);
    if (found == left.end() || found->second-- <= 0) continue;
    ++common;
  }
  if (common == 0) return 0;
  const double precision = common / static_cast<double>(predicted.size());
  const double recall = common / static_cast<double>(given.size());
  return (2 * precision * recall) / (precision + recall);
}

// In per cent, over those for which `counts` holds.
template <typename Counts>
SquadMeans MeansOf(absl::Span<const SquadScore> scores, const Counts& counts) {
  SquadMeans means;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!counts(i)) continue;
    means.exact += scores[i].exact;
    means.f1 += scores[i].f1;
    ++means.total;
  }
  if (means.total == 0) return means;
  means.exact = 100 * means.exact / static_cast<double>(means.total);
  means.f1 = 100 * means.f1 / static_cast<double>(means.total);
  return means;
}

// Starts with no answer to any question, then answers them in the order of null scores.
SquadThreshold BestThreshold(absl::Span<const SquadQuestion> questions,
                             absl::Span<const SquadScore> scores, double SquadScore::*score) {
  std::vector<size_t> order(questions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return questions[a].null_score < questions[b].null_score;
  });
  double current = 0;
  for (const SquadQuestion& question : questions) current += question.answers.empty();
  double best = current;
  SquadThreshold found;
  for (const size_t i : order) {
    if (!questions[i].answers.empty()) {
      current += scores[i].*score;
    } else if (!questions[i].prediction.empty()) {
      --current;
    }
    if (current <= best) continue;
    best = current;
    found.threshold = questions[i].null_score;
  }
  found.best = 100 * best / static_cast<double>(questions.size());
  return found;
}

}  // namespace

std::string NormalizeAnswer(std::string_view answer) {
  std::string text = LowerCase(answer);
  text.erase(std::remove_if(text.begin(), text.end(), IsPunctuation), text.end());
  return absl::StrJoin(WordsOf(WithoutArticles(text)), " ");
}

SquadScore ScoreAnswer(std::string_view prediction, absl::Span<const std::string> answers,
                       SquadVersion version) {
  const std::string predicted = NormalizeAnswer(prediction);
  const std::vector<std::string> words = WordsOf(predicted);
  std::vector<std::string> given;
  for (const std::string& answer : answers) {
    given.push_back(NormalizeAnswer(answer));
    if (version == SquadVersion::k2_0 && given.back().empty()) given.pop_back();
  }
  if (given.empty()) given.emplace_back();
  SquadScore score;
  for (const std::string& answer : given) {
    score.exact = std::max(score.exact, predicted == answer ? 1.0 : 0.0);
    score.f1 = std::max(score.f1, F1OfWords(words, WordsOf(answer), version));
  }
  return score;
}

SquadReport ScoreSquad(absl::Span<const SquadQuestion> questions, SquadVersion version,
                       std::optional<double> null_threshold) {
  ANYORDER_CHECK(!questions.empty()) << "no question";
  std::vector<SquadScore> raw;
  std::vector<SquadScore> scores;
  for (const SquadQuestion& question : questions) {
    raw.push_back(ScoreAnswer(question.prediction, question.answers, version));
    const bool is_silent = null_threshold && question.null_score > *null_threshold;
    const double of_none = question.answers.empty() ? 1 : 0;
    scores.push_back(is_silent ? SquadScore{of_none, of_none} : raw.back());
  }
  const auto has_answer = [&](size_t i) { return !questions[i].answers.empty(); };
  SquadReport report;
  report.all = MeansOf(scores, [](size_t) { return true; });
  const SquadMeans with = MeansOf(scores, has_answer);
  const SquadMeans without = MeansOf(scores, [&](size_t i) { return !has_answer(i); });
  if (with.total > 0) report.has_answer = with;
  if (without.total > 0) report.no_answer = without;
  report.best_exact = BestThreshold(questions, raw, &SquadScore::exact);
  report.best_f1 = BestThreshold(questions, raw, &SquadScore::f1);
  return report;
}

}  // namespace anyorder::metrics
