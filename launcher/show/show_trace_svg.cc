#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/counted.h"
#include "launcher/process/display_width.h"
#include "launcher/show/show_trace.h"
#include "launcher/show/svg_document.h"

namespace anyorder::launcher {
namespace {

// Pixels. Widths of text are those of a fixed-pitch font, 0.6 of its size.
constexpr double kEdge = 28;
constexpr double kTextWidth = 904;
constexpr double kColumn = 8.4;       // of tokens, 14 px
constexpr double kSmallColumn = 5.4;  // of the numbers below them, 9 px
constexpr double kSpace = 7;
constexpr double kJoint = 2;  // between tokens of a word
constexpr double kBox = 22;
constexpr double kLine = 46;
constexpr double kBars = 64;
constexpr int64_t kMostColumns = 48;  // of a token; its tooltip has all of it
constexpr int64_t kMostBars = 64;

std::string TraceStyle() {
  std::string style =
      "<style>\n"
      "text{font-family:ui-sans-serif,system-ui,'Segoe UI',Helvetica,Arial,sans-serif;"
      "fill:#1e293b}\n"
      ".bg{fill:#ffffff}.dim{fill:#64748b}.h{font-weight:600}\n"
      ".w{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:14px;white-space:pre}\n"
      ".n{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:9px;fill:#64748b}\n";
  for (size_t i = 0; i < std::size(kTraceColours); ++i) {
    absl::StrAppend(&style, ".b", i, "{fill:", kTraceColours[i].svg, "}.i", i,
                    "{fill:", kTraceColours[i].takes_dark_ink ? "#1e1b2e" : "#ffffff", "}\n");
  }
  return style +
         "@media (prefers-color-scheme:dark){\n"
         "text{fill:#e2e8f0}.bg{fill:#0f172a}.dim,.n{fill:#94a3b8}\n" +
         "}\n</style>\n";
}

class TraceDocument {
 public:
  explicit TraceDocument(const Trace& trace) : trace_(trace), tokens_(TokensInOrder(trace, false)) {
    for (TraceToken& token : tokens_) {
      if (DisplayWidth(token.text) > kMostColumns)
        token.text = absl::StrCat(FittingPrefix(token.text, kMostColumns - 1), "…");
    }
  }

  std::string Draw(const std::string& heading) {
    Text(kEdge, kEdge + 16, 20, "h", TraceSummary(trace_));
    Text(kEdge, kEdge + 36, 13, "dim", heading);
    y_ = kEdge + 58;
    DrawTokens();
    DrawLegend();
    DrawBars();
    return SvgDocument(TraceSummary(trace_), TraceStyle(), kTextWidth + 2 * kEdge, y_ + kEdge,
                       body_);
  }

 private:
  void Text(double x, double y, double size, const char* css, absl::string_view words) {
    body_ += SvgText(x, y, size, css, words);
  }

  // The small print below a token.
  static std::string Print(const ShownToken& token) {
    const bool is_known = token.confidence == token.confidence;
    return absl::StrCat(token.pass, is_known ? absl::StrFormat(" %.2f", token.confidence) : "");
  }

  static std::string Tooltip(const ShownToken& token) {
    return absl::StrCat("'", Displayable(token.piece), "', position ", token.position,
                        ", written in pass ", token.pass, ", confidence ",
                        ConfidenceText(token.confidence), ", log-probability ",
                        ConfidenceText(token.log_prob));
  }

  double WidthOf(const TraceToken& token) const {
    const double width = kColumn * static_cast<double>(DisplayWidth(token.text));
    if (token.written == nullptr) return width;
    const double print = kSmallColumn * static_cast<double>(Print(*token.written).size()) + 4;
    return std::max(width + 8, print) + kJoint;
  }

  void DrawTokens() {
    std::vector<double> widths;
    for (const TraceToken& token : tokens_) widths.push_back(WidthOf(token));
    const std::vector<TracePlace> places = PlaceTokens(tokens_, widths, kSpace, kTextWidth);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const double y = y_ + kLine * static_cast<double>(places[i].line);
      const double x = kEdge + places[i].x;
      if (tokens_[i].written != nullptr)
        DrawBox(tokens_[i], x, y, widths[i] - kJoint);
      else if (!tokens_[i].text.empty())
        Text(x, y + 16, 14, "w", tokens_[i].text);
    }
    if (!places.empty()) y_ += kLine * static_cast<double>(places.back().line + 1);
  }

  void DrawBox(const TraceToken& token, double x, double y, double width) {
    const size_t colour = ColourOfPass(token.written->pass, trace_.passes);
    const std::string middle = SvgNumber(x + width / 2);
    absl::StrAppend(&body_, "<g class=\"token\"><title>", XmlEscaped(Tooltip(*token.written)),
                    "</title><rect class=\"b", colour, "\" x=\"", SvgNumber(x), "\" y=\"",
                    SvgNumber(y), "\" width=\"", SvgNumber(width), "\" height=\"", SvgNumber(kBox),
                    "\" rx=\"3\"/>");
    absl::StrAppend(&body_, "<text class=\"w i", colour, "\" text-anchor=\"middle\" x=\"", middle,
                    "\" y=\"", SvgNumber(y + 16), "\">", XmlEscaped(token.text), "</text>");
    absl::StrAppend(&body_, "<text class=\"n\" text-anchor=\"middle\" x=\"", middle, "\" y=\"",
                    SvgNumber(y + kBox + 10), "\">", Print(*token.written), "</text></g>\n");
  }

  void DrawLegend() {
    y_ += 12;
    Text(kEdge, y_ + 11, 12.5, "dim", "pass 1");
    double x = kEdge + 46;
    for (size_t i = 0; i < std::size(kTraceColours); ++i, x += 20) {
      absl::StrAppend(&body_, "<rect class=\"b", i, "\" x=\"", SvgNumber(x), "\" y=\"",
                      SvgNumber(y_), "\" width=\"20\" height=\"13\"/>\n");
    }
    Text(x + 8, y_ + 11, 12.5, "dim",
         absl::StrCat("pass ", trace_.passes,
                      ". Below a token: its pass and confidence. Without a box: the prompt."));
    y_ += 32;
  }

  // How many tokens each pass wrote.
  void DrawBars() {
    const std::vector<TracePasses> rows = PassesOf(trace_, kMostBars);
    if (rows.empty()) return;
    int64_t largest = 1;
    for (const TracePasses& row : rows) largest = std::max(largest, row.tokens);
    Text(kEdge, y_ + 8, 12.5, "dim",
         absl::StrCat("Tokens written, pass by pass; the highest bar is ", largest, ":"));
    y_ += 20;
    const double step = std::min(40.0, kTextWidth / static_cast<double>(rows.size()));
    for (size_t i = 0; i < rows.size(); ++i) {
      const TracePasses& row = rows[i];
      const double height =
          std::max(1.0, kBars * static_cast<double>(row.tokens) / static_cast<double>(largest));
      absl::StrAppend(
          &body_, "<rect class=\"b", ColourOfPass(row.first, trace_.passes), "\" x=\"",
          SvgNumber(kEdge + step * static_cast<double>(i)), "\" y=\"",
          SvgNumber(y_ + kBars - height), "\" width=\"", SvgNumber(std::max(1.0, step - 2)),
          "\" height=\"", SvgNumber(height), "\"><title>",
          XmlEscaped(absl::StrCat("pass ", row.Name(), ": ", Counted(row.tokens, "token"),
                                  ", mean confidence ", ConfidenceText(row.confidence))),
          "</title></rect>\n");
    }
    y_ += kBars;
  }

  const Trace& trace_;
  std::vector<TraceToken> tokens_;
  double y_ = 0;  // where the next thing is drawn
  std::string body_;
};

}  // namespace

std::string TraceSvgPicture(const Trace& trace, const std::string& heading) {
  return TraceDocument(trace).Draw(heading);
}

}  // namespace anyorder::launcher
