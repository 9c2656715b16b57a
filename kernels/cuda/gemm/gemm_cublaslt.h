// Matrix products by cuBLASLt with one pinned algorithm a shape, none of which adds in an order
// that may change.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/gemm/gemm.h"

namespace anyorder::kernels::cuda {

class CublasLtGemm final : public GemmEngine {
 public:
  // `lt` must outlive it.
  static absl::StatusOr<std::unique_ptr<CublasLtGemm>> Create(Runtime& runtime, const CublasLt& lt,
                                                              const GemmOptions& options);
  ~CublasLtGemm() override;

  // TuneGemms, with a table that was read. In gemm_tune.cc, with all that it alone needs.
  absl::Status Tune(const std::function<void(const TunedGemm&)>& report);

  // No attribute of an algorithm says which do. 13.1 on an H100: where all sizes are multiples of
  // 8, product + bias is rounded before the old c is added, elsewhere product + old c before the
  // bias.
  bool rounds_product_first() const override { return true; }

  int64_t num_pinned() const { return static_cast<int64_t>(table_.algorithms.size()); }
  // The file that it reads and writes: the one of the options, or one beside it where that is of
  // another chip, library or version.
  const std::string& table_path() const { return table_path_; }

 protected:
  Made Multiply(const ColumnMajorProduct& product, StreamView stream) override;
  int64_t workspace_bytes() const override;

 private:
  // A shape ready to run.
  struct Plan {
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatrixLayout_t a = nullptr;
    cublasLtMatrixLayout_t b = nullptr;
    cublasLtMatrixLayout_t d = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    bool fuses_sum = false;
    bool exists = false;  // false: cuBLASLt has none
    bool has_run = false;
  };

  CublasLtGemm(Runtime& runtime, const CublasLt& lt, const GemmOptions& options)
      : GemmEngine(runtime), lt_(lt), options_(options) {}
  absl::Status ReadTable();
  // `why` the one of the options is not for here. FailedPrecondition if the one beside it is not,
  // either.
  absl::Status ReadTableBeside(absl::string_view why);
  Plan& PlanOf(const ColumnMajorProduct& product, StreamView stream);
  Plan Describe(const ColumnMajorProduct& product, bool fuses_sum) const;
  void Destroy(const Plan& plan) const;
  std::vector<cublasLtMatmulHeuristicResult_t> Candidates(const Plan& plan, const GemmKey& key,
                                                          int most) const;
  // The table's algorithm for this shape, if it is valid here.
  std::optional<Plan> TakePinned(const ColumnMajorProduct& product) const;
  // The one that cuBLASLt thinks is best, and pins it. A sum is made apart: whether the library
  // makes it faster along with the product, and the same each time, only Tune finds out.
  Plan Choose(const ColumnMajorProduct& product);
  void Pin(const GemmKey& key, const Plan& plan);
  static PinnedGemm PinnedOf(const Plan& plan);
  // In place of a pinned plan whose sum was refused at its first run, with `status`.
  void ChooseApart(const ColumnMajorProduct& product, cublasStatus_t status, Plan* plan);
  cublasStatus_t Start(const Plan& plan, const ColumnMajorProduct& product, StreamView stream);

  // For tuning.
  struct Trial;
  double Microseconds(const Plan& plan, const Trial& trial);
  // Runs the product and its sum, fused or apart. False: cuBLASLt refuses.
  bool RunTrial(const Plan& plan, const Trial& trial);
  // Whether it gives the same bits over and over. REQUIRES a plan that runs.
  bool Repeats(const Plan& plan, const Trial& trial);
  // Times all candidates with the sum, or without one; the fastest so far that repeats is in
  // `pinned`.
  void TryCandidates(const Trial& trial, bool fuses_sum, TunedGemm* tuned, PinnedGemm* pinned);
  TunedGemm TuneOne(const GemmKey& key, char* data, PinnedGemm* pinned);

  const CublasLt& lt_;
  const GemmOptions options_;
  cublasLtHandle_t handle_ = nullptr;
  std::string table_path_;
  GemmTable table_;
  bool can_write_ = true;
  std::map<GemmKey, Plan> plans_;
};

}  // namespace anyorder::kernels::cuda
