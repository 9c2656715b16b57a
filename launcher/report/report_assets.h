// The style sheet and the script of a report, as they are in report_page.css and report_page.js
// (CMakeLists.txt puts them into the program, so that it needs no files beside it).

#pragma once

namespace anyorder::launcher {

extern const char kReportStyle[];
extern const char kReportScript[];

}  // namespace anyorder::launcher
