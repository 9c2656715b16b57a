// What mutated copies of kernels ask (CMakeLists.txt); included before all else.

#pragma once

#include <cstdlib>
#include <cstring>

inline bool IsMutant(const char* name) {
  static const char* const chosen = std::getenv("ANYORDER_MUTANT");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}
