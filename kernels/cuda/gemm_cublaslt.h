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
#include "kernels/cuda/tune.h"

namespace anyorder::kernels::cuda {

class CublasLtGemm final : public GemmEngine {
 public:
  static absl::StatusOr<std::unique_ptr<CublasLtGemm>> Create(Runtime& runtime,
                                                              const GemmOptions& options);
  ~CublasLtGemm() override;

  // TuneGemms, with a table that was read.
  absl::Status Tune(const std::function<void(const TunedGemm&)>& report);

  int64_t num_pinned() const { return static_cast<int64_t>(table_.algorithms.size()); }

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
  Plan& PlanOf(const ColumnMajorProduct& product, StreamView stream);
  Plan Describe(const ColumnMajorProduct& product) const;
  std::vector<cublasLtMatmulHeuristicResult_t> Candidates(const Plan& plan,
                                                          const GemmKey& key,
                                                          int most) const;
  // The table's algorithm for this shape, if it is valid here.
  bool TakePinned(const GemmKey& key, Plan* plan) const;
  void Pin(const GemmKey& key, const cublasLtMatmulAlgo_t& algorithm);
  cublasStatus_t Start(const Plan& plan, const ColumnMajorProduct& product, StreamView stream);
  double Microseconds(const Plan& plan, const ColumnMajorProduct& product);
  // Of one shape, on operands in `data`; the fastest goes to `words`.
  TunedGemm TuneOne(const GemmKey& key, char* data, GemmAlgorithm* words);

  const CublasLt& lt_;
  const GemmOptions options_;
  cublasLtHandle_t handle_ = nullptr;
  GemmTable table_;
  bool can_write_ = true;
  std::map<GemmKey, Plan> plans_;
};

}  // namespace anyorder::kernels::cuda
