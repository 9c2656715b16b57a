#include "launcher/show/show_trace.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "core/base/counted.h"
#include "launcher/process/display_width.h"

namespace anyorder::launcher {
namespace {

TraceToken TokenOf(absl::string_view piece, const ShownToken* written, bool ascii) {
  TraceToken token;
  token.written = written;
  token.has_space = absl::ConsumePrefix(&piece, " ");
  token.ends_line = !piece.empty() && piece.back() == '\n';
  token.text = Displayable(absl::StrReplaceAll(piece, {{"\n", ascii ? "\\n" : "↵"}}));
  if (token.text.find_first_not_of(' ') != std::string::npos) return token;
  const size_t spaces = token.text.size() + (token.has_space ? 1 : 0);
  token.has_space = written == nullptr && spaces > 0;
  token.text.clear();
  // What cannot be seen would look as if it had not been written.
  if (written != nullptr) {
    for (size_t i = 0; i < spaces; ++i) token.text += ascii ? "_" : "␣";
    if (spaces == 0) token.text = ascii ? "''" : "∅";
  }
  return token;
}

// Rounded to two decimals, none where none are needed.
std::string RateText(double rate) { return absl::StrFormat("%g", std::round(100 * rate) / 100); }

}  // namespace

std::vector<TraceToken> TokensInOrder(const Trace& trace, bool ascii) {
  std::vector<TraceToken> tokens;
  for (const std::string& piece : trace.prompt_pieces)
    tokens.push_back(TokenOf(piece, nullptr, ascii));
  std::vector<const ShownToken*> written;
  for (const ShownToken& token : trace.written) written.push_back(&token);
  std::ranges::sort(written, {}, &ShownToken::position);
  auto next = std::ssize(trace.prompt_pieces);
  for (const ShownToken* token : written) {
    if (token->position > next)
      tokens.push_back(
          TokenOf(absl::StrCat(" [", token->position - next, " blank]"), nullptr, ascii));
    tokens.push_back(TokenOf(token->piece, token, ascii));
    next = token->position + 1;
  }
  return tokens;
}

std::string TracePasses::Name() const {
  return first == last ? absl::StrCat(first) : absl::StrCat(first, "-", last);
}

std::vector<TracePasses> PassesOf(const Trace& trace, int64_t most) {
  const int64_t share = (trace.passes + most - 1) / most;
  std::vector<TracePasses> rows;
  for (int64_t first = 1; first <= trace.passes; first += share)
    rows.push_back({.first = first, .last = std::min(first + share - 1, trace.passes)});
  std::vector<int64_t> known(rows.size());
  for (const ShownToken& token : trace.written) {
    const auto row = static_cast<size_t>((token.pass - 1) / share);
    ++rows[row].tokens;
    if (std::isnan(token.confidence)) continue;
    ++known[row];
    rows[row].confidence += token.confidence;
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    rows[row].confidence = known[row] == 0 ? std::numeric_limits<double>::quiet_NaN()
                                           : rows[row].confidence / static_cast<double>(known[row]);
  }
  return rows;
}

std::string TraceSummary(const Trace& trace) {
  const auto tokens = std::ssize(trace.written);
  std::string summary = absl::StrCat(Displayable(trace.method), ": ", Counted(tokens, "token"),
                                     " in ", Counted(trace.passes, "pass", "es"));
  if (trace.passes > 0) {
    absl::StrAppend(&summary, " (",
                    RateText(static_cast<double>(tokens) / static_cast<double>(trace.passes)),
                    " a pass)");
  }
  return summary;
}

std::string ConfidenceText(double confidence) {
  return std::isnan(confidence) ? "-" : absl::StrFormat("%.3f", confidence);
}

size_t ColourOfPass(int64_t pass, int64_t passes) {
  constexpr int64_t kLast = std::ssize(kTraceColours) - 1;
  if (passes <= 1) return 0;
  return static_cast<size_t>((2 * (pass - 1) * kLast + passes - 1) / (2 * (passes - 1)));
}

std::vector<TracePlace> PlaceTokens(const std::vector<TraceToken>& tokens,
                                    const std::vector<double>& widths, double space, double most) {
  std::vector<TracePlace> places(tokens.size());
  int64_t line = 0;
  double x = 0;
  for (size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
    // A word: what no space and no end of line divides.
    double width = 0;
    do {
      width += widths[end++];
    } while (end < tokens.size() && !tokens[end].has_space && !tokens[end - 1].ends_line);
    if (x > 0 && tokens[begin].has_space) x += space;
    for (size_t i = begin; i < end; ++i) {
      const double needed = i == begin ? width : widths[i];
      if (x > 0 && x + needed > most) {
        ++line;
        x = 0;
      }
      places[i] = {line, x};
      x += widths[i];
    }
    if (tokens[end - 1].ends_line) {
      ++line;
      x = 0;
    }
  }
  return places;
}

}  // namespace anyorder::launcher
