// In place of nccl_library.cc where the program is built without CUDA or without nccl.h.

#include "dist/nccl_library.h"

namespace anyorder::dist {

absl::StatusOr<std::unique_ptr<NcclLibrary>> LoadNcclLibrary() {
  return absl::UnavailableError(
      "no NCCL: this program was built without its header (nccl.h, package libnccl-dev); set "
      "dist.transport = \"mpi\" or \"auto\", or build it where that is");
}

}  // namespace anyorder::dist
