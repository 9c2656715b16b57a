#include "launcher/process/display_width.h"

#include <langinfo.h>
#include <unistd.h>
#include <utf8proc.h>

#include <clocale>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/base/unicode.h"

namespace anyorder::launcher {
namespace {

struct Prefix {
  size_t bytes = 0;
  int64_t columns = 0;
};

Prefix MeasurePrefix(absl::string_view text, int64_t columns) {
  Prefix prefix;
  while (prefix.bytes < text.size()) {
    size_t next = prefix.bytes;
    const char32_t c = NextCodePoint({text.data(), text.size()}, next);
    const int64_t width = utf8proc_charwidth(static_cast<utf8proc_int32_t>(c));
    if (prefix.columns + width > columns) break;
    prefix = {next, prefix.columns + width};
  }
  return prefix;
}

}  // namespace

int64_t DisplayWidth(absl::string_view text) {
  return MeasurePrefix(text, std::numeric_limits<int64_t>::max()).columns;
}

absl::string_view FittingPrefix(absl::string_view text, int64_t columns) {
  return text.substr(0, MeasurePrefix(text, columns).bytes);
}

std::string PaddedToWidth(absl::string_view text, int64_t columns) {
  const Prefix prefix = MeasurePrefix(text, columns);
  std::string padded(text.substr(0, prefix.bytes));
  padded.append(static_cast<size_t>(columns - prefix.columns), ' ');
  return padded;
}

std::string Displayable(absl::string_view text) {
  constexpr char32_t kPictures = 0x2400;
  constexpr char32_t kDelete = 0x7F;
  constexpr char32_t kReplacement = 0xFFFD;
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    char32_t c = NextCodePoint({text.data(), text.size()}, at);
    if (c < ' ')
      c += kPictures;
    else if (c == kDelete)
      c = kPictures + 0x21;
    else if ((c > kDelete && c < 0xA0) || c == 0xFFFE || c == 0xFFFF)
      c = kReplacement;  // of the first some terminals know as commands; the others XML forbids
    else if ((c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069))
      c = kReplacement;
    AppendUtf8(c, shown);
  }
  return shown;
}

std::string DisplayableLines(absl::string_view text) {
  std::string shown;
  const char* separator = "";
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::StrAppend(&shown, separator, Displayable(absl::StrReplaceAll(line, {{"\t", "    "}})));
    separator = "\n";
  }
  return shown;
}

bool TerminalKnowsUnicode() {
  // Asked by name, so that the program's own locale, which decides how numbers are printed, stays
  // "C".
  const locale_t user = ::newlocale(LC_CTYPE_MASK, "", nullptr);
  if (user == nullptr) return false;
  const bool is_utf8 = absl::EqualsIgnoreCase(::nl_langinfo_l(CODESET, user), "UTF-8");
  ::freelocale(user);
  return is_utf8;
}

winsize TerminalSize() {
  winsize size = {};
  ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  if (size.ws_row == 0) size.ws_row = 24;
  if (size.ws_col == 0) size.ws_col = 80;
  return size;
}

std::string Wrapped(absl::string_view text, const std::string& indent, int64_t columns,
                    const std::string& hanging) {
  std::string wrapped = indent;
  int64_t used = DisplayWidth(indent);
  bool is_first = true;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    const int64_t width = DisplayWidth(word);
    if (!is_first && used + 1 + width > columns) {
      absl::StrAppend(&wrapped, "\n", indent, hanging, word);
      used = DisplayWidth(indent) + DisplayWidth(hanging) + width;
    } else {
      absl::StrAppend(&wrapped, is_first ? "" : " ", word);
      used += width + (is_first ? 0 : 1);
    }
    is_first = false;
  }
  return wrapped;
}

}  // namespace anyorder::launcher
