// Numbers of things in messages.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace anyorder::launcher {

// "1 start", "2 starts". For nouns that take an s.
inline std::string Counted(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// "30,291"
inline std::string Grouped(int64_t number, const char* separator = ",") {
  std::string digits = absl::StrCat(number);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), separator);
  return digits;
}

}  // namespace anyorder::launcher
