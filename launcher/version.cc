#include "launcher/version.h"

#include "absl/strings/str_cat.h"

#include "dist/mpi_communicator.h"
#include "kernels/backends/device_list.h"
#include "launcher/commit.h"

namespace anyorder::launcher {

std::string VersionText() {
  const std::string nvcc = ANYORDER_NVCC_VERSION;
  std::string text;
  const auto add = [&text](const char* what, const std::string& value) {
    absl::StrAppend(&text, what, value, "\n");
  };
  add("anyorder ", ANYORDER_VERSION);
  add("commit:    ", Commit());
  add("compilers: ", absl::StrCat(ANYORDER_CXX_COMPILER, nvcc.empty() ? "" : ", nvcc ", nvcc));
  add("CUDA:      ", nvcc.empty() ? "none (built without CUDA)" : nvcc);
  add("oneDNN:    ", kernels::OneDnnVersion());
  add("MPI:       ", dist::MpiLibraryVersion());
  for (const std::string& device : kernels::ListDevices()) add("device:    ", device);
  text.pop_back();
  return text;
}

}  // namespace anyorder::launcher
