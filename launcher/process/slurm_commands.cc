#include "launcher/process/slurm_commands.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

#include "core/base/status.h"
#include "launcher/process/captured_program.h"
#include "launcher/process/slurm_job.h"

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

absl::StatusOr<std::string> Ask(const std::vector<std::string>& arguments) {
  std::string output;
  ANYORDER_RETURN_IF_ERROR(RunCommand(arguments, kAnswerLimit, &output));
  return output;
}

}  // namespace

absl::Status RunCommand(const std::vector<std::string>& arguments, absl::Duration limit,
                        std::string* output) {
  output->clear();
  ANYORDER_ASSIGN_OR_RETURN(CapturedOutput got, RunCaptured(arguments, absl::Now() + limit));
  *output = std::move(got.text);
  const std::string what = absl::StrCat("'", absl::StrJoin(arguments, " "), "'");
  if (got.is_late) {
    return absl::DeadlineExceededError(
        absl::StrCat(what, " did not end within ", absl::FormatDuration(limit)));
  }
  if (got.exit_status == 0) return absl::OkStatus();
  const std::vector<std::string> lines = Lines(*output);
  absl::string_view last = lines.empty() ? "" : absl::string_view(lines.back());
  absl::ConsumePrefix(&last, "anyorder: ");  // of the child that could not become the program
  return absl::UnavailableError(
      absl::StrCat(what, " failed with status ", got.exit_status, last.empty() ? "" : ": ", last));
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

bool JobHasEnded(const std::string& job, const std::string& this_job) {
  if (job.empty()) return false;
  const LeaseJob owner = ParseJob(job);
  const LeaseJob ours = ParseJob(this_job);
  if (owner.cluster != ours.cluster) return false;
  if (owner.id == ours.id) return owner.restart < ours.restart;
  const absl::StatusOr<SlurmJob> shown = ShowSlurmJob(owner.id, absl::Now() + kAnswerLimit);
  return shown.ok() ? shown->HasEnded(owner.restart) : absl::IsNotFound(shown.status());
}

}  // namespace anyorder::launcher
