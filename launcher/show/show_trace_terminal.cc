#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "launcher/process/display_width.h"
#include "launcher/show/show_trace.h"

namespace anyorder::launcher {
namespace {

constexpr int64_t kMostRows = 16;    // of the table of passes
constexpr int64_t kMostBar = 40;     // columns
constexpr int64_t kTableWidth = 36;  // before the bars

class TraceDrawing {
 public:
  TraceDrawing(const Trace& trace, bool ascii, bool colours, int64_t columns)
      : trace_(trace),
        ascii_(ascii),
        colours_(colours),
        columns_(std::max<int64_t>(columns, 8)),
        tokens_(TokensInOrder(trace, ascii)) {}

  std::string Draw(const std::string& heading) {
    absl::StrAppend(&picture_, Wrapped(heading, "", columns_), "\n",
                    Wrapped(TraceSummary(trace_), "", columns_), "\n\n");
    DrawText();
    DrawLegend();
    DrawPasses();
    return std::move(picture_);
  }

 private:
  std::string Number(size_t i) const {
    return colours_ || tokens_[i].written == nullptr ? "" : absl::StrCat(tokens_[i].written->pass);
  }

  // What a token needs so that its number fits the line and stands apart from the next one.
  int64_t CellWidth(size_t i) const {
    const bool is_joined = i + 1 < tokens_.size() && !tokens_[i].ends_line &&
                           !tokens_[i + 1].has_space && !Number(i + 1).empty();
    const int64_t number = std::ssize(Number(i)) + (is_joined ? 1 : 0);
    return std::max(DisplayWidth(tokens_[i].text), number);
  }

  std::string Shaded(size_t i) const {
    const TraceToken& token = tokens_[i];
    if (!colours_ || token.written == nullptr) return token.text;
    return InColour(ColourOfPass(token.written->pass, trace_.passes), token.text);
  }

  static std::string InColour(size_t colour, const std::string& text) {
    const TraceColour& shade = kTraceColours[colour];
    return absl::StrCat("\x1b[38;5;", shade.takes_dark_ink ? 16 : 231, ";48;5;", shade.terminal,
                        "m", text, "\x1b[0m");
  }

  void DrawText() {
    std::vector<double> widths;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      tokens_[i].text = std::string(FittingPrefix(tokens_[i].text, columns_));
      widths.push_back(static_cast<double>(std::min(CellWidth(i), columns_)));
    }
    const std::vector<TracePlace> places =
        PlaceTokens(tokens_, widths, 1, static_cast<double>(columns_));
    int64_t line = 0;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      for (; line < places[i].line; ++line) EndLine();
      Put(i, static_cast<int64_t>(places[i].x));
    }
    EndLine();
  }

  // At column `x` of the line that is being made.
  void Put(size_t i, int64_t x) {
    // The padding of a token that goes on in the next one must not look like a space.
    const bool joins = !tokens_[i].has_space && used_ > 0;
    for (; used_ < x; ++used_) words_ += !joins ? " " : ascii_ ? "~" : "·";
    words_ += Shaded(i);
    used_ += DisplayWidth(tokens_[i].text);
    const std::string number = Number(i);
    if (number.empty()) return;
    numbers_.resize(std::max(numbers_.size(), static_cast<size_t>(x)), ' ');
    numbers_ += number;
  }

  void EndLine() {
    absl::StrAppend(&picture_, words_, "\n");
    if (!numbers_.empty()) absl::StrAppend(&picture_, numbers_, "\n");
    words_.clear();
    numbers_.clear();
    used_ = 0;
  }

  void DrawLegend() {
    picture_ += "\n";
    if (!colours_) {
      const std::string words =
          absl::StrCat("Below each token: the pass that wrote it; the prompt has none. ",
                       ascii_ ? "~" : "·", " joins a token to the one before it.");
      absl::StrAppend(&picture_, Wrapped(words, "", columns_), "\n\n");
      return;
    }
    absl::StrAppend(&picture_, "Written in pass 1 ");
    for (size_t colour = 0; colour < std::size(kTraceColours); ++colour)
      picture_ += InColour(colour, "  ");
    absl::StrAppend(&picture_, " ", trace_.passes, "; the prompt is plain.\n\n");
  }

  void DrawPasses() {
    const std::vector<TracePasses> rows = PassesOf(trace_, kMostRows);
    int64_t largest = 1;
    for (const TracePasses& row : rows) largest = std::max(largest, row.tokens);
    const int64_t room = std::clamp<int64_t>(columns_ - kTableWidth, 0, kMostBar);
    const int64_t scale = std::min(room, largest);
    absl::StrAppendFormat(&picture_, "%13s %8s %12s\n", "pass", "tokens", "confidence");
    for (const TracePasses& row : rows) {
      absl::StrAppendFormat(&picture_, "%13s %8d %12s", row.Name(), row.tokens,
                            ConfidenceText(row.confidence));
      const int64_t bar = (row.tokens * scale + largest - 1) / largest;
      if (bar > 0) absl::StrAppend(&picture_, "  ", Bar(row, bar));
      picture_ += "\n";
    }
  }

  std::string Bar(const TracePasses& row, int64_t columns) const {
    if (colours_) {
      return InColour(ColourOfPass(row.first, trace_.passes),
                      std::string(static_cast<size_t>(columns), ' '));
    }
    std::string bar;
    for (int64_t i = 0; i < columns; ++i) bar += ascii_ ? "#" : "█";
    return bar;
  }

  const Trace& trace_;
  const bool ascii_;
  const bool colours_;
  const int64_t columns_;
  std::vector<TraceToken> tokens_;
  std::string words_;    // of the line that is being made
  std::string numbers_;  // below it
  int64_t used_ = 0;     // columns of words_
  std::string picture_;
};

}  // namespace

std::string TraceTerminalPicture(const Trace& trace, const std::string& heading, bool ascii,
                                 bool colours, int64_t columns) {
  return TraceDrawing(trace, ascii, colours, columns).Draw(heading);
}

}  // namespace anyorder::launcher
