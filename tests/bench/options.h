// What benchmarks share: command lines of the form --name value, and flags without a value;
// medians.

#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"

#include "core/base/status.h"

namespace anyorder::bench {

// Where an option's value goes; a bool becomes true where its name stands alone.
using OptionTarget = std::variant<int64_t*, double*, std::string*, bool*>;

struct Option {
  std::string name;
  OptionTarget target;
  int64_t least = 0;  // of whole numbers
};

inline bool SetOption(const Option& option, const std::string& value) {
  if (auto* const* whole = std::get_if<int64_t*>(&option.target))
    return absl::SimpleAtoi(value, *whole) && **whole >= option.least;
  if (auto* const* real = std::get_if<double*>(&option.target))
    return absl::SimpleAtod(value, *real);
  *std::get<std::string*>(option.target) = value;
  return true;
}

// Fills the targets of the options that are given. InvalidArgument for an unknown one, and for a
// value that is missing, no number or too small.
inline absl::Status ParseOptions(int argc, char** argv, const std::vector<Option>& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto found = std::ranges::find(options, name, &Option::name);
    if (found == options.end()) return InvalidArgument("unknown option ", name);
    if (bool* const* flag = std::get_if<bool*>(&found->target)) {
      **flag = true;
    } else if (++i == argc) {
      return InvalidArgument(name, " needs a value");
    } else if (!SetOption(*found, argv[i])) {
      return InvalidArgument(name, " ", argv[i], " is no number from ", found->least, " on");
    }
  }
  return absl::OkStatus();
}

// The most memory that this process has had.
inline double PeakRssMib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

// On the wall.
template <typename Work>
double SecondsOf(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The upper one of two. REQUIRES: not empty.
inline double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace anyorder::bench
