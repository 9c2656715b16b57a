#include "launcher/texts/filled_view.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/unicode.h"
#include "launcher/process/display_width.h"

namespace anyorder::launcher {
namespace {

constexpr char kUnderline[] = "\x1b[4m";
constexpr char kPlain[] = "\x1b[0m";

std::string Harmless(const std::string& text) {
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = NextCodePoint(text, at);
    AppendUtf8(c < 0x20 || (c >= 0x7F && c < 0xA0) ? U' ' : c, shown);
  }
  return shown;
}

std::string ProbabilityText(const FilledText& text) {
  if (text.is_exact) return absl::StrFormat("%.3f", text.log_prob);
  const bool has_error = std::isfinite(text.standard_error);
  return absl::StrFormat("\u2265 %.3f \u00B1 %s", text.log_prob,
                         has_error ? absl::StrFormat("%.3f", text.standard_error) : "?");
}

}  // namespace

std::string ShowFilled(const BlankText& source, const std::vector<FilledText>& alternatives,
                       int64_t columns) {
  std::vector<std::string> marked(source.gaps().size(), "___");
  for (size_t g = 0; g < marked.size() && !alternatives.empty(); ++g)
    marked[g] = absl::StrCat(kUnderline, Harmless(alternatives[0].blanks[g]), kPlain);
  BlankText plain = source;
  for (SourcePart& part : plain.parts) part.text = Harmless(part.text);
  std::string shown = plain.With(marked) + "\n";
  if (alternatives.empty()) return shown + "      no words found; try another length or seed\n";
  int64_t width = 0;
  for (const FilledText& text : alternatives)
    width = std::max(width, DisplayWidth(ProbabilityText(text)));
  for (size_t i = 0; i < alternatives.size(); ++i) {
    const std::string line = absl::StrCat(
        absl::StrFormat("%4d  ", i + 1), PaddedToWidth(ProbabilityText(alternatives[i]), width),
        "  ", Harmless(absl::StrJoin(alternatives[i].blanks, " / ")));
    absl::StrAppend(&shown, FittingPrefix(line, columns), "\n");
  }
  return shown;
}

}  // namespace anyorder::launcher
