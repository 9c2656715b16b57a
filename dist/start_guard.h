// What stands before MPI_Init: the MPI of a bundle, and the checks that refuse a job whose ranks
// did not find each other. A program linked against one MPI and started by another runs as N
// separate "rank 0 of 1", each training alone into the same directory.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace anyorder::dist {

// getenv, or a fake in tests. Null where the variable is not set.
using EnvironmentLookup = std::function<const char*(const char* name)>;

// How many ranks whoever started this process promised, and where that is written.
struct StartPromise {
  std::string variable;  // "" if nobody promised anything: a program started by hand
  std::string value;
};

// The first of these that is set. Must be read before MPI_Init, which sets some itself.
//   ANYORDER_WORLD_SIZE    our launcher
//   OMPI_COMM_WORLD_SIZE mpirun; before Slurm's, because under mpirun those count mpirun's own
//   daemons
//   SLURM_STEP_NUM_TASKS   srun
//   SLURM_NTASKS           the allocation: a bare start inside sbatch or salloc
//   PMI_SIZE               another library's mpiexec
StartPromise ReadStartPromise(const EnvironmentLookup& environment);

// OK if MPI sees what was promised. Otherwise InvalidArgument, one line with the fix. Local: no
// communication, because ranks that do not see each other cannot agree on anything.
absl::Status CheckStart(const StartPromise& promise, int mpi_world_size);

// Before MPI_Init, which with some libraries makes each of these processes a world of its own and
// with others ends in a page of text: InvalidArgument, with the fix, if srun started several tasks
// and told them nothing of each other.
absl::Status CheckRendezvous(const EnvironmentLookup& environment);

class Communicator;
// The node of each rank. Collective; `node` is the caller's.
std::vector<int> GatherNodes(Communicator& communicator, int node);
// How many ranks each node has: [largest node of any rank + 1].
std::vector<int> CountRanksOfNodes(const std::vector<int>& node_of_rank);
// InvalidArgument naming the nodes without a rank, whose checkpoint service would never vote, or
// those that nobody promised.
absl::Status CheckPlacement(const std::vector<int>& ranks_of_nodes, int num_nodes);

// The GPUs that Slurm gave this node (SLURM_GPUS_ON_NODE) and those that its processes may see
// (CUDA_VISIBLE_DEVICES): a site whose gres.conf and cgroups disagree shows fewer, and ranks would
// share one without a word. InvalidArgument with both numbers.
absl::Status CheckGpus(const EnvironmentLookup& environment);

// The Open MPI that a bundle brings along (launcher/package/make_bundle.py), for machines that have
// none.

// ROOT/mpi if `program` is ROOT/bin/NAME and that directory has an mpirun, else "".
std::string BundledMpi(const std::string& program);

// Where this process's program has one: PATH finds its mpirun first, and OPAL_PREFIX, PRTE_PREFIX
// and PMIX_PREFIX lead Open MPI, PRRTE and PMIx to the bundle's plugins instead of those of the
// machine, whose version may be another. An OPAL_PREFIX that is set already wins, and then nothing
// changes. Before MPI_Init, and before the process has a second thread.
void UseBundledMpi();

}  // namespace anyorder::dist
