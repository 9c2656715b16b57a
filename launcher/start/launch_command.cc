// The command line of `anyorder launch`.

#include <unistd.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/log.h"
#include "core/base/terminal.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"
#include "launcher/start/launch.h"

namespace anyorder::launcher {
namespace {

struct LaunchLine {
  LaunchOptions options;
  std::string resume = "auto";
  CLI::Option* ranks = nullptr;
};

int RunLaunch(const LaunchLine& line) {
  if (line.options.backend == "slurm" && line.ranks->count() > 0) {
    return Report(absl::InvalidArgumentError(
        "--ranks is for --backend local; with --backend slurm use --ranks-per-node"));
  }
  const absl::StatusOr<ResumeMode> mode = ParseResumeMode(line.resume);
  if (!mode.ok()) return Report(mode.status());
  LaunchOptions options = line.options;
  options.resume = *mode;
  options.progress_on_terminal = TakesEscapes(STDERR_FILENO);
  SetLogName("launch");
  const absl::StatusOr<int> exit_status = Launch(options);
  return exit_status.ok() ? *exit_status : Report(exit_status.status());
}

}  // namespace

Subcommand DeclareLaunch(CLI::App& front) {
  const auto line = std::make_shared<LaunchLine>();
  LaunchOptions* options = &line->options;
  CLI::App* command = AddCommand(
      front, "launch", "Train on this machine or in a Slurm job; restart after crashes.",
      {"anyorder launch --config configs/xlnet-tiny.toml --run-dir runs/a --ranks 2 --set "
       "data.shards=shards",
       "anyorder launch --run-dir runs/a        # resume the run"});
  AddPath(command, "--config", options->config, "TOML file (default: the run's frozen one)");
  AddRunDir(command, options->run_dir, "directory that everything of the run is written to");
  AddChoice(command, "--backend", options->backend, {"local", "slurm"},
            "where ranks run: on this machine, or on the nodes of the surrounding Slurm job");
  line->ranks =
      AddCount(command, "--ranks", options->ranks, "local: MPI ranks")->capture_default_str();
  AddCount(command, "--ranks-per-node", options->ranks_per_node,
           "slurm: most ranks per node (default: the job's tasks per node)", 1, int64_t{1} << 20)
      ->excludes(line->ranks);
  AddChoice(command, "--mpi", options->mpi, {"auto", "srun", "mpirun"},
            "slurm: program that starts the ranks");
  AddChoice(command, "--resume", line->resume, {"auto", "required", "never"},
            "whether to resume from the newest checkpoint");
  command->add_flag("--allow-schedule-change", options->allow_schedule_change,
                    "resume with other train.steps or learning rates; recorded in the ledger");
  AddSettings(command, options->overrides);
  return {command, [line] { return RunLaunch(*line); }};
}

}  // namespace anyorder::launcher
