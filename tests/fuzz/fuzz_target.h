// What a fuzz target consists of. Each NAME_fuzzer.cc defines both functions; libFuzzer or
// replay_main.cc calls them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// Parses `input` and uses what was taken. Aborts where the parser broke a promise; a crash is a
// finding.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size);

namespace anyorder::fuzz {

// Valid inputs, written by the product's own code, that mutation starts from.
std::vector<std::string> Seeds();

inline absl::string_view TextOf(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace anyorder::fuzz
