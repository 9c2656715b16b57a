#include "launcher/slurm/prep_job.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "core/base/file_system.h"
#include "core/base/monotonic_clock.h"
#include "core/base/status.h"
#include "launcher/process/child_process.h"
#include "launcher/process/new_files.h"
#include "launcher/slurm/sbatch.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

class PrepSubmission {
 public:
  explicit PrepSubmission(const PrepJob& job) : job_(job) {}

  absl::Status Run() {
    RETURN_IF_ERROR(Compose());
    if (job_.dry_run) return Print();
    RETURN_IF_ERROR(MakeDirectories(directory_));
    RETURN_IF_ERROR(WriteFileAtomically(script_, text_));
    const absl::Status sent = Send();
    if (!sent.ok()) Cancel();
    return sent;
  }

 private:
  absl::Status Compose() {
    for (const std::string& word : job_.words) RETURN_IF_ERROR(CheckPath("anyorder prep", word));
    ASSIGN_OR_RETURN(users_, ParseSbatchWords(job_.sbatch));
    std::error_code error;
    const fs::path here = fs::current_path(error);
    const std::string output = (here / job_.output).lexically_normal().string();
    directory_ = absl::StrCat(output.substr(0, output.find_last_not_of('/') + 1), ".slurm");
    script_ = directory_ + "/prep.sbatch";
    RETURN_IF_ERROR(CheckEnvironmentFile(directory_ + "/environment.sh"));
    const std::vector<SbatchOption> ours = {
        OurOption("--nodes", "1", ""), OurOption("--ntasks", "1", ""),
        OurOption("--chdir", here.string(), "Paths of the command line begin there:"),
        OurOption("--open-mode", "append", ""),
        OurOption("--requeue", "",
                  "A lost node, or a job of higher priority, costs the units being encoded:")};
    text_ =
        FillScript(kPrepScript,
                   {{"TASKS", absl::StrCat(job_.tasks)},
                    {"OUTPUT", ShellQuote(output)},
                    {"SBATCH_LINES", ScriptHead(ours, users_)},
                    {"DIRECTORY", ShellQuote(directory_)},
                    {"CHECK_ENVIRONMENT", kCheckEnvironment},
                    {"PROGRAM", ShellQuote(ProgramDirectory() + "/anyorder-prep")},
                    {"OPTIONS", ShellCommand(job_.words)},
                    {"WORKERS", job_.has_workers ? "" : "--workers \"${SLURM_CPUS_ON_NODE:-1}\""}});
    return absl::OkStatus();
  }

  absl::Status Print() const {
    std::printf("%s\n# Nothing was written or submitted (--dry-run). The commands would be:\n",
                text_.c_str());
    for (const auto& [part, after] :
         {std::pair{"plan", ""}, {"slice", "PLAN-JOB"}, {"merge", "SLICE-JOB"}})
      std::printf("# %s\n", ShellCommand(SbatchWords(Arguments(part, after))).c_str());
    return absl::OkStatus();
  }

  absl::Status Send() {
    std::string after;
    for (const char* part : {"plan", "slice", "merge"}) {
      ASSIGN_OR_RETURN(after, Sbatch(Arguments(part, after)));
      jobs_.push_back(after);
    }
    std::fprintf(
        stderr,
        "submitted jobs %s (plan), %s (array of %llu slices), %s (merge)\nscript %s\nlogs   "
        "%s\nthen   anyorder submit --after %s ...\n",
        jobs_[0].c_str(), jobs_[1].c_str(), static_cast<unsigned long long>(job_.tasks),
        jobs_[2].c_str(), script_.c_str(), directory_.c_str(), jobs_[2].c_str());
    std::printf("%s\n", jobs_[2].c_str());
    return absl::OkStatus();
  }

  void Cancel() const {
    if (jobs_.empty()) return;
    std::vector<std::string> words = {"scancel"};
    words.insert(words.end(), jobs_.begin(), jobs_.end());
    // The refusal that led here is what the user needs to know.
    RunCaptured(words, MonotonicNow() + absl::Seconds(20)).status().IgnoreError();
  }

  // What the user says after -- wins here, too, although a command line would win over the script.
  std::vector<std::string> Arguments(const std::string& part, const std::string& after) const {
    std::vector<std::string> arguments;
    const std::string log =
        part == "slice" ? "/slice-%A-%a.log" : absl::StrCat("/", part, "-%j.log");
    if (!HasOption(users_, "--output"))
      arguments.push_back(absl::StrCat("--output=", SlurmPath(directory_), log));
    if (!HasOption(users_, "--job-name"))
      arguments.push_back(absl::StrCat("--job-name=anyorder-", part));
    if (part == "slice") {
      arguments.push_back(absl::StrCat("--array=1-", job_.tasks));
      arguments.push_back(absl::StrCat("--dependency=afterok:", after));
      arguments.push_back("--kill-on-invalid-dep=yes");
    } else if (part == "merge") {
      // Also after slices that failed: it names them.
      arguments.push_back(absl::StrCat("--dependency=afterany:", after));
    }
    arguments.push_back(script_);
    arguments.push_back(part);
    return arguments;
  }

  const PrepJob& job_;
  std::vector<SbatchOption> users_;
  std::string directory_;
  std::string script_;
  std::string text_;
  std::vector<std::string> jobs_;  // plan, slices, merge
};

}  // namespace

std::vector<std::string> WordsForTasks(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc && std::strcmp(argv[i], "--") != 0; ++i) {
    const absl::string_view word = argv[i];
    if (word == "--slurm") {
      ++i;
    } else if (word != "--dry-run" && !absl::StartsWith(word, "--slurm=")) {
      words.emplace_back(word);
    }
  }
  return words;
}

absl::Status SubmitPrep(const PrepJob& job) {
  if (!job.dry_run) RETURN_IF_ERROR(CheckHasSbatch());
  return PrepSubmission(job).Run();
}

}  // namespace anyorder::launcher
