// The report as one HTML document that needs nothing else: no other file, no network, and without
// scripts still its tables.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "launcher/report/report_data.h"

namespace anyorder::launcher {

// How a page begins, so that a later report may replace it and nothing else.
inline constexpr char kReportOpening[] =
    "<!doctype html>\n<!-- written by anyorder report; a later one replaces this file -->\n";

// Runs are drawn over each other; `now` is when it was written.
std::string ReportPage(const std::vector<ReportRun>& runs, absl::Time now);

// `text` as content of an element or attribute: & < > " ' become entities, and control characters,
// which HTML has no place for, U+FFFD.
std::string EscapeHtml(absl::string_view text);

// What the script draws, as JSON for a <script> element: it holds no '<', so that no text can close
// the element.
std::string ReportJson(const std::vector<ReportRun>& runs);

}  // namespace anyorder::launcher
