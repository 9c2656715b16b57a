// The order in which a text was written, drawn: what both kinds of picture are made from.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/texts/trace_file.h"

namespace anyorder::launcher {

// A token of the text in reading order, or the blanks between two of them.
struct TraceToken {
  std::string text;        // without the space before it; fit for a terminal and for XML
  bool has_space = false;  // one goes before it
  bool ends_line = false;  // the token is, or ends with, a line feed
  const ShownToken* written = nullptr;  // of the trace; null of the prompt and of blanks
};
std::vector<TraceToken> TokensInOrder(const Trace& trace, bool ascii);

// Consecutive passes, and what was written in them.
struct TracePasses {
  int64_t first = 1;
  int64_t last = 1;
  int64_t tokens = 0;
  double confidence = 0;  // their mean; NaN where no token has one

  std::string Name() const;  // "3", "3-5"
};
// At most `most` rows of as many passes each, but for the last.
std::vector<TracePasses> PassesOf(const Trace& trace, int64_t most);

// "llada: 32 tokens in 8 passes (4 a pass)".
std::string TraceSummary(const Trace& trace);
// Three decimals; "-" for NaN.
std::string ConfidenceText(double confidence);

// Colours from early to late that can be told apart on any page, each with ink that is readable on
// it: a number of xterm's 256 colours, and the same for SVG.
struct TraceColour {
  int terminal;
  const char* svg;
  bool takes_dark_ink;
};
inline constexpr TraceColour kTraceColours[] = {
    {222, "#ffd787", true}, {215, "#ffaf5f", true}, {209, "#ff875f", true}, {203, "#ff5f5f", true},
    {168, "#d75f87", true}, {133, "#af5faf", true}, {97, "#875faf", false}, {61, "#5f5faf", false},
};
// The index of kTraceColours for pass `pass` of `passes`.
size_t ColourOfPass(int64_t pass, int64_t passes);

// Where tokens go: lines are broken before words, inside of them only where a word is too wide for
// a line. `widths`: of the tokens, none above `most`; `space`: of one space.
struct TracePlace {
  int64_t line = 0;
  double x = 0;
};
std::vector<TracePlace> PlaceTokens(const std::vector<TraceToken>& tokens,
                                    const std::vector<double>& widths, double space, double most);

// `heading` goes above the summary.
std::string TraceTerminalPicture(const Trace& trace, const std::string& heading, bool ascii,
                                 bool colours, int64_t columns);
std::string TraceSvgPicture(const Trace& trace, const std::string& heading);

}  // namespace anyorder::launcher
