// Times of rounds in which contenders take their turn, and what is said of them.

#pragma once

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"

namespace anyorder::bench {

// Of this process: other processes of a busy machine disturb it less than the clock on the wall.
inline double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The upper one of two. REQUIRES: not empty.
inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Median, least and most of the ratios round by round.
inline std::string RatioText(const std::vector<double>& of, const std::vector<double>& to) {
  std::vector<double> ratios;
  for (size_t i = 0; i < of.size(); ++i) ratios.push_back(of[i] / to[i]);
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  return absl::StrFormat("[%.3f, %.3f, %.3f]", Median(ratios), *least, *most);
}

}  // namespace anyorder::bench
