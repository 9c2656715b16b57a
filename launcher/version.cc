#include "launcher/version.h"

#include "absl/strings/str_cat.h"

#include "dist/mpi_communicator.h"
#include "kernels/backends/device_list.h"
#include "launcher/commit.h"

namespace anyorder::launcher {

std::string VersionText() {
  const std::string nvcc = ANYORDER_NVCC_VERSION;
  std::string text =
      absl::StrCat("anyorder ", ANYORDER_VERSION, "\n",   //
                   "commit:    ", Commit(), "\n",  //
                   "compilers: ", ANYORDER_CXX_COMPILER, nvcc.empty() ? "" : ", nvcc ", nvcc, "\n",
                   "CUDA:      ", nvcc.empty() ? "none (built without CUDA)" : nvcc, "\n",
                   "oneDNN:    ", kernels::OneDnnVersion(), "\n",  //
                   "MPI:       ", dist::MpiLibraryVersion(), "\n");
  for (const std::string& device : kernels::ListDevices())
    absl::StrAppend(&text, "device:    ", device, "\n");
  text.pop_back();
  return text;
}

}  // namespace anyorder::launcher
