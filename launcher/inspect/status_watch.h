// `anyorder status --watch`: the status again and again until the run is done.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace anyorder::launcher {

// On a terminal the screen is drawn over the one before; elsewhere each refresh is one line, with
// `json` one JSON object a line. Ends when the run is finished, and at SIGINT and SIGTERM; both are
// OK. A run that stopped may be started again: it is watched on.
absl::Status WatchStatus(const std::string& run_dir, bool json, absl::Duration interval);

// The bytes that replace a drawing of `lines_before` lines by `screen` on a terminal of `rows` x
// `columns`. Lines that are too long are cut, and so is a screen that is too high: what scrolled
// out of sight could not be drawn over. `lines` is set to those drawn.
std::string Redraw(absl::string_view screen, int64_t rows, int64_t columns, int64_t lines_before,
                   int64_t* lines);

}  // namespace anyorder::launcher
