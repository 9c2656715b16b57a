#include "launcher/process/slurm_job.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/status.h"
#include "launcher/process/captured_program.h"

namespace anyorder::launcher {
namespace {

constexpr int kProgramNotFound = 127;  // of env

// Zero for UNLIMITED, nothing for what is no time.
std::optional<absl::Duration> ParseDuration(const std::string& text) {
  const absl::StatusOr<int64_t> seconds = ParseTimeLimit(text);
  if (!seconds.ok()) return std::nullopt;
  return absl::Seconds(*seconds);
}

// Slurm's clients print times of day of the place they run at.
std::optional<absl::Time> ParseSlurmTime(absl::string_view text) {
  absl::Time time;
  if (!absl::ParseTime("%Y-%m-%dT%H:%M:%S", text, absl::LocalTimeZone(), &time, nullptr))
    return std::nullopt;
  return time;
}

std::string FirstLine(absl::string_view text) {
  const absl::string_view line = text.substr(0, text.find('\n'));
  return std::string(absl::StripAsciiWhitespace(line));
}

}  // namespace

bool SlurmJob::IsQueued() const {
  return state == "PENDING" || state == "REQUEUED" || state == "REQUEUE_HOLD" ||
         state == "SPECIAL_EXIT";
}

bool SlurmJob::IsRunning() const {
  return state == "RUNNING" || state == "COMPLETING" || state == "CONFIGURING" ||
         state == "SUSPENDED" || state == "STOPPED" || state == "SIGNALING" || state == "STAGE_OUT";
}

bool SlurmJob::HasEnded(int64_t restart) const {
  if (restarts > restart) return true;
  for (const char* ended : {"PENDING", "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL",
                            "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}) {
    if (state == ended) return true;
  }
  return false;
}

absl::StatusOr<SlurmJob> ShowSlurmJob(const std::string& id, absl::Time deadline) {
  // Times in the format that is parsed here, whatever the user's environment asks for.
  ANYORDER_ASSIGN_OR_RETURN(
      const CapturedOutput answer,
      RunCaptured({"env", "-u", "SLURM_TIME_FORMAT", "scontrol", "-o", "show", "job", id},
                  deadline));
  if (answer.is_late)
    return absl::UnavailableError("scontrol gave no answer in time; is slurmctld up?");
  if (answer.exit_status == kProgramNotFound)
    return absl::UnavailableError("there is no scontrol on this machine; ask on a login node");
  const std::string line = FirstLine(answer.text);
  if (answer.exit_status == 0) return ParseSlurmJob(line);
  if (absl::StrContains(answer.text, "Invalid job id"))
    return absl::NotFoundError(absl::StrCat("Slurm knows no job ", id));
  absl::string_view why = line;
  absl::ConsumePrefix(&why, "scontrol: ");
  absl::ConsumePrefix(&why, "error: ");
  return absl::UnavailableError(absl::StrCat("Slurm cannot be asked here: ", why));
}

absl::StatusOr<SlurmJob> ParseSlurmJob(absl::string_view line) {
  // The job's name is the user's and may hold anything; what is read comes after it.
  const size_t name_end = line.find(" UserId=");
  const absl::string_view members =
      name_end == absl::string_view::npos ? line : line.substr(name_end);
  const auto get = [members](absl::string_view key) -> std::string {
    const std::string opening = absl::StrCat(" ", key, "=");
    const size_t at = members.find(opening);
    if (at == absl::string_view::npos) return "";
    const absl::string_view rest = members.substr(at + opening.size());
    const std::string value(rest.substr(0, rest.find(' ')));
    return value == "(null)" || value == "None" || value == "N/A" ? "" : value;
  };
  SlurmJob job;
  absl::string_view id = line;
  if (!absl::ConsumePrefix(&id, "JobId=") ||
      !absl::SimpleAtoi(id.substr(0, id.find(' ')), &job.id) || get("JobState").empty()) {
    return absl::DataLossError(
        absl::StrCat("unexpected output of scontrol (no job): '", line.substr(0, 80), "'"));
  }
  job.state = get("JobState");
  job.reason = get("Reason");
  job.partition = get("Partition");
  job.nodes = get("NodeList");
  job.dependency = get("Dependency");
  job.exit_code = job.IsQueued() || job.IsRunning() ? "" : get("ExitCode");
  // "2-2" while it waits.
  const std::string nodes = get("NumNodes");
  if (!absl::SimpleAtoi(nodes.substr(0, nodes.find('-')), &job.num_nodes)) job.num_nodes = -1;
  if (!absl::SimpleAtoi(get("Restarts"), &job.restarts)) job.restarts = -1;
  job.run_time = ParseDuration(get("RunTime"));
  const std::optional<absl::Duration> limit = ParseDuration(get("TimeLimit"));
  if (job.state == "RUNNING" && limit > absl::ZeroDuration() && job.run_time)
    job.time_left = std::max(*limit - *job.run_time, absl::ZeroDuration());
  if (job.IsQueued()) job.start = ParseSlurmTime(get("StartTime"));
  return job;
}

absl::StatusOr<int64_t> ParseTimeLimit(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower == "unlimited" || lower == "infinite") return 0;
  const absl::Status fault = absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' must be minutes, H:M:S or D-H:M:S, e.g. 90, 12:00:00 or 2-00:00:00"));
  const std::vector<std::string> halves = absl::StrSplit(text, '-');
  const std::vector<std::string> parts = absl::StrSplit(halves.back(), ':');
  if (halves.size() > 2 || parts.size() > 3) return fault;
  std::vector<int64_t> numbers;
  for (const std::string& part : parts) {
    int64_t number = 0;
    if (part.empty() || part.size() > 9 || !absl::SimpleAtoi(part, &number) || number < 0)
      return fault;
    numbers.push_back(number);
  }
  const bool has_days = halves.size() == 2;
  // One number is minutes, two are minutes and seconds; after days one is hours, two are hours and
  // minutes.
  const size_t first_is_hours = has_days || numbers.size() == 3 ? 0 : 1;
  constexpr std::array<int64_t, 3> kSeconds = {3600, 60, 1};
  int64_t seconds = 0;
  for (size_t i = 0; i < numbers.size(); ++i) seconds += numbers[i] * kSeconds[i + first_is_hours];
  if (!has_days) return seconds;
  int64_t days = 0;
  if (halves[0].empty() || halves[0].size() > 6 || !absl::SimpleAtoi(halves[0], &days) || days < 0)
    return fault;
  return seconds + days * 86400;
}

}  // namespace anyorder::launcher
