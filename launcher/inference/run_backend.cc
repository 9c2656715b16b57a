#include "launcher/inference/run_backend.h"

#include "absl/strings/str_cat.h"

#include "launcher/process/child_process.h"

namespace anyorder::launcher {

absl::StatusOr<std::unique_ptr<kernels::Backend>> MakeRunBackend(const std::string& run_dir,
                                                                 const RunConfig& config,
                                                                 kernels::DeviceChoice device,
                                                                 int64_t threads) {
  kernels::BackendOptions options;
  options.num_threads = threads > 0 ? static_cast<int>(threads) : UsableCores();
  options.device = device;
  options.gemm_table = absl::StrCat(run_dir, "/gemm_algorithm_cache.txt");
  options.writes_gemm_table = false;
  options.dtype = ToDType(config.model.dtype);
  return kernels::MakeBackend(options);
}

}  // namespace anyorder::launcher
