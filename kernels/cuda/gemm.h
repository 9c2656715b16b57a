// Matrix products of the CUDA backend: cuBLASLt's on a GPU (gemm_cublaslt.cc), plain loops in the emulation (emulation/gemm_emulated.cc).

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/stream.h"
#include "kernels/cuda/runtime.h"
#include "kernels/gemm.h"

namespace anyorder::kernels::cuda {

struct GemmOptions {
  std::string table;  // file of pinned algorithms (gemm_table.h); "": none
  bool writes_table = true;
};

class GemmEngine {
 public:
  virtual ~GemmEngine() = default;
  // Arguments were checked and `stream` is not null. All shapes, empty ones too. The same bits for the same shapes every time.
  virtual void Run(const GemmArgs& args, StreamView stream) = 0;
};

absl::StatusOr<std::unique_ptr<GemmEngine>> MakeGemmEngine(Runtime& runtime,
                                                           const GemmOptions& options);

}  // namespace anyorder::kernels::cuda
