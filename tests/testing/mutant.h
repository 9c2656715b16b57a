// What mutated copies of sources ask (anyorder_mutate in tests/CMakeLists.txt); included before all
// else.

#pragma once

#include <cstdlib>
#include <cstring>

inline bool IsMutant(const char* name) {
  static const char* const chosen = std::getenv("ANYORDER_MUTANT");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}
