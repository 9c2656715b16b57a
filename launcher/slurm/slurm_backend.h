// Service and ranks as steps of the Slurm job that this launcher runs in.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "launcher/process/child_process.h"
#include "launcher/process/output_relay.h"
#include "launcher/slurm/slurm_commands.h"
#include "launcher/start/launch_backend.h"

namespace anyorder::launcher {

// BatchSystem's make_backend.
absl::StatusOr<std::unique_ptr<LaunchBackend>> MakeSlurmBackend(const JobOptions& options);

BatchNodes NodesOfThisJob(int64_t ranks_per_node);

// What `anyorder launch` knows of Slurm.
inline constexpr BatchSystem kSlurm = {&MakeSlurmBackend, &JobHasEnded, &NodesOfThisJob};

// How many ranks on how many of the nodes: the most ranks that are the same number on each node and
// at most `max_ranks`, and of these the ones on most nodes.
struct Shape {
  int64_t nodes = 0;
  int64_t ranks_per_node = 0;
};
Shape ChooseShape(int64_t nodes, int64_t ranks_per_node, int64_t max_ranks);

struct SlurmStepOptions {
  SpawnOptions spawn;             // without output_fd
  OutputRelay* output = nullptr;  // borrowed: where srun's own words go
  // Files that the step's nodes write themselves: those in `directory` whose names begin with
  // `prefix`. "": none, mpirun brings the ranks' output itself.
  std::string directory, prefix;
  bool is_service = false;
};

StartedGroup StartSlurmStep(const SlurmStepOptions& options);

}  // namespace anyorder::launcher
