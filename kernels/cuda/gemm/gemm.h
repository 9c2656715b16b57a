// Matrix products of the CUDA backend: cuBLASLt's on a GPU (gemm_cublaslt.cc), plain loops in
// tests/emulated_gpu.

#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "core/base/stream.h"
#include "kernels/cuda/gemm/gemm_table.h"
#include "kernels/cuda/operations/operation_sizes.h"
#include "kernels/cuda/platform/runtime.h"
#include "kernels/gemm.h"

namespace anyorder::kernels::cuda {

// A product as libraries of column-major matrices see it: d = op(a) op(b) + bias[row] (+ d), of
// rows x columns, `inner` products each. It is c^T = op(b)^T op(a)^T of the contract, so that
// nothing has to be transposed.
struct ColumnMajorProduct {
  GemmKey key;  // the contract's shape
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias =
      nullptr;  // of d's dtype and a multiple of kBiasAlignment, as its steps are, or null
  void* d = nullptr;
  // Or null; fp32 and a multiple of kBiasAlignment. GemmSum::kB of the contract: [rows], sums over
  // i of op(a)[row, i]; kA: [columns], of op(b)[i, column].
  void* sum = nullptr;
  float scale = 1;  // of the product
  // Elements from one product of a batch to the next; key.batch says how many there are.
  int64_t step_a() const { return key.step_b; }
  int64_t step_b() const { return key.step_a; }
  int64_t step_bias = 0;
  int64_t step_d() const { return key.step_c; }

  bool transpose_a() const { return key.transpose_b; }
  bool transpose_b() const { return key.transpose_a; }
  int64_t rows() const { return key.n; }
  int64_t columns() const { return key.m; }
  int64_t inner() const { return key.k; }
  // Elements from a column, as stored, to the next: its rows, for matrices are dense.
  int64_t stride_a() const { return transpose_a() ? inner() : rows(); }
  int64_t stride_b() const { return transpose_b() ? columns() : inner(); }
  int64_t stride_d() const { return rows(); }
};
ColumnMajorProduct ColumnMajorOf(const GemmArgs& args);

// What a library did of a product: nothing, where it has no algorithm; all but the sum; or all.
enum class Made { kNothing, kProduct, kProductAndSum };

class GemmEngine {
 public:
  explicit GemmEngine(Runtime& runtime);
  virtual ~GemmEngine() = default;
  GemmEngine(const GemmEngine&) = delete;
  GemmEngine& operator=(const GemmEngine&) = delete;

  // Arguments were checked and `stream` is not null. All shapes, empty ones too. The same bits for
  // the same shape every time.
  void Run(const GemmArgs& args, StreamView stream);
  // Takes the memory that products on `stream` need, whose biases and sums have at most so many
  // columns, of so many rows. ResourceExhausted.
  absl::Status Reserve(int64_t rows, int64_t columns, StreamView stream);
  // Backend::RoundsProductFirst.
  virtual bool rounds_product_first() const { return false; }
  // What Multiply will ask Workspace for.
  virtual int64_t workspace_bytes() const { return 0; }

 protected:
  // Kernels of ours do the rest. No size is 0. Always the same for one shape.
  virtual Made Multiply(const ColumnMajorProduct& product, StreamView stream) = 0;
  // The sum by a kernel of its own.
  void SumApart(const ColumnSumArgs& sum, StreamView stream);
  Runtime& runtime() { return runtime_; }
  // Device memory of one stream, which its operations use one after another.
  void* Workspace(StreamView stream, int64_t bytes);

 private:
  // Sets the product's bias and its steps: the caller's, or a copy where dtype or addresses do not
  // suit the library.
  void SetBias(const GemmArgs& args, ColumnMajorProduct* product, StreamView stream);
  // All but the sum; whether that was made, too.
  bool RunProduct(const GemmArgs& args, const TensorView& sum, StreamView stream);

  Runtime& runtime_;
  const std::unique_ptr<StreamScratch> workspaces_;
  const std::unique_ptr<StreamScratch> biases_;  // copies, in d's dtype
  const std::unique_ptr<StreamScratch> sums_;
};

absl::StatusOr<std::unique_ptr<GemmEngine>> MakeGemmEngine(Runtime& runtime,
                                                           const GemmOptions& options);

}  // namespace anyorder::kernels::cuda
