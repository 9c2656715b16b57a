// Service and ranks as steps of the Slurm job that this launcher runs in.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "core/train/run/run_config.h"
#include "launcher/process/child_process.h"
#include "launcher/process/output_relay.h"
#include "launcher/start/launch_backend.h"

namespace anyorder::launcher {

struct SlurmOptions {
  std::string run_dir;         // absolute
  int64_t ranks_per_node = 0;  // at most; 0: as many as the job's tasks on its first node
  std::string mpi = "auto";    // or srun, mpirun
  int64_t max_ranks = 1;       // as many microbatches as the run has
};

// InvalidArgument, with the fix, outside of a job or without a way to start ranks. Writes nothing.
absl::StatusOr<std::unique_ptr<LaunchBackend>> MakeSlurmBackend(const SlurmOptions& options);

// How many ranks on how many of the nodes: the most ranks that are the same number on each node and
// at most `max_ranks`, and of these the ones on most nodes.
struct Shape {
  int64_t nodes = 0;
  int64_t ranks_per_node = 0;
};
Shape ChooseShape(int64_t nodes, int64_t ranks_per_node, int64_t max_ranks);

// Files of one step that its nodes write themselves, because srun passes on nothing more once the
// job was told to end. Read as they grow, and removed when all of them is in train.log.
class FollowedFiles {
 public:
  // Those in `directory` whose names begin with `prefix`.
  FollowedFiles(std::string directory, std::string prefix);
  // Passes on what is new since the last call.
  void Follow(OutputRelay& output);
  void Remove();

 private:
  const std::string directory_;
  const std::string prefix_;
  std::map<std::string, int64_t> taken_;  // bytes, by path
};

struct SlurmStepOptions {
  SpawnOptions spawn;             // without output_fd
  OutputRelay* output = nullptr;  // borrowed: where srun's own words go
  std::string directory, prefix;  // FollowedFiles; "": none, mpirun brings the ranks' output itself
  bool is_service = false;
};

// A step whose first task or node has failed is given a moment, in which ranks that agreed to end
// do so, and then ended: Slurm itself would wait for its KillWait, half a minute by default.
class SlurmStep final : public ProcessGroup {
 public:
  static absl::StatusOr<std::unique_ptr<SlurmStep>> Start(const SlurmStepOptions& options);

  std::optional<int> Poll() override;
  void AskToStop(bool urgent) override;
  void Kill() override;

 private:
  SlurmStep(const SlurmStepOptions& options, ChildProcess child);

  const bool is_service_;
  OutputRelay& output_;
  ChildProcess child_;
  std::optional<FollowedFiles> files_;
  absl::Time followed_ = absl::InfinitePast();
  absl::Time killed_ = absl::InfiniteFuture();  // when it was first told to end
  bool is_asked_ = false;
  std::optional<int> exit_status_;
};

}  // namespace anyorder::launcher
