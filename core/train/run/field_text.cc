#include "core/train/run/field_text.h"

#include <cstdlib>

#include "absl/strings/str_format.h"

namespace anyorder::field_text {

// The fewest digits that read back as the same number.
std::string FormatDouble(double value) {
  std::string text;
  for (int digits = 1; digits <= 17; ++digits) {
    text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) break;
  }
  // TOML tells floats from integers by their look.
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string QuoteString(absl::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&text, "\\", absl::string_view(&c, 1));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&text, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text + "\"";
}

}  // namespace anyorder::field_text
