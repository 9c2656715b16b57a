#include "launcher/process/slurm_commands.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

#include "core/base/status.h"
#include "launcher/process/child_process.h"

namespace anyorder::launcher {
namespace {

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

// The word after "NAME=".
absl::string_view Field(absl::string_view shown, absl::string_view name) {
  for (const absl::string_view word : absl::StrSplit(shown, absl::ByAnyChar(" \n"))) {
    absl::string_view rest = word;
    if (absl::ConsumePrefix(&rest, name) && absl::ConsumePrefix(&rest, "=")) return rest;
  }
  return "";
}

absl::StatusOr<std::string> Ask(const std::vector<std::string>& arguments) {
  std::string output;
  ANYORDER_RETURN_IF_ERROR(RunCommand(arguments, kAnswerLimit, &output));
  return output;
}

}  // namespace

absl::Status RunCommand(const std::vector<std::string>& arguments, absl::Duration limit,
                        std::string* output) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus("pipe for", arguments[0]);
  SpawnOptions spawn;
  spawn.arguments = arguments;
  spawn.output_fd = ends[1];
  spawn.own_session = true;
  spawn.die_with_launcher = true;
  spawn.death_signal = SIGTERM;
  absl::StatusOr<ChildProcess> child = ChildProcess::Spawn(spawn);
  ::close(ends[1]);
  const absl::Time deadline = absl::Now() + limit;
  output->clear();
  bool is_late = !child.ok();
  while (!is_late) {
    pollfd wanted{ends[0], POLLIN, 0};
    const absl::Duration left = deadline - absl::Now();
    is_late = left <= absl::ZeroDuration();
    if (is_late || ::poll(&wanted, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) <= 0)
      continue;
    char bytes[4096];
    const ssize_t got = ::read(ends[0], bytes, sizeof bytes);
    if (got <= 0) break;
    output->append(bytes, static_cast<size_t>(got));
  }
  ::close(ends[0]);
  ANYORDER_RETURN_IF_ERROR(child.status());
  // It has closed its output; SIGTERM is what srun ends its step with.
  for (bool is_told = false; !child->Poll(); absl::SleepFor(absl::Milliseconds(1))) {
    if (absl::Now() > deadline + absl::Seconds(5)) child->Signal(SIGKILL);
    if (absl::Now() > deadline && !is_told) child->Signal(SIGTERM);
    is_told = is_told || absl::Now() > deadline;
  }
  if (*child->Poll() == 0 && !is_late) return absl::OkStatus();
  const std::vector<std::string> lines = Lines(*output);
  const std::string what = absl::StrCat("'", absl::StrJoin(arguments, " "), "'");
  if (is_late) {
    return absl::DeadlineExceededError(
        absl::StrCat(what, " did not end within ", absl::FormatDuration(limit)));
  }
  absl::string_view last = lines.empty() ? "" : absl::string_view(lines.back());
  absl::ConsumePrefix(&last, "anyorder: ");  // of the child that could not become the program
  return absl::UnavailableError(
      absl::StrCat(what, " failed with status ", *child->Poll(), last.empty() ? "" : ": ", last));
}

absl::StatusOr<std::vector<std::string>> NodesOfJob(const std::string& job) {
  ANYORDER_ASSIGN_OR_RETURN(const std::string list, Ask({"squeue", "-h", "-j", job, "-o", "%N"}));
  const std::string compressed(absl::StripAsciiWhitespace(list));
  if (compressed.empty()) {
    return absl::UnavailableError(absl::StrCat("Slurm's job ", job, " has no nodes"));
  }
  ANYORDER_ASSIGN_OR_RETURN(const std::string names,
                            Ask({"scontrol", "show", "hostnames", compressed}));
  return Lines(names);
}

bool StateIsUsable(absl::string_view state) {
  // '*': it does not answer. '-' and '#': it is planned, or booting.
  if (state.empty() || absl::EndsWith(state, "*")) return false;
  for (const char* unusable : {"down", "fail", "unknown", "power", "reboot", "future", "boot"}) {
    if (absl::StartsWithIgnoreCase(state, unusable)) return false;
  }
  return true;
}

absl::StatusOr<std::vector<std::string>> UsableNodes(const std::vector<std::string>& nodes) {
  ANYORDER_ASSIGN_OR_RETURN(
      const std::string text,
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
  ANYORDER_ASSIGN_OR_RETURN(const std::string text,
                            Ask({"squeue", "-h", "-s", "-j", job, "-o", "%i %j"}));
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

bool ShownJobHasEnded(absl::string_view shown, int64_t restart) {
  int64_t now = 0;
  if (absl::SimpleAtoi(Field(shown, "Restarts"), &now) && now > restart) return true;
  const absl::string_view state = Field(shown, "JobState");
  // COMPLETING is missing: its processes may be writing their last checkpoint.
  for (const char* ended : {"PENDING", "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL",
                            "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}) {
    if (state == ended) return true;
  }
  return false;
}

bool JobHasEnded(const std::string& job, const std::string& this_job) {
  if (job.empty()) return false;
  const LeaseJob owner = ParseJob(job);
  const LeaseJob ours = ParseJob(this_job);
  if (owner.cluster != ours.cluster) return false;
  if (owner.id == ours.id) return owner.restart < ours.restart;
  const auto shown = Ask({"scontrol", "-o", "show", "job", owner.id});
  if (shown.ok()) return ShownJobHasEnded(*shown, owner.restart);
  return absl::StrContains(shown.status().message(), "Invalid job id");  // over and forgotten
}

}  // namespace anyorder::launcher
