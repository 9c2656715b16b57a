// The one home of the decisions to move a cursor and to use colours.

#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace anyorder {

// Whether escape sequences may be written to `descriptor`.
inline bool TakesEscapes(int descriptor) {
  const char* const kind = std::getenv("TERM");
  return ::isatty(descriptor) == 1 && kind != nullptr && std::string_view(kind) != "dumb";
}

// Whether colours may be, too: no-color.org asks that NO_COLOR, unless empty, turns them off.
inline bool TakesColours(int descriptor) {
  const char* const refusal = std::getenv("NO_COLOR");
  return TakesEscapes(descriptor) && (refusal == nullptr || *refusal == '\0');
}

}  // namespace anyorder
