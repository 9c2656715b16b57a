// How a text was written, drawn: small traces against the lines and elements that they should give.

#include "launcher/show/show_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "launcher/process/display_width.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// "It rains un·believ·ably." after "So,", in three passes; the seventh position is left out.
Trace Rain() {
  return {.prompt = 2,
          .rank = 1,
          .method = "llada",
          .prompt_pieces = {"So", ","},
          .passes = 12,
          .written = {{1, 3, " rains", -1, 0.5},
                      {1, 2, " it", -1, 0.25},
                      {3, 5, "believ", -1, 1},
                      {11, 4, " un", -1, 0.5},
                      {12, 6, "ably", -1, kUnknown},
                      {12, 8, "\n", -1, 0.75},
                      {12, 9, "語", -1, 0.75}}};
}

std::vector<std::string> LinesOf(const std::string& picture) {
  std::vector<std::string> lines = absl::StrSplit(picture, '\n');
  EXPECT_EQ(lines.back(), "");
  lines.pop_back();
  return lines;
}

std::string OnTerminal(const Trace& trace, bool ascii, bool colours, int64_t columns) {
  return TraceTerminalPicture(trace, "text 1 of 3", ascii, colours, columns);
}

TEST(ShowTraceTest, WithoutColoursNumbersStandBelowTokens) {
  EXPECT_THAT(LinesOf(OnTerminal(Rain(), /*ascii=*/false, /*colours=*/false, 44)),
              ElementsAre("text 1 of 3",                                  //
                          "llada: 7 tokens in 12 passes (0.58 a pass)",   //
                          "",                                             //
                          "So, it rains un·believably [1 blank]↵",        //
                          "    1  1     11 3     12            12",       //
                          "語",                                           //
                          "12",                                           //
                          "",                                             //
                          "Below each token: the pass that wrote it;",    //
                          "the prompt has none. · joins a token to the",  //
                          "one before it.",                               //
                          "",                                             //
                          "         pass   tokens   confidence",          //
                          "            1        2        0.375  ██",      //
                          "            2        0            -",          //
                          "            3        1        1.000  █",       //
                          "            4        0            -",          //
                          "            5        0            -",          //
                          "            6        0            -",          //
                          "            7        0            -",          //
                          "            8        0            -",          //
                          "            9        0            -",          //
                          "           10        0            -",          //
                          "           11        1        0.500  █",       //
                          "           12        3        0.750  ███"));
}

// A vocabulary may have the space as a token of its own.
TEST(ShowTraceTest, SpacesOfThePromptArePlainAndWrittenOnesAreSeen) {
  Trace trace = Rain();
  trace.prompt_pieces = {" ", "So", "", " ", "it"};
  trace.written = {{1, 5, " ", -1, 0.5}, {2, 6, "rains", -1, 0.5}, {3, 7, "", -1, 0.5}};
  const std::vector<std::string> lines = LinesOf(OnTerminal(trace, false, false, 80));
  EXPECT_EQ(lines[3], "So it␣·rains∅");
  EXPECT_EQ(lines[4], "     1 2    3");
}

TEST(ShowTraceTest, AsciiHasNoOtherGlyphsThanTheText) {
  Trace trace = Rain();
  trace.written.pop_back();
  const std::string picture = OnTerminal(trace, /*ascii=*/true, /*colours=*/false, 44);
  EXPECT_THAT(picture, HasSubstr("So, it rains un~believably [1 blank]\\n\n"));
  EXPECT_THAT(picture, HasSubstr("  ##\n"));
  for (const char c : picture) EXPECT_EQ(c & 0x80, 0) << picture;
}

TEST(ShowTraceTest, ColoursTellThePassesAndThePromptIsPlain) {
  const std::vector<std::string> lines =
      LinesOf(OnTerminal(Rain(), /*ascii=*/false, /*colours=*/true, 80));
  const std::string first = "\x1b[38;5;16;48;5;222m";
  const std::string second = "\x1b[38;5;16;48;5;215m";  // pass 3 of 12: 2/11 of 7 steps
  const std::string seventh = "\x1b[38;5;231;48;5;97m";
  const std::string last = "\x1b[38;5;231;48;5;61m";
  const std::string off = "\x1b[0m";
  EXPECT_EQ(lines[3], absl::StrCat("So, ", first, "it", off, " ", first, "rains", off, " ", seventh,
                                   "un", off, second, "believ", off, last, "ably", off,
                                   " [1 blank]", last, "↵", off));
  EXPECT_EQ(lines[4], absl::StrCat(last, "語", off));
  EXPECT_THAT(lines[6], ::testing::StartsWith(absl::StrCat("Written in pass 1 ", first, "  ")));
  EXPECT_THAT(lines[6], ::testing::EndsWith("  \x1b[0m 12; the prompt is plain."));
  EXPECT_EQ(lines[9], absl::StrCat("            1        2        0.375  ", first, "  ", off));
}

TEST(ShowTraceTest, ColoursGoFromTheFirstPassToTheLast) {
  for (const int64_t passes : {1, 2, 3, 8, 9, 100, 1'000'000}) {
    EXPECT_EQ(ColourOfPass(1, passes), 0);
    const size_t last = passes == 1 ? 0 : std::size(kTraceColours) - 1;
    EXPECT_EQ(ColourOfPass(passes, passes), last);
  }
  for (int64_t pass = 1; pass <= 8; ++pass)
    EXPECT_EQ(ColourOfPass(pass, 8), static_cast<size_t>(pass - 1));
  EXPECT_EQ(ColourOfPass(50, 99), 4);  // 3.5 steps
}

bool IsMark(absl::string_view token) { return absl::StartsWith(token, "\u0301"); }

// Letters and marks of all widths, spaces, and what cannot be seen.
Trace RandomText(std::mt19937_64& random) {
  const std::vector<std::string> parts = {"a",  "bc",      " ",  " d",   "語", "e\u0301", "\u0301",
                                          "\n", "\x1b[2J", "\t", "\xE8", "",   "한국어",  "wörter"};
  Trace trace{.method = "m", .passes = 1 + static_cast<int64_t>(random() % 2000)};
  const auto piece = [&] {
    std::string text;
    for (uint64_t i = random() % 4; i > 0; --i) text += parts[random() % parts.size()];
    return text;
  };
  for (uint64_t i = random() % 4; i > 0; --i) trace.prompt_pieces.push_back(piece());
  for (uint64_t i = random() % 60; i > 0; --i) {
    const auto position = std::ssize(trace.prompt_pieces) + std::ssize(trace.written);
    trace.written.push_back({1, position, piece(), -1, 0.5});
  }
  for (ShownToken& token : trace.written)
    token.pass = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(trace.passes));
  return trace;
}

// The numbers below the words are those of the tokens in reading order, each where its token
// begins, and no line is wider than the terminal.
TEST(ShowTraceTest, NumbersStandWhereTokensBegin) {
  std::mt19937_64 random(77);
  for (int round = 0; round < 300; ++round) {
    const Trace trace = RandomText(random);
    const auto columns = static_cast<int64_t>(10 + random() % 60);
    std::vector<TraceToken> left = TokensInOrder(trace, false);
    std::erase_if(left, [](const TraceToken& token) { return token.written == nullptr; });
    std::reverse(left.begin(), left.end());
    const std::vector<std::string> lines = LinesOf(OnTerminal(trace, false, false, columns));
    const auto begin = absl::c_find(lines, "") + 1;
    const auto end = std::find_if(begin, lines.end(), [](const std::string& line) {
      return absl::StartsWith(line, "Below");
    });
    for (auto line = begin; line != end; ++line) {
      ASSERT_LE(DisplayWidth(*line), columns);
      for (const char c : *line) ASSERT_GE(static_cast<unsigned char>(c), ' ');
      if (line->find_first_not_of("0123456789 ") != std::string::npos) continue;
      for (size_t at = 0; (at = line->find_first_of("0123456789", at)) != std::string::npos;) {
        const size_t stop = std::min(line->find(' ', at), line->size());
        ASSERT_FALSE(left.empty());
        EXPECT_EQ(line->substr(at, stop - at), absl::StrCat(left.back().written->pass));
        const absl::string_view words = line[-1];
        const size_t above = FittingPrefix(words, static_cast<int64_t>(at)).size();
        const absl::string_view token = FittingPrefix(left.back().text, columns);
        // A mark at the begin of a token stands on the letter before it.
        const bool is_whole = DisplayWidth(token) == DisplayWidth(left.back().text);
        if (is_whole && !IsMark(token)) {
          EXPECT_TRUE(absl::StartsWith(words.substr(above), token)) << words << "|" << token;
        }
        left.pop_back();
        at = stop;
      }
    }
    EXPECT_TRUE(left.empty());
  }
}

std::vector<std::string> PartsBetween(const std::string& text, const std::string& begin,
                                      const std::string& end) {
  std::vector<std::string> found;
  for (size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    found.push_back(text.substr(at, text.find(end, at) - at));
  }
  return found;
}

// tests/launcher/check_show.py reads each token's text and numbers, too.
TEST(ShowTraceTest, SvgSaysAllThatIsKnown) {
  const std::string svg = TraceSvgPicture(Rain(), "text 1 of 3");
  EXPECT_THAT(svg, HasSubstr(">llada: 7 tokens in 12 passes (0.58 a pass)</text>"));
  EXPECT_THAT(svg, HasSubstr(">text 1 of 3</text>"));
  const std::vector<std::string> titles = PartsBetween(svg, "<title>&#39;", "</title>");
  ASSERT_EQ(titles.size(), 7);
  EXPECT_EQ(titles[0],
            " it&#39;, position 2, written in pass 1, confidence 0.250, log-probability -1.000");
  EXPECT_THAT(titles[4], HasSubstr("confidence -"));
  EXPECT_EQ(PartsBetween(svg, ">So<", "/text>").size(), 1);
  EXPECT_EQ(PartsBetween(svg, ">[1 blank]<", "/text>").size(), 1);
  // Bars: of each pass one.
  const std::vector<std::string> bars = PartsBetween(svg, "<title>pass ", "</title>");
  EXPECT_EQ(bars.size(), 12);
  EXPECT_THAT(bars, ::testing::Contains(HasSubstr(": 1 token, mean confidence ")));
  EXPECT_THAT(bars, ::testing::Not(::testing::Contains(HasSubstr(": 1 tokens"))));
}

TEST(ShowTraceTest, SvgIsAsWideHoweverLongTheText) {
  std::mt19937_64 random(78);
  Trace trace{.method = "m", .passes = 3};
  for (int64_t i = 0; i < 2000; ++i)
    trace.written.push_back({1, i, std::string(random() % 90, 'x'), -1, 0.5});
  const std::string svg = TraceSvgPicture(trace, "");
  EXPECT_THAT(svg, HasSubstr("width=\"960\""));
  for (const std::string& box : PartsBetween(svg, "<g class=\"token\">", "</g>")) {
    const double x = std::stod(PartsBetween(box, " x=\"", "\"").at(0));
    const double width = std::stod(PartsBetween(box, " width=\"", "\"").at(0));
    EXPECT_GE(x, 28);
    EXPECT_LE(x + width, 960 - 28 + 0.01);
  }
}

}  // namespace
}  // namespace anyorder::launcher
