// `anyorder doctor`: checks a cluster, or this machine, before the first job. What is checked is in
// slurm/doctor.py, which this program becomes.

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/json_members.h"
#include "core/base/named_path.h"
#include "core/base/status.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/slurm/sbatch.h"

namespace anyorder::launcher {
namespace {

struct DoctorOptions {
  std::string run_dir;  // "": none, with --local
  int64_t nodes = 2;
  int64_t ranks_per_node = 1;
  int64_t gpus_per_node = 0;
  std::string partition, account;
  std::string mpi = "auto";
  std::string environment;
  double checkpoint_gib = 0;
  int64_t wait_seconds = 1800;
  int64_t time_minutes = 15;
  bool local = false;
  bool json = false;
  std::vector<std::string> sbatch;  // words after --
};

// Next to bin/ where the programs are installed, two folders above it in a build.
absl::StatusOr<std::string> FindScript() {
  for (const char* place : {"/../slurm/doctor.py", "/../../slurm/doctor.py"}) {
    const std::string script = ProgramDirectory() + place;
    if (IsThere(script)) return script;
  }
  return NotFound("there is no slurm/doctor.py next to or above '", ProgramDirectory(),
                  "'; install the programs as a whole");
}

// Returns on errors only. The names in the object are those that doctor.py reads.
absl::Status BecomeDoctor(const DoctorOptions& options) {
  if (options.run_dir.empty() && !options.local) {
    return InvalidArgument(
        "--run-dir is required: where runs will live; --local without it checks this machine "
        "alone");
  }
  ASSIGN_OR_RETURN(std::string script, FindScript());
  const auto absolute = [](const std::string& path) {
    std::error_code ignored;
    return path.empty() ? path
                        : std::filesystem::absolute(path, ignored).lexically_normal().string();
  };
  std::string words = DumpJson(nlohmann::json{{"nodes", options.local ? 1 : options.nodes},
                                              {"ranks_per_node", options.ranks_per_node},
                                              {"gpus_per_node", options.gpus_per_node},
                                              {"partition", options.partition},
                                              {"account", options.account},
                                              {"mpi", options.mpi},
                                              {"checkpoint_gib", options.checkpoint_gib},
                                              {"wait", options.wait_seconds},
                                              {"time", options.time_minutes},
                                              {"local", options.local},
                                              {"json", options.json},
                                              {"sbatch", options.sbatch}},
                               -1, /*ensure_ascii=*/true);
  // Apart: JSON cannot hold the names of files that are not UTF-8.
  std::string run_dir = absolute(options.run_dir), environment = absolute(options.environment);
  std::string python = "python3", bin = ProgramDirectory();
  char* const arguments[] = {python.data(),  script.data(),      words.data(), bin.data(),
                             run_dir.data(), environment.data(), nullptr};
  ::execvp(arguments[0], arguments);
  return ErrnoStatus("start", "python3, which the doctor is written in");
}

}  // namespace

Subcommand DeclareDoctor(CLI::App& front) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = AddCommand(
      front, "doctor", "Check a Slurm cluster, or this machine, before the first job.",
      {"anyorder doctor /shared/runs/a --nodes 2 --ranks-per-node 4", "anyorder doctor --local"});
  constexpr int64_t kMost = int64_t{1} << 20;
  // Further arguments are sbatch's.
  AddRunDir(
      command, options->run_dir,
      "where runs will live; keeps .launch/nodes.json, nothing else (not needed with --local)")
      ->required(false)
      ->check(IsUsable(PathUse::kMakeDirectory))
      ->allow_extra_args(false);
  command->add_flag("--local", options->local, "no Slurm: check this machine alone");
  AddCount(command, "--nodes", options->nodes, "nodes of the job", 1, kMost);
  AddCount(command, "--ranks-per-node", options->ranks_per_node, "ranks on each", 1, kMost);
  AddCount(command, "--gpus-per-node", options->gpus_per_node, "GPUs on each", 0, kMost);
  AddAccounting(command, options->partition, options->account);
  AddChoice(command, "--mpi", options->mpi, {"auto", "srun", "mpirun"},
            "program that starts the ranks");
  AddPath(command, "--environment", options->environment,
          "shell file that the job sources, as for submit (default: RUN-DIR/slurm/environment.sh)",
          PathUse::kReadFile);
  AddNumber(command, "--checkpoint-gib", options->checkpoint_gib,
            "size of a checkpoint: is there space for three?", AtLeast(0))
      ->default_str("");
  AddCount(command, "--wait", options->wait_seconds, "seconds that the job may wait in the queue",
           1);
  AddCount(command, "--time", options->time_minutes, "time limit of the job, in minutes", 1);
  command->add_flag("--json", options->json, "print findings and facts as one JSON object");
  command->add_option("sbatch-options", options->sbatch, "after --: more options of sbatch")
      ->type_name("OPTION");
  return {command, [options] { return Report(BecomeDoctor(*options)); }};
}

}  // namespace anyorder::launcher
