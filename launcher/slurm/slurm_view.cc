#include "launcher/slurm/slurm_view.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

#include "core/base/status.h"
#include "launcher/process/captured_program.h"

namespace anyorder::launcher {
namespace {

// A chain of jobs that wait for each other is rarely longer; one more question each is cheap but
// not free.
constexpr size_t kMaxJobsAsked = 4;
constexpr int kProgramNotFound = 127;  // of env

// "[days-]hours:minutes:seconds", or nothing for UNLIMITED and the like.
std::optional<absl::Duration> ParseSlurmDuration(absl::string_view text) {
  int64_t days = 0;
  const std::vector<absl::string_view> halves = absl::StrSplit(text, '-');
  if (halves.size() > 2) return std::nullopt;
  if (halves.size() == 2 && !absl::SimpleAtoi(halves[0], &days)) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(halves.back(), ':');
  if (parts.size() != 3) return std::nullopt;
  int64_t seconds = 0;
  for (const absl::string_view part : parts) {
    int64_t value = 0;
    if (!absl::SimpleAtoi(part, &value) || value < 0) return std::nullopt;
    seconds = 60 * seconds + value;
  }
  return absl::Hours(24 * days) + absl::Seconds(seconds);
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

// Adds what Slurm says about one job. False if it is no use to ask about another.
bool AskAbout(int64_t id, absl::Time deadline, SlurmView& view) {
  // Times in the format that is parsed above, whatever the user's environment asks for.
  const auto answer = RunCaptured(
      {"env", "-u", "SLURM_TIME_FORMAT", "scontrol", "-o", "show", "job", absl::StrCat(id)},
      deadline);
  if (!answer.ok()) {
    view.problem = std::string(answer.status().message());
  } else if (!answer->has_value()) {
    view.problem = "scontrol gave no answer in time; is slurmctld up?";
  } else if ((*answer)->exit_status == kProgramNotFound) {
    view.problem = "there is no scontrol on this machine; ask on a login node";
  } else if ((*answer)->exit_status != 0) {
    if (absl::StrContains((*answer)->text, "Invalid job id")) {
      view.forgotten.push_back(id);
      return true;
    }
    const std::string line = FirstLine((*answer)->text);
    absl::string_view why = line;
    absl::ConsumePrefix(&why, "scontrol: ");
    absl::ConsumePrefix(&why, "error: ");
    view.problem = absl::StrCat("Slurm cannot be asked here: ", why);
  } else {
    const absl::StatusOr<SlurmJob> job = ParseSlurmJob(FirstLine((*answer)->text));
    if (job.ok()) {
      view.jobs.push_back(*job);
      return true;
    }
    view.problem = std::string(job.status().message());
  }
  return false;
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

std::vector<int64_t> SlurmJobsOf(const std::string& run_dir,
                                 const std::vector<LedgerRecord>& ledger) {
  std::set<int64_t, std::greater<>> ids;
  for (const LedgerRecord& record : ledger)
    if (const auto* start = record.As<ledger::Start>(); start != nullptr && start->slurm_job > 0)
      ids.insert(start->slurm_job);
  std::error_code error;
  std::filesystem::directory_iterator entry(run_dir + "/slurm", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string stem = entry->path().stem().string();
    int64_t id = 0;
    if (absl::StartsWith(stem, "job-") && absl::SimpleAtoi(stem.substr(4), &id) && id > 0)
      ids.insert(id);
  }
  return {ids.begin(), ids.end()};
}

SlurmView AskSlurm(const std::vector<int64_t>& ids, absl::Duration patience) {
  SlurmView view;
  const absl::Time deadline = absl::Now() + patience;
  for (size_t i = 0; i < std::min(ids.size(), kMaxJobsAsked); ++i) {
    if (!AskAbout(ids[i], deadline, view)) break;
    if (!view.jobs.empty() && !view.jobs.back().IsQueued()) break;
  }
  return view;
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
        absl::StrCat("scontrol answered what is no job: '", line.substr(0, 80), "'"));
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
  job.run_time = ParseSlurmDuration(get("RunTime"));
  const std::optional<absl::Duration> limit = ParseSlurmDuration(get("TimeLimit"));
  if (job.state == "RUNNING" && limit && job.run_time)
    job.time_left = std::max(*limit - *job.run_time, absl::ZeroDuration());
  if (job.IsQueued()) job.start = ParseSlurmTime(get("StartTime"));
  return job;
}

}  // namespace anyorder::launcher
