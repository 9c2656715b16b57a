// cuBLASLt, found when the program runs: a program that was built with CUDA starts where no toolkit
// is, and is small.

#pragma once

#include <cublasLt.h>

#include <string>

#include "absl/status/statusor.h"

namespace anyorder::kernels::cuda {

// The functions that are used, by their names without the prefix.
struct CublasLt {
  decltype(&cublasLtCreate) Create = nullptr;
  decltype(&cublasLtDestroy) Destroy = nullptr;
  decltype(&cublasLtGetVersion) GetVersion = nullptr;
  decltype(&cublasLtMatmul) Matmul = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) MatmulAlgoCheck = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate = nullptr;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) MatrixLayoutSetAttribute = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute = nullptr;
};

// Loaded once a process, from where the linker looks, CUDA_HOME, CUDA_PATH and /usr/local/cuda.
// NotFound naming what was looked for.
absl::StatusOr<const CublasLt*> LoadCublasLt();

// Ends the program with `what` unless `status` is success.
void CheckCublas(cublasStatus_t status, const std::string& what);

}  // namespace anyorder::kernels::cuda
