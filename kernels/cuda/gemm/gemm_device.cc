// The engine of programs that were built with CUDA, and its tuning.

#include "core/base/status.h"
#include "kernels/cuda/gemm/gemm_cublaslt.h"

namespace anyorder::kernels::cuda {

absl::StatusOr<std::unique_ptr<GemmEngine>> MakeGemmEngine(Runtime& runtime,
                                                           const GemmOptions& options) {
  ASSIGN_OR_RETURN(const CublasLt* const lt, LoadCublasLt());
  return CublasLtGemm::Create(runtime, *lt, options);
}

absl::Status TuneGemms(const std::string& path, const std::function<void()>& begin,
                       const std::function<void(const TunedGemm&)>& report) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Runtime> runtime, OpenDevice(0));
  ASSIGN_OR_RETURN(const GemmTable table, ReadGemmTable(path));
  ASSIGN_OR_RETURN(const CublasLt* const lt, LoadCublasLt());
  // Only Tune writes.
  const GemmOptions options{.table = path, .writes_table = false};
  ASSIGN_OR_RETURN(const std::unique_ptr<CublasLtGemm> gemm,
                   CublasLtGemm::Create(*runtime, *lt, options));
  if (gemm->table_path() != path) {
    return FailedPrecondition("'", path, "' is for ", table.chip, " and cuBLASLt ", table.library,
                              ", not for this machine; tune it there, or '", gemm->table_path(),
                              "', which a run here makes");
  }
  begin();
  return gemm->Tune(report);
}

}  // namespace anyorder::kernels::cuda
