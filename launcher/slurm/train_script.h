// The batch script of a training job: sbatch options, then `anyorder launch --backend slurm`, then
// what follows from its exit status.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace anyorder::launcher {

struct TrainScript {
  std::string head;     // #SBATCH lines (sbatch.h)
  std::string written;  // the command that wrote the script, for its reader
  std::string anyorder;
  std::string run_dir;      // absolute
  std::string script;       // where the script is kept
  std::string environment;  // file that is sourced first if it is there
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  bool has_pmix = false;  // srun starts the ranks, with this:
  std::string mpi_reason;
  std::vector<std::string> launch;      // more options of launch
  std::optional<int64_t> requeue_exit;  // the site requeues a job that ends so
};

std::string TrainScriptText(const TrainScript& script);

}  // namespace anyorder::launcher
