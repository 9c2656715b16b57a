// Command lines of the form --name value, for the programs of this folder.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace anyorder::bench {

using OptionTarget = std::variant<int64_t*, double*, std::string*>;

// Fills the targets of the options that are given. InvalidArgument for an unknown one, and for a value that is missing or
// no number; whole numbers must not be negative.
inline absl::Status ParseOptions(int argc,
                                 char** argv,
                                 const std::vector<std::pair<std::string, OptionTarget>>& options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    if (i + 1 == argc) return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
    const std::string value = argv[i + 1];
    bool known = false;
    bool good = true;
    for (const auto& [option, target] : options) {
      if (option != name) continue;
      known = true;
      if (auto* const* whole = std::get_if<int64_t*>(&target)) {
        good = absl::SimpleAtoi(value, *whole) && **whole >= 0;
      } else if (auto* const* real = std::get_if<double*>(&target)) {
        good = absl::SimpleAtod(value, *real);
      } else {
        *std::get<std::string*>(target) = value;
      }
    }
    if (!known) return absl::InvalidArgumentError(absl::StrCat("unknown option ", name));
    if (!good) return absl::InvalidArgumentError(absl::StrCat(name, " ", value, " is no number"));
  }
  return absl::OkStatus();
}

}  // namespace anyorder::bench
