// How much room text takes on a terminal, where East Asian characters are two columns wide and
// combining marks take none.

#pragma once

#include <sys/ioctl.h>

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace anyorder::launcher {

// Columns of `text` (UTF-8) by utf8proc's table, which follows Unicode's East Asian Width. Control
// characters take none; a byte that is no UTF-8 takes one, like the mark that terminals draw for
// it.
int64_t DisplayWidth(absl::string_view text);

// The longest beginning of `text` that fits into `columns`: no character is cut, and marks stay
// with what they mark.
absl::string_view FittingPrefix(absl::string_view text, int64_t columns);

// The text cut so, and filled up with blanks to exactly `columns`.
std::string PaddedToWidth(absl::string_view text, int64_t columns);

// `text` as neither a terminal takes it for a command nor XML refuses it: of a control character
// its picture (U+2400 and the following), U+FFFD for what is no UTF-8, what has no picture, and
// what makes text around it run backwards (Unicode's embeddings, overrides and isolates).
std::string Displayable(absl::string_view text);

// Displayable text of several lines, whose ends stay; a tab takes the same room wherever it is.
std::string DisplayableLines(absl::string_view text);

// Broken at blanks into lines of at most `columns`, where no single word is wider, each after
// `indent`; all but the first after `hanging`, too.
std::string Wrapped(absl::string_view text, const std::string& indent, int64_t columns = 100,
                    const std::string& hanging = "");

// Whether the user's locale has characters beyond ASCII.
bool TerminalKnowsUnicode();

// The size of the terminal that is standard output; 24 x 80 where there is none, or it does not
// say.
winsize TerminalSize();

}  // namespace anyorder::launcher
