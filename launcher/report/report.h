// `anyorder report`: what became of a run, or of several, as one HTML document that needs nothing
// else: no other file, no network, and without scripts still its tables.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "launcher/report/report_data.h"

namespace anyorder::launcher {

struct ReportOptions {
  std::vector<std::string> run_dirs;
  std::string output;  // "": report.html in the run directory; of several runs it must be named
};

// Writes the page, atomically, and prints where it is.
// Errors: InvalidArgument if a directory is no run or never started; AlreadyExists if `output` is
// there and no report.
absl::Status WriteReport(const ReportOptions& options);

// How a page begins, so that a later report may replace it and nothing else.
inline constexpr char kReportOpening[] =
    "<!doctype html>\n<!-- written by anyorder report; a later one replaces this file -->\n";

// The style sheet and the script as they are in report_page.css and report_page.js, which
// CMakeLists.txt puts into the program, so that it reads no files for them.
extern const char kReportStyle[];
extern const char kReportScript[];

// Runs are drawn over each other; `now` is when it was written.
std::string ReportPage(const std::vector<ReportRun>& runs, absl::Time now);

// `text` as content of an element or attribute: & < > " ' become entities, and control characters,
// which HTML has no place for, U+FFFD.
std::string EscapeHtml(absl::string_view text);

// What the script draws, as JSON for a <script> element: it holds no '<', so that no text can close
// the element.
std::string ReportJson(const std::vector<ReportRun>& runs);

}  // namespace anyorder::launcher
