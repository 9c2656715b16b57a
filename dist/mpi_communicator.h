// Ranks as MPI processes. mpi.h is included by mpi_communicator.cc only.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "dist/communicator.h"

namespace anyorder::dist {

// "Open MPI v4.1.4"; of the library, without initialising it.
std::string MpiLibraryVersion();

// MPI from start to end of the program. Only main makes one.
class MpiEnvironment {
 public:
  // Initialises MPI, makes failed ANYORDER_CHECKs take the whole job down (MPI_Abort), and checks
  // that as many ranks are there as the launcher or Slurm started (start_guard.h): if not,
  // InvalidArgument on every rank, in well under a second, with MPI already finalised.
  static absl::StatusOr<std::unique_ptr<MpiEnvironment>> Create(int* argc, char*** argv);
  // Finalises MPI. Communicators must be gone.
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;

  // A communicator of all ranks with its own message space (a duplicate). Collective.
  std::unique_ptr<Communicator> World();

 private:
  MpiEnvironment() = default;
};

}  // namespace anyorder::dist
