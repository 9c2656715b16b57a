// cuBLASLt as the engine sees it, on the emulation's streams: descriptions mean what the library's
// header says, products are plain loops that run when the stream does, and a test says what the
// library can do and how long it would take.

#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cuda/gemm/cublaslt.h"

namespace anyorder::testing {

// An algorithm that searches and checks accept, and that is refused when it is to run.
inline constexpr int kRefusedAtItsRun = -1;

struct FakeCublasLt {
  // Algorithms of a product without a sum and with one, best first: the milliseconds that each
  // takes, or kRefusedAtItsRun.
  std::vector<int> products = {0};
  std::vector<int> sums = {0};
  // What a search without an algorithm ends with, and a run that is refused.
  cublasStatus_t refusal = CUBLAS_STATUS_NOT_SUPPORTED;
  size_t version = 130001;
  bool sums_differ = false;  // from one run to the next

  // What it was asked for.
  int num_products = 0;
  int num_sums = 0;
  int num_objects = 0;      // descriptions, layouts and preferences that are there
  int64_t num_runs = 0;     // of its products on the device
  double milliseconds = 0;  // that its algorithms took, for EmulatedDevice
};

// The one of this process. A test sets it before it makes an engine.
FakeCublasLt& TheFakeCublasLt();
kernels::cuda::CublasLt FakeCublasLtFunctions();

}  // namespace anyorder::testing
