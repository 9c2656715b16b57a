// The command line of `anyorder launch`.

#include <unistd.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/log.h"
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
  options.progress_on_terminal = ::isatty(STDERR_FILENO) == 1;
  SetLogName("launch");
  const absl::StatusOr<int> exit_status = Launch(options);
  return exit_status.ok() ? *exit_status : Report(exit_status.status());
}

}  // namespace

Subcommand DeclareLaunch(CLI::App& front) {
  const auto line = std::make_shared<LaunchLine>();
  LaunchOptions* options = &line->options;
  CLI::App* command =
      front.add_subcommand("launch", "train here or in a Slurm job, and start again after crashes");
  command->add_option("--config", options->config, "TOML file (default: the run's frozen one)")
      ->check(IsNotEmpty());
  command->add_option("--run-dir", options->run_dir, "where everything of the run is written")
      ->required()
      ->check(IsNotEmpty());
  command
      ->add_option("--backend", options->backend,
                   "local: this machine; slurm: the job this runs in")
      ->check(CLI::IsMember({"local", "slurm"}))
      ->capture_default_str();
  line->ranks = command->add_option("--ranks", options->ranks, "local: MPI trainer ranks")
                    ->capture_default_str();
  command
      ->add_option("--ranks-per-node", options->ranks_per_node,
                   "slurm: at most (default: the job's tasks on a node)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->excludes(line->ranks);
  command->add_option("--mpi", options->mpi, "slurm: who starts the ranks: auto, srun or mpirun")
      ->check(CLI::IsMember({"auto", "srun", "mpirun"}))
      ->capture_default_str();
  command->add_option("--resume", line->resume, "auto, required or never")->capture_default_str();
  command->add_flag("--allow-schedule-change", options->allow_schedule_change,
                    "go on with other train.steps or learning rates; the ledger keeps it");
  command->add_option("--set", options->overrides, "section.key=value, over the file")
      ->allow_extra_args(false);
  return {command, [line] { return RunLaunch(*line); }};
}

}  // namespace anyorder::launcher
