// What a fuzz target consists of. Each NAME_fuzzer.cc registers one; libFuzzer (libfuzzer_main.cc)
// or fuzz_replay (replay_main.cc) calls it.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace anyorder::fuzz {

struct FuzzTarget {
  std::string name;
  // Valid inputs, written by the product's own code, that mutation starts from.
  std::function<std::vector<std::string>()> seeds;
  // Parses its argument and uses what was taken. Aborts where the parser broke a promise; a crash
  // is a finding.
  std::function<void(absl::string_view)> run;
};

// The targets linked into this program: all in fuzz_replay, one under libFuzzer.
inline std::vector<FuzzTarget>& Targets() {
  static std::vector<FuzzTarget> targets;
  return targets;
}

inline bool Register(FuzzTarget target) {
  Targets().push_back(std::move(target));
  return true;
}

}  // namespace anyorder::fuzz
