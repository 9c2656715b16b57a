#include "launcher/slurm/slurm_commands.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {
namespace {

constexpr int kProgramNotFound = 127;  // of env

// Zero for UNLIMITED, nothing for what is no time.
std::optional<absl::Duration> ParseDuration(const std::string& text) {
  const absl::StatusOr<int64_t> seconds = ParseTimeLimit(text);
  if (!seconds.ok()) return std::nullopt;
  return absl::Seconds(*seconds);
}

// A controller that is being restarted answers within this, or the question is asked again later.
constexpr absl::Duration kAnswerLimit = absl::Seconds(20);

std::vector<std::string> Lines(absl::string_view text) {
  return absl::StrSplit(text, '\n', absl::SkipWhitespace());
}

struct LeaseJob {
  std::string id;
  std::string cluster;
  int64_t restart = 0;
};

// "123 of CLUSTER restart 1", as ckpt::DescribeThisProcess writes it.
LeaseJob ParseJob(absl::string_view text) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  LeaseJob job{words[0], "", 0};
  for (size_t i = 1; i + 1 < words.size(); i += 2) {
    if (words[i] == "of") job.cluster = words[i + 1];
    if (words[i] == "restart" && !absl::SimpleAtoi(words[i + 1], &job.restart)) job.restart = 0;
  }
  return job;
}

absl::StatusOr<std::string> Ask(const std::vector<std::string>& arguments) {
  std::string output;
  RETURN_IF_ERROR(RunCommand(arguments, kAnswerLimit, &output));
  return output;
}

// A chain of jobs that wait for each other is rarely longer; one more question each is cheap but
// not free.
constexpr size_t kMaxJobsAsked = 4;

// "pmix" if the list has it, else its newest version; "" without any.
std::string PmixPlugin(absl::string_view srun_list) {
  std::string best;
  for (const absl::string_view word :
       absl::StrSplit(srun_list, absl::ByAnyChar(" \t\n,:"), absl::SkipEmpty())) {
    if (word == "pmix") return "pmix";
    if (absl::StartsWith(word, "pmix_v")) best = std::max(best, std::string(word));
  }
  return best;
}

// NotFound if Slurm knows no such job (any more); Unavailable, with why, if it does not answer
// before the deadline or cannot be asked here.
absl::StatusOr<SlurmJob> ShowSlurmJob(const std::string& id, absl::Time deadline) {
  // Times in the format that is parsed here, whatever the user's environment asks for.
  ASSIGN_OR_RETURN(const CapturedOutput answer, RunCaptured({"env", "-u", "SLURM_TIME_FORMAT",
                                                             "scontrol", "-o", "show", "job", id},
                                                            deadline));
  if (answer.is_late) return Unavailable("scontrol gave no answer in time; is slurmctld up?");
  if (answer.exit_status == kProgramNotFound)
    return Unavailable("there is no scontrol on this machine; ask on a login node");
  const std::string line(absl::StripAsciiWhitespace(answer.text.substr(0, answer.text.find('\n'))));
  if (answer.exit_status == 0) return ParseSlurmJob(line);
  if (absl::StrContains(answer.text, "Invalid job id")) return NotFound("Slurm knows no job ", id);
  absl::string_view why = line;
  absl::ConsumePrefix(&why, "scontrol: ");
  absl::ConsumePrefix(&why, "error: ");
  return Unavailable("Slurm cannot be asked here: ", why);
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
    return DataLoss("unexpected output of scontrol (no job): '", line.substr(0, 80), "'");
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
  // Slurm's clients print times of day of the place they run at.
  absl::Time start;
  if (job.IsQueued() && absl::ParseTime("%Y-%m-%dT%H:%M:%S", get("StartTime"),
                                        absl::LocalTimeZone(), &start, nullptr))
    job.start = start;
  return job;
}

absl::StatusOr<int64_t> ParseTimeLimit(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower == "unlimited" || lower == "infinite") return 0;
  const absl::Status fault = InvalidArgument(
      "'", text, "' must be minutes, H:M:S or D-H:M:S, e.g. 90, 12:00:00 or 2-00:00:00");
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

absl::Status RunCommand(const std::vector<std::string>& arguments, absl::Duration limit,
                        std::string* output) {
  output->clear();
  ASSIGN_OR_RETURN(CapturedOutput got, RunCaptured(arguments, MonotonicNow() + limit));
  *output = std::move(got.text);
  const std::string what = absl::StrCat("'", absl::StrJoin(arguments, " "), "'");
  if (got.is_late)
    return DeadlineExceeded(what, " did not end within ", absl::FormatDuration(limit));
  if (got.exit_status == 0) return absl::OkStatus();
  const std::vector<std::string> lines = Lines(*output);
  absl::string_view last = lines.empty() ? "" : absl::string_view(lines.back());
  absl::ConsumePrefix(&last, "anyorder: ");  // of the child that could not become the program
  return Unavailable(what, " failed with status ", got.exit_status, last.empty() ? "" : ": ", last);
}

absl::StatusOr<std::vector<std::string>> NodesOfJob(const std::string& job) {
  ASSIGN_OR_RETURN(const std::string list, Ask({"squeue", "-h", "-j", job, "-o", "%N"}));
  const std::string compressed(absl::StripAsciiWhitespace(list));
  if (compressed.empty()) return Unavailable("Slurm's job ", job, " has no nodes");
  ASSIGN_OR_RETURN(const std::string names, Ask({"scontrol", "show", "hostnames", compressed}));
  return Lines(names);
}

bool StateIsUsable(absl::string_view state) {
  // '*': it does not answer. '-' and '#': it is planned, or booting.
  if (state.empty() || absl::EndsWith(state, "*")) return false;
  for (const char* unusable : {"down", "fail", "unknown", "power", "reboot", "future", "boot"})
    if (absl::StartsWithIgnoreCase(state, unusable)) return false;
  return true;
}

absl::StatusOr<std::vector<std::string>> UsableNodes(const std::vector<std::string>& nodes) {
  ASSIGN_OR_RETURN(const std::string text,
                   Ask({"sinfo", "-h", "-N", "-n", absl::StrJoin(nodes, ","), "-o", "%N %T"}));
  std::set<std::string> usable;
  for (const std::string& line : Lines(text)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() == 2 && StateIsUsable(words[1])) usable.insert(words[0]);
  }
  std::vector<std::string> kept;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(kept),
               [&](const std::string& n) { return usable.count(n) > 0; });
  return kept;
}

absl::StatusOr<std::vector<JobStep>> StepsOfJob(const std::string& job) {
  ASSIGN_OR_RETURN(const std::string text, Ask({"squeue", "-h", "-s", "-j", job, "-o", "%i %j"}));
  std::vector<JobStep> steps;
  for (const std::string& line : Lines(text)) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() == 2) steps.push_back({words[0], words[1]});
  }
  return steps;
}

absl::Status SignalStep(const std::string& step, const std::string& signal) {
  return Ask({"scancel", "-s", signal, step}).status();
}

bool JobHasEnded(const std::string& job, const std::string& this_job) {
  if (job.empty()) return false;
  const LeaseJob owner = ParseJob(job);
  const LeaseJob ours = ParseJob(this_job);
  if (owner.cluster != ours.cluster) return false;
  if (owner.id == ours.id) return owner.restart < ours.restart;
  const absl::StatusOr<SlurmJob> shown = ShowSlurmJob(owner.id, MonotonicNow() + kAnswerLimit);
  return shown.ok() ? shown->HasEnded(owner.restart) : absl::IsNotFound(shown.status());
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
  const absl::Time deadline = MonotonicNow() + patience;
  for (size_t i = 0; i < std::min(ids.size(), kMaxJobsAsked); ++i) {
    absl::StatusOr<SlurmJob> job = ShowSlurmJob(absl::StrCat(ids[i]), deadline);
    if (absl::IsNotFound(job.status())) {
      view.forgotten.push_back(ids[i]);
      continue;
    }
    if (!job.ok()) {
      view.problem = std::string(job.status().message());
      break;
    }
    view.jobs.push_back(*std::move(job));
    if (!view.jobs.back().IsQueued()) break;
  }
  return view;
}

absl::StatusOr<MpiChoice> ChooseMpi(const std::string& wanted, absl::string_view srun_list,
                                    bool has_mpirun) {
  const std::string plugin = PmixPlugin(srun_list);
  if (wanted != "mpirun" && !plugin.empty()) {
    return MpiChoice{plugin,
                     absl::StrCat("ranks by srun --mpi=", plugin, ": 'srun --mpi=list' names it")};
  }
  if (wanted == "srun") {
    return InvalidArgument(
        "--mpi srun: 'srun --mpi=list' names no pmix, and without it the ranks do not find each "
        "other; use --mpi mpirun, or ask for Slurm's PMIx plugin");
  }
  if (!has_mpirun) {
    return InvalidArgument(
        wanted == "auto" ? "'srun --mpi=list' names no pmix, and there" : "--mpi mpirun: there",
        " is no mpirun in PATH; load the MPI module that these programs were built with");
  }
  return MpiChoice{"", wanted == "mpirun" ? "ranks by mpirun: --mpi mpirun"
                                          : "ranks by mpirun: 'srun --mpi=list' names no pmix"};
}

}  // namespace anyorder::launcher
