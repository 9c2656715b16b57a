// Values of keys as text, by type: the TOML spelling of a value, and a value from what a user
// typed.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "core/base/fields.h"

namespace anyorder::field_text {

// What a wrong type should have been.
template <typename T>
std::string ExpectedType() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, int64_t>) return "a whole number";
  if constexpr (std::is_same_v<T, double>) return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "a string";
  if constexpr (std::is_enum_v<T>) {
    std::vector<std::string> names;
    for (const auto& [value, name] : kEnumNames<T>) names.push_back(absl::StrCat("\"", name, "\""));
    return absl::StrJoin(names, " or ");
  }
}

// The fewest digits that read back as the same number.
inline std::string FormatDouble(double value) {
  std::string text;
  for (int digits = 1; digits <= 17; ++digits) {
    text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) break;
  }
  // TOML tells floats from integers by their look.
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

inline std::string QuoteString(absl::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&text, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text + "\"";
}

template <typename T>
std::string Format(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, double>) {
    return FormatDouble(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return QuoteString(value);
  } else if constexpr (std::is_enum_v<T>) {
    return absl::StrCat("\"", EnumName(value), "\"");
  } else {
    static_assert(std::is_same_v<T, int64_t>);
    return absl::StrCat(value);
  }
}

// From an unquoted word of the command line. False if it does not spell a T.
template <typename T>
bool ParseWord(absl::string_view text, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    if (text != "true" && text != "false") return false;
    value = text == "true";
    return true;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return absl::SimpleAtoi(text, &value);
  } else if constexpr (std::is_same_v<T, double>) {
    return absl::SimpleAtod(text, &value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = std::string(text);
    return true;
  } else {
    return ParseEnum(text, value);
  }
}

}  // namespace anyorder::field_text
