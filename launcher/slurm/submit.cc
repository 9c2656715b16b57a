// `anyorder submit`: a training run as a Slurm job that comes back into the queue until it is
// finished.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "core/base/counted.h"
#include "core/base/crc32c.h"
#include "core/base/file_system.h"
#include "core/base/monotonic_clock.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/unique_fd.h"
#include "core/base/whole_file.h"
#include "core/train/run/ledger.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"
#include "launcher/slurm/sbatch.h"
#include "launcher/slurm/slurm_commands.h"
#include "launcher/start/start_request.h"

namespace anyorder::launcher {
namespace {

namespace fs = std::filesystem;

struct SubmitOptions : StartRequest {  // its `ranks` follow from nodes and ranks_per_node
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  std::optional<int64_t> cpus_per_rank;
  std::optional<int64_t> gpus_per_node;
  std::string time;  // as sbatch has it; "", like the next two: the cluster's default
  std::string partition;
  std::string account;
  // Before the time limit; default: what the ledger's commits say, else 120.
  std::optional<int64_t> signal_seconds;
  std::string after;         // job that comes first
  std::string mpi = "auto";  // or srun, mpirun
  std::string environment;   // file that the job sources; "": RUN-DIR/slurm/environment.sh
  // Status that the site requeues (RequeueExit); default: scontrol requeue.
  std::optional<int64_t> requeue_exit;
  bool dry_run = false;
  std::vector<std::string> sbatch;  // words after --
  std::string command;              // the whole command line, for the script's reader
};

constexpr absl::Duration kAnswerLimit = absl::Seconds(20);
constexpr int64_t kDefaultSignalSeconds = 120;
constexpr int64_t kLeastSignalSeconds = 60;

// A directory of ours in the run directory, locked by file `lock` while the descriptor lives: two
// submissions of one run must see each other's job.
absl::StatusOr<UniqueFd> LockDirectory(const std::string& path, const std::string& lock) {
  RETURN_IF_ERROR(MakeDirectories(path));
  UniqueFd fd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus("create", lock);
  const bool is_locked = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
  // A file system without locks is used without them.
  if (!is_locked && errno != EWOULDBLOCK) return fd;
  // A submission that was refused may have removed the file before it was locked here.
  struct stat ours {
  }, named{};
  const bool is_named = ::fstat(fd.get(), &ours) == 0 && ::stat(lock.c_str(), &named) == 0 &&
                        ours.st_ino == named.st_ino;
  if (is_locked && is_named) return fd;
  return AlreadyExists("another `anyorder submit` works on '", path,
                       "'; look at its job before another one");
}

// What a submission makes: taken back by the destructor unless Slurm has the job.
class Traces {
 public:
  ~Traces() {
    if (is_kept_) return;
    for (const auto& [path, content] : files_) {
      if (content) {
        WriteFileAtomically(path, *content).IgnoreError();
      } else {
        ::unlink(path.c_str());
      }
    }
    for (const std::string& directory : directories_) ::rmdir(directory.c_str());  // if empty
  }

  // Call each before it is made.
  void NoteFile(const std::string& path) {
    absl::StatusOr<std::string> before = ReadWholeFile(path, kMaxSettingsBytes);
    files_.emplace_back(path, before.ok() ? std::optional(*std::move(before)) : std::nullopt);
  }
  void NoteDirectories(const std::string& path) {
    for (fs::path at = path; !at.empty() && !IsThere(at); at = at.parent_path())
      directories_.push_back(at.string());
  }
  void Keep() { is_kept_ = true; }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> files_;  // path, content before
  std::vector<std::string> directories_;                                   // innermost first
  bool is_kept_ = false;
};

// What the cluster offers, asked here; the job starts the ranks that way on its nodes.
absl::StatusOr<MpiChoice> ChooseStarter(const std::string& wanted) {
  std::string list;
  if (wanted != "mpirun" && HasProgram("srun")) {
    ASSIGN_OR_RETURN(const CapturedOutput answer,
                     RunCaptured({"srun", "--mpi=list"}, MonotonicNow() + kAnswerLimit));
    if (!answer.is_late) list = answer.text;
  }
  // Whether the nodes have an mpirun only the job can tell: here its module need not be loaded.
  return ChooseMpi(wanted, list, /*has_mpirun=*/true);
}

class Submission {
 public:
  explicit Submission(const SubmitOptions& options) : options_(options) {}

  // Prints the job's number on stdout, what was chosen and why on stderr. With `dry_run` prints the
  // script and the sbatch command, and writes and submits nothing. Errors: those of ResolveStart
  // and Sbatch; AlreadyExists, naming the job, if one of the same run waits or runs. A refusal,
  // sbatch's too, leaves nothing behind.
  absl::Status Run() {
    if (!options_.dry_run) RETURN_IF_ERROR(CheckHasSbatch());
    RETURN_IF_ERROR(Check());
    ASSIGN_OR_RETURN(starter_, ChooseStarter(options_.mpi));
    RETURN_IF_ERROR(CheckJobs());  // before the directory is made
    if (options_.dry_run) {
      Compose();
      std::printf(
          "%s\n# Nothing was written or submitted (--dry-run). The command would be:\n# %s\n",
          script_text_.c_str(), ShellCommand(SbatchWords(Arguments())).c_str());
      return absl::OkStatus();
    }
    traces_.NoteDirectories(slurm_);
    const std::string lock_path = slurm_ + "/.lock";
    if (!IsThere(lock_path)) traces_.NoteFile(lock_path);
    ASSIGN_OR_RETURN(lock_, LockDirectory(slurm_, lock_path));
    RETURN_IF_ERROR(CheckJobs());  // no other submit runs now
    Compose();
    return Send();
  }

 private:
  absl::Status Check() {
    for (const auto& [name, path] : {std::pair{"--run-dir", options_.run_dir},
                                     {"--config", options_.config},
                                     {"--environment", options_.environment}})
      RETURN_IF_ERROR(CheckPath(name, path));
    StartRequest request = options_;
    request.ranks = options_.nodes * options_.ranks_per_node;
    request.may_lack_dataset = !options_.after.empty();
    // Options after -- may ask for other nodes and ranks.
    if (options_.sbatch.empty())
      request.batch_nodes = {options_.partition, options_.ranks_per_node, request.ranks};
    ASSIGN_OR_RETURN(const RunConfig config, ResolveStart(request));
    RETURN_IF_ERROR(CheckResume(options_.run_dir, options_.resume));
    if (!HasDataset(config)) {
      Note(absl::StrCat("data.shards '", config.data.shards, "' holds no dataset yet; job ",
                        options_.after, " is to make it, and it is checked when this job starts"));
    }
    ASSIGN_OR_RETURN(users_, ParseSbatchWords(options_.sbatch));
    std::error_code error;
    run_dir_ = fs::weakly_canonical(fs::absolute(options_.run_dir, error), error).string();
    if (error) return ErrnoStatus("resolve", options_.run_dir, error.value());
    slurm_ = run_dir_ + "/slurm";
    script_path_ = slurm_ + "/train.sbatch";
    // As it was checked, and by a name of its own: a job that comes back into the queue must find
    // it as it was.
    config_text_ = config.ToText();
    config_path_ = absl::StrCat(
        slurm_, "/config-",
        absl::Hex(Crc32c(config_text_.data(), std::ssize(config_text_)), absl::kZeroPad8), ".toml");
    environment_ = options_.environment.empty()
                       ? slurm_ + "/environment.sh"
                       : fs::absolute(options_.environment, error).lexically_normal().string();
    RETURN_IF_ERROR(CheckEnvironmentFile(environment_));
    if (config.run.is_private) KeepFilesPrivate();
    ASSIGN_OR_RETURN(ledger_, ReadLedger(RunDirectory(run_dir_)));
    return CheckTimes();
  }

  absl::Status CheckTimes() {
    const int64_t budget = Summarize(ledger_).stop_seconds;
    signal_seconds_ = options_.signal_seconds.value_or(
        budget >= 0 ? std::max(budget, kLeastSignalSeconds) : kDefaultSignalSeconds);
    if (signal_seconds_ < budget) {
      Note(absl::StrCat("--signal-seconds ", signal_seconds_, " is less than the ", budget,
                        " s that a stop of this run may take (ledger.jsonl); its last steps may be "
                        "lost"));
    }
    if (options_.time.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const int64_t limit, Annotate(ParseTimeLimit(options_.time), "--time"));
    if (limit == 0 || limit > signal_seconds_) return absl::OkStatus();
    return InvalidArgument("--time ", options_.time, " is not longer than the ", signal_seconds_,
                           " s that the run gets to save and stop; raise it, "
                           "or lower --signal-seconds");
  }

  // Refuses a second job of a run that has one, unless it is to come after that one.
  absl::Status CheckJobs() {
    ASSIGN_OR_RETURN(ledger_, ReadLedger(RunDirectory(run_dir_)));
    const std::vector<int64_t> ids = SlurmJobsOf(run_dir_, ledger_);
    bool is_own = false;
    for (const int64_t id : ids) is_own = is_own || options_.after == absl::StrCat(id);
    if (!options_.after.empty() && HasOption(users_, "--dependency")) {
      Note("the --dependency after -- replaces that of --after");
    } else if (is_own) {
      // The run resumes however that job ends.
      dependency_ = {absl::StrCat("--dependency=afterany:", options_.after)};
    } else if (!options_.after.empty()) {
      // A job that fails made nothing to train on; then this one must not wait for ever.
      dependency_ = {absl::StrCat("--dependency=afterok:", options_.after),
                     "--kill-on-invalid-dep=yes"};
    }
    if (ids.empty() || (options_.dry_run && !HasProgram("scontrol"))) return absl::OkStatus();
    const SlurmView view = AskSlurm(ids, kAnswerLimit);
    if (!view.problem.empty() && !options_.dry_run)
      return Unavailable("cannot tell whether another job of this run waits or runs: ",
                         view.problem);
    const auto active = std::find_if(view.jobs.begin(), view.jobs.end(), [](const SlurmJob& job) {
      return job.IsQueued() || job.IsRunning();
    });
    if (active == view.jobs.end() || options_.after == absl::StrCat(active->id))
      return absl::OkStatus();
    return AlreadyExists("job ", active->id, " of this run is ", active->state,
                         "; wait for it, cancel it (scancel ", active->id,
                         "), or submit one that continues after it (--after ", active->id, ")");
  }

  void Compose() {
    std::vector<std::string> launch = {"--config", config_path_, "--ranks-per-node",
                                       absl::StrCat(options_.ranks_per_node)};
    if (options_.resume != ResumeMode::kAuto)
      launch.insert(launch.end(), {"--resume", EnumName(options_.resume)});
    if (options_.allow_schedule_change) launch.push_back("--allow-schedule-change");
    script_text_ = FillScript(
        kTrainScript,
        {{"NODES", absl::StrCat(options_.nodes)},
         {"RANKS", absl::StrCat(options_.ranks_per_node)},
         {"SCRIPT", ShellQuote(script_path_)},
         {"COMMAND", options_.command},
         {"SBATCH_LINES", ScriptHead(OurOptions(), users_)},
         {"ANYORDER", ShellQuote(ProgramDirectory() + "/anyorder")},
         {"RUN", ShellQuote(run_dir_)},
         {"ENVIRONMENT", ShellQuote(environment_)},
         {"CHECK_ENVIRONMENT", kCheckEnvironment},
         {"MPI_REASON", starter_.reason},
         {"MPI", starter_.plugin.empty() ? "mpirun" : "srun"},
         {"LAUNCH_OPTIONS", ShellCommand(launch)},
         {"REQUEUE_EXIT", options_.requeue_exit ? absl::StrCat(*options_.requeue_exit) : ""}});
  }

  std::vector<SbatchOption> OurOptions() const {
    std::vector<SbatchOption> ours = {
        OurOption("--job-name", "anyorder-" + PlaceName(run_dir_), ""),
        OurOption("--nodes", absl::StrCat(options_.nodes), ""),
        OurOption("--ntasks-per-node", absl::StrCat(options_.ranks_per_node),
                  "Ranks on each node:")};
    const auto add_number = [&ours](const std::string& name, const std::optional<int64_t>& value) {
      if (value) ours.push_back(OurOption(name, absl::StrCat(*value), ""));
    };
    const auto add_word = [&ours](const std::string& name, const std::string& value) {
      if (!value.empty()) ours.push_back(OurOption(name, value, ""));
    };
    add_number("--cpus-per-task", options_.cpus_per_rank);
    add_number("--gpus-per-node", options_.gpus_per_node);
    add_word("--time", options_.time);
    add_word("--partition", options_.partition);
    add_word("--account", options_.account);
    ours.push_back(OurOption("--output", SlurmPath(slurm_) + "/job-%j.log",
                             "One log for all starts of the job:"));
    ours.push_back(OurOption("--open-mode", "append", ""));
    ours.push_back(OurOption("--requeue", "",
                             "Back into the queue when preempted or when its first node is lost:"));
    ours.push_back(OurOption(
        "--no-kill", "",
        "A lost node ends the step, not the job: the launcher continues on the nodes left:"));
    ours.push_back(OurOption("--signal", absl::StrCat("B:USR1@", signal_seconds_),
                             "The warning before the time limit, in seconds; Slurm may give it up "
                             "to a minute earlier:"));
    return ours;
  }

  std::vector<std::string> Arguments() const {
    std::vector<std::string> arguments = dependency_;
    arguments.push_back(script_path_);
    return arguments;
  }

  absl::Status Send() {
    for (const std::string& path : {config_path_, script_path_}) traces_.NoteFile(path);
    RETURN_IF_ERROR(WriteFileAtomically(config_path_, config_text_));
    RETURN_IF_ERROR(WriteFileAtomically(script_path_, script_text_));
    const absl::StatusOr<std::string> submitted = Sbatch(Arguments());
    // Otherwise the job may be there, although Slurm did not say so.
    if (!absl::IsInvalidArgument(submitted.status()) && !absl::IsUnavailable(submitted.status()))
      traces_.Keep();
    RETURN_IF_ERROR(submitted.status());
    const std::string& job = *submitted;
    // What this job was submitted with; by its name `status` finds the job while it waits.
    const absl::Status kept =
        WriteFileAtomically(absl::StrCat(slurm_, "/job-", job, ".sbatch"), script_text_);
    if (!kept.ok()) Note(absl::StrCat("job ", job, " is submitted, but: ", kept.message()));
    std::fprintf(stderr,
                 "submitted job %s: %s x %s; %s\nscript %s\nlog    "
                 "%s/job-%s.log\nwatch  anyorder status "
                 "--run-dir %s --watch\n",
                 job.c_str(), Counted(options_.nodes, "node").c_str(),
                 Counted(options_.ranks_per_node, "rank").c_str(), starter_.reason.c_str(),
                 script_path_.c_str(), slurm_.c_str(), job.c_str(), ShellQuote(run_dir_).c_str());
    std::printf("%s\n", job.c_str());
    return absl::OkStatus();
  }

  UniqueFd lock_;  // before traces_: it is released after they are taken back
  Traces traces_;
  const SubmitOptions& options_;
  std::string run_dir_;  // absolute
  std::string slurm_;    // run_dir/slurm
  std::vector<LedgerRecord> ledger_;
  std::string config_text_;
  std::string config_path_;
  std::string environment_;
  std::string script_path_;
  std::string script_text_;
  int64_t signal_seconds_ = 0;
  MpiChoice starter_;
  std::vector<SbatchOption> users_;
  std::vector<std::string> dependency_;  // words for sbatch
};

void DeclareRun(CLI::App* command, SubmitOptions* options) {
  AddPath(command, "--config", options->config, "TOML file (default: the run's frozen one)",
          PathUse::kReadConfig);
  // Further arguments are sbatch's.
  AddRunDir(command, options->run_dir, "run directory, on a file system that all nodes share")
      ->check(IsUsable(PathUse::kMakeDirectory))
      ->allow_extra_args(false);
  AddSettings(command, options->overrides);
  AddEnum(command, "--resume", options->resume, "whether to resume from the newest checkpoint");
  command->add_flag("--allow-schedule-change", options->allow_schedule_change,
                    "resume with other train.steps or learning rates; recorded in the ledger");
}

void DeclareJob(CLI::App* command, SubmitOptions* options) {
  constexpr int64_t kMost = int64_t{1} << 20;
  AddCount(command, "--nodes", options->nodes, "nodes", 1, kMost);
  AddCount(command, "--ranks-per-node", options->ranks_per_node, "MPI ranks per node", 1, kMost);
  AddCount(command, "--cpus-per-rank", options->cpus_per_rank, "CPUs per rank", 1, kMost);
  AddCount(command, "--gpus-per-node", options->gpus_per_node, "GPUs per node", 1, kMost);
  command->add_option("--time", options->time, "time limit of each job: minutes, H:M:S or D-H:M:S")
      ->check(IsNotEmpty())
      ->type_name("TIME");
  AddAccounting(command, options->partition, options->account);
  AddCount(command, "--signal-seconds", options->signal_seconds,
           "seconds before the time limit to send SIGUSR1 (default: measured, else 120)", 1, 65535);
  command
      ->add_option("--after", options->after,
                   "job that must finish first, such as that of `anyorder prep --slurm`")
      ->check(CLI::Validator(
          [](std::string& text) {
            const bool is_number = !text.empty() && text.size() < 20 &&
                                   text.find_first_not_of("0123456789") == std::string::npos;
            return is_number ? std::string() : text + " is not a job number";
          },
          ""))
      ->type_name("JOB");
  AddChoice(command, "--mpi", options->mpi, {"auto", "srun", "mpirun"},
            "program that starts the ranks");
  AddPath(command, "--environment", options->environment,
          "shell file that the job sources (default: RUN-DIR/slurm/environment.sh)",
          PathUse::kReadFile);
  AddCount(command, "--requeue-exit", options->requeue_exit,
           "exit with this status of the site's RequeueExit instead of calling scontrol requeue", 1,
           255);
  command->add_flag("--dry-run", options->dry_run,
                    "print the batch script; write and submit nothing");
  command->add_option("sbatch-options", options->sbatch, "after --: more options of sbatch")
      ->type_name("OPTION");
}

}  // namespace

Subcommand DeclareSubmit(CLI::App& front) {
  const auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = AddCommand(
      front, "submit", "Train in a Slurm job that requeues itself until the run is finished.",
      {"anyorder submit --config configs/xlnet-base.toml --run-dir /shared/runs/a --nodes 2 "
       "--ranks-per-node 8 --gpus-per-node 8 --time 8:00:00",
       "anyorder submit /shared/runs/a --dry-run -- --qos=high"});
  DeclareRun(command, options.get());
  DeclareJob(command, options.get());
  return {command, [options] {
            options->command = TypedCommand();
            return Report(Submission(*options).Run());
          }};
}

}  // namespace anyorder::launcher
