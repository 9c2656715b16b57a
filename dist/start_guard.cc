#include "dist/start_guard.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

#include "core/base/status.h"
#include "dist/communicator.h"

namespace anyorder::dist {

StartPromise ReadStartPromise(const EnvironmentLookup& environment) {
  for (const char* variable : {"ANYORDER_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
                               "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "PMI_SIZE"}) {
    const char* value = environment(variable);
    if (value != nullptr && *value != '\0') return {variable, value};
  }
  return {};
}

absl::Status CheckStart(const StartPromise& promise, int mpi_world_size) {
  if (promise.variable.empty()) return absl::OkStatus();
  int promised = 0;
  if (!absl::SimpleAtoi(promise.value, &promised) || promised < 1) {
    return InvalidArgument("environment variable ", promise.variable, "='", promise.value,
                           "' is not a number of ranks; unset it");
  }
  if (promised == mpi_world_size) return absl::OkStatus();
  const std::string sizes = absl::StrCat(promise.variable, "=", promised, " promises ", promised,
                                         " ranks but MPI sees ", mpi_world_size);
  if (mpi_world_size == 1) {
    return InvalidArgument(
        sizes,
        ": the processes did not find each other; start them with 'anyorder launch', "
        "'srun --mpi=pmix' or "
        "the mpirun of the MPI this program is linked with");
  }
  return InvalidArgument(sizes, ": start as many ranks as promised, or unset ", promise.variable);
}

absl::Status CheckRendezvous(const EnvironmentLookup& environment) {
  const char* const text = environment("SLURM_STEP_NUM_TASKS");
  int tasks = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &tasks) || tasks < 2) return absl::OkStatus();
  // The last is set in a batch script, too, where mpirun brings the others.
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMI_RANK", "PMI_FD"}) {
    if (environment(variable) != nullptr) return absl::OkStatus();
  }
  return InvalidArgument(
      "SLURM_STEP_NUM_TASKS=", tasks, " promises ", tasks,
      " ranks, but srun told none of them how to find the others; start them with "
      "'srun --mpi=pmix' ('srun --mpi=list' says whether this cluster has it), or with mpirun");
}

std::vector<int> GatherNodes(Communicator& communicator, int node) {
  std::vector<int> node_of_rank(communicator.world_size());
  communicator.AllGather(BytesOf<int>({&node, 1}), MutableBytesOf(absl::MakeSpan(node_of_rank)));
  return node_of_rank;
}

std::vector<int> CountRanksOfNodes(const std::vector<int>& node_of_rank) {
  std::vector<int> ranks_of_nodes;
  for (const int of_rank : node_of_rank) {
    if (of_rank >= static_cast<int>(ranks_of_nodes.size())) ranks_of_nodes.resize(of_rank + 1);
    ++ranks_of_nodes[of_rank];
  }
  return ranks_of_nodes;
}

absl::Status CheckPlacement(const std::vector<int>& ranks_of_nodes, int num_nodes) {
  std::vector<int> empty;
  for (int node = 0; node < num_nodes; ++node) {
    if (node >= static_cast<int>(ranks_of_nodes.size()) || ranks_of_nodes[node] == 0)
      empty.push_back(node);
  }
  if (empty.empty() && static_cast<int>(ranks_of_nodes.size()) == num_nodes)
    return absl::OkStatus();
  return InvalidArgument(
      "the run has ", num_nodes, " nodes, but MPI placed ranks on ",
      ranks_of_nodes.size() - std::count(ranks_of_nodes.begin(), ranks_of_nodes.end(), 0),
      " of them",
      empty.empty() ? "" : absl::StrCat(" (none on number ", absl::StrJoin(empty, ", "), ")"),
      "; give each node at least one rank: 'srun --ntasks-per-node' or 'mpirun --map-by slot'");
}

absl::Status CheckGpus(const EnvironmentLookup& environment) {
  const char* const promised = environment("SLURM_GPUS_ON_NODE");
  const char* const visible = environment("CUDA_VISIBLE_DEVICES");
  int num_promised = 0;
  if (promised == nullptr || !absl::SimpleAtoi(promised, &num_promised) || num_promised < 1)
    return absl::OkStatus();
  if (visible != nullptr && *visible != '\0' && absl::string_view(visible) != "NoDevFiles")
    return absl::OkStatus();
  if (environment("ROCR_VISIBLE_DEVICES") != nullptr)
    return absl::OkStatus();  // other makers' name
  return InvalidArgument(
      "SLURM_GPUS_ON_NODE=", num_promised, " promises GPUs, but CUDA_VISIBLE_DEVICES is ",
      visible == nullptr ? "not set" : absl::StrCat("'", visible, "'"),
      ": this step was given none of them; ask for them with --gpus-per-node, and see gres.conf");
}

std::string BundledMpi(const std::string& program) {
  const size_t name = program.rfind('/');
  if (name == std::string::npos || name == 0) return "";
  const size_t folder = program.rfind('/', name - 1);
  if (folder == std::string::npos || program.substr(folder, name - folder) != "/bin") return "";
  const std::string mpi = program.substr(0, folder) + "/mpi";
  return ::access((mpi + "/bin/mpirun").c_str(), X_OK) == 0 ? mpi : "";
}

void UseBundledMpi() {
  if (::getenv("OPAL_PREFIX") != nullptr) return;
  char program[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", program, sizeof program);
  if (length <= 0) return;
  const std::string mpi = BundledMpi(std::string(program, static_cast<size_t>(length)));
  if (mpi.empty()) return;
  const char* path = ::getenv("PATH");
  ::setenv("PATH", (mpi + "/bin:" + (path != nullptr ? path : "/usr/bin:/bin")).c_str(), 1);
  for (const char* prefix : {"OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX"})
    ::setenv(prefix, mpi.c_str(), 1);
}

}  // namespace anyorder::dist
