// Matrix products by cuBLASLt with one pinned algorithm a shape, none of which adds in an order that may change.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/gemm.h"

namespace anyorder::kernels::cuda {

class CublasLtGemm final : public GemmEngine {
 public:
  static absl::StatusOr<std::unique_ptr<CublasLtGemm>> Create(Runtime& runtime,
                                                              const GemmOptions& options);
  ~CublasLtGemm() override;

  struct Measured {
    GemmKey key;
    double before_microseconds = 0;  // of the algorithm that was there
    double best_microseconds = 0;
    int candidates = 0;
  };
  // Times all candidates of each shape in the table, takes the fastest, calls `report` after each, and writes the table.
  absl::Status Tune(const std::function<void(const Measured&)>& report);

 protected:
  bool Multiply(const ColumnMajorProduct& product, StreamView stream) override;

 private:
  // A shape ready to run.
  struct Plan {
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatrixLayout_t a = nullptr;
    cublasLtMatrixLayout_t b = nullptr;
    cublasLtMatrixLayout_t d = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    bool exists = false;  // false: cuBLASLt has none
  };

  CublasLtGemm(Runtime& runtime, const CublasLt& lt, const GemmOptions& options)
      : GemmEngine(runtime), lt_(lt), options_(options) {}
  absl::Status Prepare();
  Plan& PlanOf(const ColumnMajorProduct& product);
  Plan Describe(const ColumnMajorProduct& product) const;
  std::vector<cublasLtMatmulHeuristicResult_t> Candidates(const Plan& plan,
                                                          const GemmKey& key,
                                                          int most) const;
  // The table's algorithm for this shape, if it is valid here.
  bool TakePinned(const GemmKey& key, Plan* plan) const;
  void Pin(const GemmKey& key, const cublasLtMatmulAlgo_t& algorithm);
  cublasStatus_t Start(const Plan& plan, const ColumnMajorProduct& product, StreamView stream);
  double Microseconds(const Plan& plan, const ColumnMajorProduct& product);

  const CublasLt& lt_;
  const GemmOptions options_;
  cublasLtHandle_t handle_ = nullptr;
  GemmTable table_;
  bool can_write_ = true;
  std::map<GemmKey, Plan> plans_;
};

}  // namespace anyorder::kernels::cuda
