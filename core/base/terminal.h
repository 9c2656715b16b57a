// The one home of the decision to move a cursor. Programs write no colours, so that NO_COLOR
// changes nothing.

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

}  // namespace anyorder
