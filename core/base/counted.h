// Numbers of things in messages.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace anyorder {

// "1 start", "2 starts", "2 batches". For nouns that take `ending`.
inline std::string Counted(int64_t count, absl::string_view noun, absl::string_view ending = "s") {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : ending);
}

// "1 to 4"; of equal ends "1".
inline std::string RangeText(int64_t first, int64_t last) {
  return last == first ? absl::StrCat(first) : absl::StrCat(first, " to ", last);
}

// "a, b, c and 7 more": at most `most` of them.
inline std::string FirstNames(const std::vector<std::string>& names, size_t most = 5,
                              absl::string_view separator = ", ") {
  if (names.size() <= most) return absl::StrJoin(names, separator);
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + most, separator), " and ",
                      names.size() - most, " more");
}

// "30,291"
inline std::string Grouped(int64_t number, const char* separator = ",") {
  std::string digits = absl::StrCat(number);
  for (int64_t at = std::ssize(digits) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), separator);
  return digits;
}

}  // namespace anyorder
