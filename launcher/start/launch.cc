// `anyorder launch`: runs a training job on this machine, or on the nodes of a Slurm job, and keeps
// it running.
//
// One start of the ranks is an *attempt*. Each gets its own checkpoint service, which outlives
// the ranks and the launcher; the ranks die with the launcher. After a crash the next attempt
// resumes from the newest committed checkpoint.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

#include "ckpt/reader.h"
#include "core/base/bounded_writer.h"
#include "core/base/counted.h"
#include "core/base/file_system.h"
#include "core/base/log.h"
#include "core/base/machine_memory.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "core/base/terminal.h"
#include "core/train/run/ledger.h"
#include "core/train/run/run_config.h"
#include "core/train/run/run_directory.h"
#include "core/train/state/resume.h"
#include "core/train/state/saved_weights.h"
#include "kernels/backends/make_backend.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"
#include "launcher/process/output_relay.h"
#include "launcher/start/held_lease.h"
#include "launcher/start/launch_backend.h"
#include "launcher/start/launch_signals.h"
#include "launcher/start/run_pace.h"
#include "launcher/start/start_request.h"

namespace anyorder::launcher {
namespace {

struct LaunchOptions : StartRequest {  // its `ranks`: of --backend local
  std::string backend = "local";       // or slurm: as steps of the job that this runs in
  bool names_ranks = false;
  int64_t ranks_per_node = 0;  // of --backend slurm; 0: as the job's tasks
  std::string mpi = "auto";    // of --backend slurm: or srun, mpirun
  std::string hosts;           // list or hostfile; "": this machine, or a Slurm job
  std::string rsh;             // of --hosts
  BatchSystem batch;

  bool has_other_machines() const { return backend == "slurm" || !hosts.empty(); }
};

constexpr int kMaxStartsWithoutCommit = 3;

int64_t NewestCommittedStep(const std::string& run_dir) {
  const auto found = ckpt::ListCheckpoints(run_dir);
  const ckpt::CheckpointInfo* const newest = found.ok() ? ckpt::NewestOf(*found) : nullptr;
  return newest == nullptr ? -1 : newest->step;
}

// Whether starting again may help: not for a bad configuration or bad data.
bool MayRestart(int exit_status) {
  return exit_status != kExitUsage && exit_status != kExitData && exit_status != kExitDoNotRestart;
}

// The end that the ranks of a start agreed on, as rank 0 wrote it down; one that says nothing where
// the ledger cannot be read.
std::optional<ledger::Stop> AgreedEnd(const std::string& run_dir, int64_t attempt) {
  const auto records = ReadLedger(RunDirectory(run_dir));
  if (!records.ok()) return ledger::Stop{};
  std::optional<ledger::Stop> end;
  for (const LedgerRecord& record : *records) {
    const auto* stop = record.As<ledger::Stop>();
    if (stop != nullptr && stop->attempt == attempt) end = *stop;
  }
  return end;
}

class Run {
 public:
  Run(const LaunchOptions& options, RunConfig config, RunIdentity identity, Ledger ledger,
      LaunchBackend& backend, HeldLease& lease)
      : options_(options),
        config_(std::move(config)),
        identity_(std::move(identity)),
        ledger_(std::move(ledger)),
        backend_(backend),
        lease_(lease) {}

  absl::StatusOr<int> UntilDone() {
    ASSIGN_OR_RETURN(OutputRelay output,
                     OutputRelay::Open(RunDirectory(options_.run_dir).train_log));
    int64_t committed = NewestCommittedStep(options_.run_dir);
    for (int fruitless = 0;;) {
      RETURN_IF_ERROR(lease_.Check());
      absl::StatusOr<Place> place = backend_.Prepare();
      if (absl::IsUnavailable(place.status()) && options_.backend == "slurm") {
        LogWarning(absl::StrCat(place.status().message(), "; requeue the job for other nodes"));
        return static_cast<int>(kExitRequeue);
      }
      RETURN_IF_ERROR(place.status());
      // That was the machine's fault, and may happen more often than three times.
      if (place->has_lost_nodes) fruitless = 0;
      ASSIGN_OR_RETURN(const int exit_status, RunOnce(*place, output));
      if (exit_status == kExitDone || exit_status == kExitRequeue) return exit_status;
      const int64_t now_committed = NewestCommittedStep(options_.run_dir);
      fruitless = now_committed > committed ? 0 : fruitless + 1;
      committed = now_committed;
      const std::string why =
          absl::StrCat("exit status ", exit_status, output.last_error().empty() ? "" : ": ",
                       output.last_error());
      const auto agreed = AgreedEnd(options_.run_dir, identity_.attempt);
      const bool is_final = agreed && agreed->may_restart == 0;  // would end the same way again
      if (!MayRestart(exit_status) || is_final || NumLaunchSignals() > 0) return exit_status;
      if (fruitless >= kMaxStartsWithoutCommit) {
        return Aborted(fruitless, " starts in a row ended without a new checkpoint, the last with ",
                       why, "; see ", RunDirectory(options_.run_dir).train_log);
      }
      LogWarning(absl::StrCat("the ranks ended with ", why, "; starting again"));
      ++identity_.attempt;
      options_.resume = ResumeMode::kAuto;
    }
  }

 private:
  absl::StatusOr<int> RunOnce(const Place& place, OutputRelay& output) {
    RETURN_IF_ERROR(Record(ledger::Start{identity_.run_id, identity_.attempt, place.ranks,
                                         place.slurm_job, place.slurm_restart, place.nodes}));
    PaceRecorder pace({options_.run_dir, identity_.run_id, identity_.attempt, place.ranks,
                       config_.health.straggler_ratio});
    absl::StatusOr<int> exit_status =
        RunAttempt({options_.run_dir, identity_, place, options_.resume, config_,
                    /*progress_on_terminal=*/TakesEscapes(STDERR_FILENO), &lease_, &pace,
                    /*before_ranks=*/[this] { return FreezeConfig(); }},
                   backend_, output);
    RETURN_IF_ERROR(lease_.Check());
    // The mpirun of Open MPI 5 ends with 0 also where it lost a machine.
    if (exit_status.ok() && *exit_status == kExitDone &&
        !AgreedEnd(options_.run_dir, identity_.attempt)) {
      LogWarning("what started the ranks ended with status 0, but the ranks have not finished");
      exit_status = kExitIo;
    }
    pace.Finish();
    for (const ledger::Straggler& straggler : pace.Stragglers()) RETURN_IF_ERROR(Record(straggler));
    ledger::Exit exit{identity_.attempt,
                      exit_status.ok() ? *exit_status : ExitStatusFor(exit_status.status())};
    if (exit.exit_status == kExitRequeue) {
      // Ranks know only what the launcher passes on to them.
      const std::string signal_name = FirstLaunchSignal();
      if (!signal_name.empty()) exit.detail = absl::StrCat("signal ", signal_name);
    } else if (exit.exit_status != kExitDone) {
      exit.detail =
          exit_status.ok() ? output.last_error() : std::string(exit_status.status().message());
    }
    RETURN_IF_ERROR(Record(exit));
    return exit_status;
  }

  // Once. Not before this start owns the run directory in full, its service included: the ranks of
  // a launcher that only slept may still train, and would restart with what is written here.
  absl::Status FreezeConfig() {
    if (is_frozen_) return absl::OkStatus();
    const RunDirectory paths(options_.run_dir);
    ASSIGN_OR_RETURN(
        const std::optional<ledger::Event> replacement,
        ReplacementRecord(paths, config_, identity_.attempt, options_.allow_schedule_change));
    if (replacement) RETURN_IF_ERROR(Record(*replacement));
    RETURN_IF_ERROR(lease_.Check());
    RETURN_IF_ERROR(WriteFileAtomically(paths.config, config_.ToText()));
    if (replacement) {
      if (const auto* const schedule = std::get_if<ledger::Schedule>(&*replacement))
        Log(absl::StrCat("the schedule changes: ", schedule->detail));
      if (const auto* const change = std::get_if<ledger::Reconfigured>(&*replacement))
        Log(absl::StrCat(
            "nothing was trained with the configuration before, which this one replaces: ",
            change->detail));
    }
    is_frozen_ = true;
    return absl::OkStatus();
  }

  absl::Status Record(const ledger::Event& event) {
    RETURN_IF_ERROR(lease_.Check());
    return ledger_.Append(event);
  }

  LaunchOptions options_;
  const RunConfig config_;
  RunIdentity identity_;
  Ledger ledger_;
  LaunchBackend& backend_;
  HeldLease& lease_;
  bool is_frozen_ = false;
};

absl::StatusOr<std::unique_ptr<LaunchBackend>> MakeLaunchBackend(const LaunchOptions& options,
                                                                 const RunConfig& config) {
  if (!options.hosts.empty())
    return MakeHostsBackend({options.run_dir, options.slots, options.ranks, options.rsh});
  if (options.backend == "local") return MakeLocalBackend(options.run_dir, options.ranks);
  return options.batch.make_backend({options.run_dir, options.ranks_per_node, options.mpi,
                                     /*max_ranks=*/config.train.num_microbatches()});
}

// The ranks of the last start, for those who name none. Of several machines their room decides.
// InvalidArgument if the last start had several machines: this one alone may be no good for it.
absl::Status TakeRanksOfLastStart(LaunchOptions& options) {
  if (options.has_other_machines() || options.names_ranks || options.run_dir.empty())
    return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<ledger::Start> last,
                   LastStartWithoutSlurm(RunDirectory(options.run_dir)));
  if (!last) return absl::OkStatus();
  if (!last->nodes.empty()) {
    return InvalidArgument("the last start ran ", Counted(last->ranks, "rank"), " on ",
                           absl::StrJoin(last->nodes, ", "),
                           "; name its machines with --hosts, or --ranks N for this one alone");
  }
  options.has_ranks_of_last_start = last->ranks > options.ranks;
  options.ranks = std::max(options.ranks, last->ranks);
  return absl::OkStatus();
}

// The exit status of the run: 0 finished, 75 stopped by a signal after a checkpoint, or that of
// ranks that failed in a way that starting again cannot mend (64, 65). Errors: InvalidArgument and
// FailedPrecondition before anything is written; AlreadyExists naming the owner if the run
// directory is in use; Aborted after three starts without a new checkpoint.
absl::StatusOr<int> Launch(const LaunchOptions& given) {
  CatchLaunchSignals();
  LaunchOptions options = given;
  std::error_code error;
  // Processes of other nodes are told this name, and make others of it.
  if (options.has_other_machines() && !options.run_dir.empty()) {
    options.run_dir = std::filesystem::absolute(options.run_dir, error).lexically_normal().string();
    if (error) return ErrnoStatus("resolve", given.run_dir, error.value());
  }
  EnterPhase("reading the configuration and the index of the dataset",
             {.after_request = absl::Seconds(1), .has_written = false});
  RETURN_IF_ERROR(TakeRanksOfLastStart(options));
  if (!options.has_other_machines()) {
    options.room = [ranks = options.ranks](const RunConfig& config) {
      const kernels::DeviceMemory gpus = kernels::MemoryOfDevices(config.train.device);
      return MachineRoom{MachineMemoryBytes(), gpus.bytes, gpus.devices, ranks};
    };
  }
  if (options.backend == "slurm")
    options.batch_nodes = options.batch.nodes_of_job(options.ranks_per_node);
  // Everything that can be refused is refused before anything is written.
  ASSIGN_OR_RETURN(const RunConfig config, ResolveStart(options));
  EnterPhase(absl::StrCat("preparing a start in '", options.run_dir, "'"),
             {.held = absl::Seconds(config.health.start_timeout_seconds)});
  // Ranks elsewhere look for themselves: their machines may have what this one lacks.
  if (!options.has_other_machines()) RETURN_IF_ERROR(kernels::CheckDevice(config.train.device));
  RETURN_IF_ERROR(CheckResume(options.run_dir, options.resume));
  RETURN_IF_ERROR(CheckDivergence(RunDirectory(options.run_dir), config));
  ASSIGN_OR_RETURN(std::unique_ptr<LaunchBackend> backend, MakeLaunchBackend(options, config));

  const RunDirectory paths(options.run_dir);
  if (config.run.is_private) KeepFilesPrivate();
  RETURN_IF_ERROR(MakeDirectories(paths.launch));
  ASSIGN_OR_RETURN(RunIdentity identity, NextIdentity(paths));
  ASSIGN_OR_RETURN(const std::unique_ptr<HeldLease> lease,
                   HeldLease::Acquire(paths, identity, options.batch.job_has_ended));
  if (config.run.is_private) RETURN_IF_ERROR(CloseToOthers(options.run_dir));
  // Rank 0, elsewhere, appends to the other one.
  ASSIGN_OR_RETURN(Ledger ledger, Ledger::Open(options.has_other_machines() ? paths.launcher_ledger
                                                                            : paths.ledger));
  RETURN_IF_ERROR(RecordCreation(paths, identity, config, ledger));
  if (identity.attempt > 1 && NewestCommittedStep(options.run_dir) < 0)
    Log("no start of this run has committed a checkpoint; it begins again at step 0");
  if (options.has_ranks_of_last_start)
    Log(absl::StrCat(options.ranks,
                     " ranks, as the last start had (--ranks takes another number)"));
  absl::StatusOr<int> result =
      Run(options, config, identity, std::move(ledger), *backend, *lease).UntilDone();
  // What lies on the node is the next start's once the lease is released, or lost.
  if (lease->Check().ok()) backend->CleanUp();
  return result;
}

// With --hosts as many ranks as they have room for, unless --ranks says otherwise.
absl::Status CountRanks(LaunchOptions& options) {
  if (options.hosts.empty())
    return options.rsh.empty() ? absl::OkStatus() : InvalidArgument("--rsh is for --hosts");
  if (options.backend == "slurm") {
    return InvalidArgument(
        "--hosts is for machines without Slurm; in a job leave it out: Slurm knows the nodes");
  }
  ASSIGN_OR_RETURN(options.slots, ReadHosts(options.hosts));
  if (options.names_ranks) return absl::OkStatus();
  options.ranks = 0;
  for (const HostSlots& host : options.slots) options.ranks += host.slots;
  return absl::OkStatus();
}

// What resumes a run that was stopped. A Slurm job is requeued by itself.
void TellHowToResume(const LaunchOptions& options) {
  const std::string& run_dir = options.run_dir;
  if (options.backend == "slurm" || !IsThere(RunDirectory(run_dir).config)) return;
  Log(absl::StrCat(
      "stopped; to resume: ", FrontCommand(), " launch ", ShellQuote(run_dir),
      options.hosts.empty() ? "" : absl::StrCat(" --hosts ", ShellQuote(options.hosts))));
}

// What a new user does next.
void TellOfEnd(const LaunchOptions& options) {
  const std::string run_dir = ShellQuote(options.run_dir);
  const absl::StatusOr<std::string> newest =
      ckpt::FindNewest(options.run_dir, /*quarantine_bad=*/false);
  const auto opened = newest.ok() ? ckpt::Checkpoint::Open(*newest) : newest.status();
  const std::string best = opened.ok() ? NoteOfBest(*opened) : "";
  Log(absl::StrCat("finished; ", best, best.empty() ? "" : "; ", "curves as a page: ",
                   FrontCommand(), " report ", run_dir, "; weights for PyTorch: ", FrontCommand(),
                   " export ", run_dir, " --format safetensors --output DIR"));
}

int RunLaunch(LaunchOptions options) {
  if (const absl::Status counted = CountRanks(options); !counted.ok()) return Report(counted);
  if (options.backend == "slurm" && options.names_ranks) {
    return Report(InvalidArgument(
        "--ranks is for --backend local; with --backend slurm use --ranks-per-node"));
  }
  const UnblockedStderr unblocked;
  const absl::StatusOr<int> exit_status = Launch(options);
  if (exit_status.ok() && *exit_status == kExitRequeue) TellHowToResume(options);
  if (exit_status.ok() && *exit_status == kExitDone) TellOfEnd(options);
  return Report(exit_status);
}

}  // namespace

Subcommand DeclareLaunch(CLI::App& front, const BatchSystem& batch) {
  const auto options = std::make_shared<LaunchOptions>();
  options->batch = batch;
  CLI::App* command = AddCommand(
      front, "launch", "Train on this machine or in a Slurm job; restart after crashes.",
      {"anyorder launch --config configs/xlnet-tiny.toml --run-dir runs/a --ranks 2 --set "
       "data.shards=shards",
       "anyorder launch runs/a        # resume the run"});
  AddPath(command, "--config", options->config, "TOML file (default: the run's frozen one)",
          PathUse::kReadConfig);
  AddRunDir(command, options->run_dir, "directory that everything of the run is written to")
      ->check(IsUsable(PathUse::kMakeDirectory));
  AddChoice(command, "--backend", options->backend, {"local", "slurm"},
            "where ranks run: on this machine, or on the nodes of the surrounding Slurm job");
  CLI::Option* ranks =
      AddCount(command, "--ranks", options->ranks,
               "number of MPI ranks (default: all slots of --hosts; without it those of the last "
               "start, or 1)",
               1, int64_t{1} << 20);
  command
      ->add_option(
          "--hosts", options->hosts,
          "hosts and ranks, a:2,b:2 or node[01-04]:2, or an mpirun hostfile; run directory "
          "and programs must have the same paths on all")
      ->check(IsNotEmpty())
      ->type_name("HOSTS");
  command
      ->add_option("--rsh", options->rsh,
                   "hosts: command that reaches another machine (default: ssh)")
      ->check(IsNotEmpty())
      ->type_name("COMMAND");
  AddCount(command, "--ranks-per-node", options->ranks_per_node,
           "slurm: most ranks per node (default: the job's tasks per node)", 1, int64_t{1} << 20)
      ->excludes(ranks);
  AddChoice(command, "--mpi", options->mpi, {"auto", "srun", "mpirun"},
            "slurm: program that starts the ranks");
  AddEnum(command, "--resume", options->resume, "whether to resume from the newest checkpoint");
  command->add_flag("--allow-schedule-change", options->allow_schedule_change,
                    "resume with other train.steps or learning rates; recorded in the ledger");
  AddSettings(command, options->overrides);
  return {command, [options, ranks] {
            options->names_ranks = ranks->count() > 0;
            return RunLaunch(*options);
          }};
}

}  // namespace anyorder::launcher
