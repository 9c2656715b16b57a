// The loss curve as a picture that any browser shows: run-dir/loss.svg.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace anyorder {

// The loss of a whole run, step by step, in bounded memory: up to kMostPoints steps as they are,
// of longer runs means of 2, 4, 8, ... steps that follow each other. Drawing takes as long after
// 10^6 steps as after 10^4.
class LossCurve {
 public:
  static constexpr size_t kMostPoints = 1 << 14;

  struct Point {
    double step = 0;
    double loss = 0;
  };

  // In the order of steps. A loss that is not finite counts for no mean; where a point has no
  // other, its loss is NaN, and the curve has a gap.
  void Add(int64_t step, double loss);
  // What was added, thinned.
  std::vector<Point> Points() const;
  // Loss against step with axes and ticks: every step thin (averaged where there are more steps
  // than pixels), a running mean bold. An SVG document, also for no steps at all.
  std::string Plot(absl::string_view title) const;

 private:
  std::vector<Point> points_;  // each the mean of group_ steps
  int64_t group_ = 1;
  std::vector<Point> group_points_;  // steps of a group that is not complete
};

}  // namespace anyorder
