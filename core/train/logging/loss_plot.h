// The loss curve as a picture that any browser shows: run-dir/loss.svg.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/train/run/metrics.h"

namespace anyorder {

// Loss against step with axes and ticks: every step thin (averaged where there are more steps than
// pixels), a running mean bold. Steps without a finite loss are left out. An SVG document, also for
// no steps at all.
std::string LossPlot(const std::vector<StepMetrics>& metrics, absl::string_view title);

}  // namespace anyorder
