#include "launcher/report/report.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"

#include "core/base/file_system.h"
#include "core/base/status.h"
#include "launcher/report/report_page.h"

namespace anyorder::launcher {
namespace {

constexpr size_t kMaxRuns = 6;  // as many colours can be told apart

absl::StatusOr<std::string> ResolveOutput(const ReportOptions& options) {
  if (options.run_dirs.empty()) return absl::InvalidArgumentError("name a run with --run-dir DIR");
  if (options.run_dirs.size() > kMaxRuns) {
    return absl::InvalidArgumentError(absl::StrCat("--run-dir is given ", options.run_dirs.size(),
                                                   " times; a page compares at most ", kMaxRuns,
                                                   " runs"));
  }
  if (!options.output.empty()) return options.output;
  if (options.run_dirs.size() == 1) return options.run_dirs.front() + "/report.html";
  return absl::InvalidArgumentError("several runs have no directory in common; add --output FILE");
}

// An older report is replaced, anything else is not.
absl::Status CheckMayBeReplaced(const std::string& output) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(output, error);
  if (!std::filesystem::exists(status)) return absl::OkStatus();
  const std::string opening = kReportOpening;
  std::string found(opening.size(), '\0');
  std::ifstream(output, std::ios::binary).read(found.data(), static_cast<int64_t>(found.size()));
  if (std::filesystem::is_regular_file(status) && found == opening) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(
      "'", output, "' exists and is not a report; remove it or give another --output"));
}

}  // namespace

absl::Status WriteReport(const ReportOptions& options) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string output, ResolveOutput(options));
  ANYORDER_RETURN_IF_ERROR(CheckMayBeReplaced(output));
  std::vector<ReportRun> runs;
  for (const std::string& run_dir : options.run_dirs) {
    ANYORDER_ASSIGN_OR_RETURN(ReportRun run, ReadReportRun(run_dir));
    runs.push_back(std::move(run));
  }
  const std::string page = ReportPage(runs, absl::Now());
  ANYORDER_RETURN_IF_ERROR(WriteFileAtomically(output, page));
  absl::PrintF("%s: %d KiB; open it in any browser\n", output, (page.size() + 1023) / 1024);
  return absl::OkStatus();
}

}  // namespace anyorder::launcher
