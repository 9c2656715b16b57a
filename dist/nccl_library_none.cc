// In place of nccl_library.cc where the program is built without CUDA.

#include "dist/nccl_library.h"

namespace anyorder::dist {

absl::StatusOr<std::unique_ptr<NcclLibrary>> LoadNcclLibrary() {
  return absl::UnavailableError(
      "no NCCL: this program was built without CUDA; set dist.transport = \"mpi\" or \"auto\"");
}

}  // namespace anyorder::dist
