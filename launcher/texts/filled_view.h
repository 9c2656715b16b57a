// Filled texts for a reader at a terminal.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/texts/blanks/blank_text.h"
#include "launcher/texts/text_service.h"

namespace anyorder::launcher {

// `source` with the words of the first alternative underlined, then a line for each alternative of
// at most `columns`: its number, the log-probability ("≥" and "±" of bounds), and the words, of
// several blanks with " / " between them; without alternatives a line that says so. Control
// characters are shown as blanks: text must not move a terminal's cursor.
std::string ShowFilled(const BlankText& source, const std::vector<FilledText>& alternatives,
                       int64_t columns);

}  // namespace anyorder::launcher
