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
  command->add_option("--config", options->config, "TOML file (default: the run's frozen one)")
      ->check(IsNotEmpty());
  command->add_option("--run-dir", options->run_dir, "on a file system that all nodes share")
      ->required()
      ->check(IsNotEmpty());
  command->add_option("--set", options->overrides, "section.key=value, over the file")
      ->allow_extra_args(false);
  command->add_option("--resume", options->resume, "auto, required or never")
      ->capture_default_str();
  command->add_flag("--allow-schedule-change", options->allow_schedule_change,
                    "resume with other train.steps or learning rates; recorded in the ledger");
}

void DeclareJob(CLI::App* command, SubmitOptions* options) {
  const CLI::Range count(int64_t{1}, int64_t{1} << 20);
  command->add_option("--nodes", options->nodes, "nodes")->check(count)->capture_default_str();
  command->add_option("--ranks-per-node", options->ranks_per_node, "MPI trainer ranks on each")
      ->check(count)
      ->capture_default_str();
  command->add_option("--cpus-per-rank", options->cpus_per_rank, "CPUs")->check(count);
  command->add_option("--gpus-per-node", options->gpus_per_node, "GPUs")->check(count);
  command->add_option("--time", options->time, "limit of one start: minutes, H:M:S or D-H:M:S")
      ->check(IsNotEmpty());
  command->add_option("--partition", options->partition, "partition")->check(IsNotEmpty());
  command->add_option("--account", options->account, "account")->check(IsNotEmpty());
  command
      ->add_option("--signal-seconds", options->signal_seconds,
                   "before the time limit to send SIGUSR1 (default: measured, else 120)")
      ->check(CLI::Range(int64_t{1}, int64_t{65535}));
  command->add_option("--after", options->after, "job that comes first, e.g. `prep --slurm`'s")
      ->check(CLI::Validator(
          [](std::string& text) {
            const bool is_number = !text.empty() && text.size() < 20 &&
                                   text.find_first_not_of("0123456789") == std::string::npos;
            return is_number ? std::string() : text + " is no job number";
          },
          ""));
  command->add_option("--mpi", options->mpi, "who starts the ranks: auto, srun or mpirun")
      ->check(CLI::IsMember({"auto", "srun", "mpirun"}))
      ->capture_default_str();
  command
      ->add_option("--environment", options->environment,
                   "shell file that the job sources (default: RUN-DIR/slurm/environment.sh)")
      ->check(CLI::ExistingFile);
  command
      ->add_option("--requeue-exit", options->requeue_exit,
                   "a status of your site's RequeueExit, instead of scontrol requeue")
      ->check(CLI::Range(int64_t{1}, int64_t{255}));
  command->add_flag("--dry-run", options->dry_run, "print the script, write and submit nothing");
  command->add_option("sbatch-options", options->sbatch, "after --: more options of sbatch");
}

}  // namespace

Subcommand DeclareSubmit(CLI::App& front) {
  const auto options = std::make_shared<SubmitOptions>();
  CLI::App* command = front.add_subcommand("submit", "train in a Slurm job, until it is finished");
  DeclareRun(command, options.get());
  DeclareJob(command, options.get());
  return {command, [options] {
            options->command = ThisCommand();
            return Report(Submit(*options));
          }};
}

}  // namespace anyorder::launcher
