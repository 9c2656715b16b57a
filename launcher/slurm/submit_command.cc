// The command line of `anyorder submit`.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

#include "core/base/whole_file.h"
#include "launcher/process/command_line.h"
#include "launcher/process/subcommand.h"
#include "launcher/slurm/sbatch.h"
#include "launcher/slurm/submit.h"

namespace anyorder::launcher {
namespace {

// As it was typed, for the reader of the script.
std::string ThisCommand() {
  std::string line = ReadWholeFile("/proc/self/cmdline").value_or("anyorder submit");
  if (!line.empty() && line.back() == '\0') line.pop_back();
  const std::vector<std::string> words = absl::StrSplit(line, '\0');
  std::string command = ShellCommand(words);
  std::replace_if(
      command.begin(), command.end(),
      [](char letter) { return absl::ascii_iscntrl(static_cast<unsigned char>(letter)); }, '?');
  return command;
}

void DeclareRun(CLI::App* command, SubmitOptions* options) {
  AddPath(command, "--config", options->config, "TOML file (default: the run's frozen one)");
  AddPath(command, "--run-dir", options->run_dir,
          "run directory, on a file system that all nodes share")
      ->required()
      ->type_name("DIR");
  AddSettings(command, options->overrides);
  AddChoice(command, "--resume", options->resume, {"auto", "required", "never"},
            "whether to resume from the newest checkpoint");
  command->add_flag("--allow-schedule-change", options->allow_schedule_change,
                    "resume with other train.steps or learning rates; recorded in the ledger");
}

void DeclareJob(CLI::App* command, SubmitOptions* options) {
  constexpr int64_t kMost = int64_t{1} << 20;
  AddCount(command, "--nodes", options->nodes, "nodes", 1, kMost)->capture_default_str();
  AddCount(command, "--ranks-per-node", options->ranks_per_node, "MPI ranks per node", 1, kMost)
      ->capture_default_str();
  AddCount(command, "--cpus-per-rank", options->cpus_per_rank, "CPUs per rank", 1, kMost);
  AddCount(command, "--gpus-per-node", options->gpus_per_node, "GPUs per node", 1, kMost);
  command->add_option("--time", options->time, "time limit of each job: minutes, H:M:S or D-H:M:S")
      ->check(IsNotEmpty())
      ->type_name("TIME");
  command->add_option("--partition", options->partition, "Slurm partition")->check(IsNotEmpty());
  command->add_option("--account", options->account, "Slurm account")->check(IsNotEmpty());
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
  command
      ->add_option("--environment", options->environment,
                   "shell file that the job sources (default: RUN-DIR/slurm/environment.sh)")
      ->check(CLI::ExistingFile.description(""))
      ->type_name("PATH");
  AddCount(command, "--requeue-exit", options->requeue_exit,
           "exit with this status of the site's RequeueExit instead of calling scontrol requeue", 1,
           255);
  command->add_flag("--dry-run", options->dry_run,
                    "print the batch script; write and submit nothing");
  command->add_option("sbatch-options", options->sbatch, "after --: more options of sbatch");
}

}  // namespace

Subcommand DeclareSubmit(CLI::App& front) {
  const auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = AddCommand(
      front, "submit", "Train in a Slurm job that requeues itself until the run is finished.",
      {"anyorder submit --config configs/xlnet-base.toml --run-dir /shared/runs/a --nodes 2 "
       "--ranks-per-node 8 --gpus-per-node 8 --time 8:00:00",
       "anyorder submit --run-dir /shared/runs/a --dry-run -- --qos=high"});
  DeclareRun(command, options.get());
  DeclareJob(command, options.get());
  return {command, [options] {
            options->command = ThisCommand();
            return Report(Submit(*options));
          }};
}

}  // namespace anyorder::launcher
