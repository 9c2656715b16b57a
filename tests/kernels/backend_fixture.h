// The one suite that every backend must pass: each test compares an operation with the reference,
// run on the same values in fp64, in memory of the backend's own (staged_backend.h). A new backend
// is one more line in backend_test.cc.

#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "kernels/arguments.h"
#include "kernels/backend.h"
#include "tests/testing/expect_close.h"
#include "tests/testing/host_tensor.h"
#include "tests/testing/staged_backend.h"

namespace anyorder::kernels {

struct BackendCase {
  std::string name;
  DType dtype = DType::kFloat32;
  std::function<std::unique_ptr<Backend>()> make;

  friend std::ostream& operator<<(std::ostream& out, const BackendCase& backend_case) {
    return out << backend_case.name;
  }
};

// Rows x columns that cover one element, odd sizes, the edges of the vector kernels' blocks of 512
// columns, and more rows than one piece of work has.
struct MatrixSize {
  int64_t rows;
  int64_t columns;
};
inline const std::vector<MatrixSize> kMatrixSizes = {{1, 1},   {3, 7},   {5, 64},   {1, 511},
                                                     {2, 513}, {71, 33}, {300, 96}, {3, 4099}};

class BackendTest : public ::testing::TestWithParam<BackendCase> {
 protected:
  void SetUp() override { backend_ = anyorder::testing::MakeStagedBackend(GetParam().make()); }

  DType dtype() const { return GetParam().dtype; }
  DType gradient_dtype() const { return GradientDType(dtype()); }
  Backend& backend() { return *backend_; }
  Backend& reference() { return *reference_; }

  // A dropout with rate 0.1, or none.
  static Dropout TestDropout(bool enabled) {
    return enabled ? MakeDropout(11, 5, 3, 0.1) : Dropout{};
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> reference_ = MakeReferenceBackend();
};

// One size of each operation with the bounds of the suite, for checks that run operation by
// operation. Backends take host memory (staged_backend.h); `reference` is MakeReferenceBackend's.
//
// gemm_cases.cc: all transposes, with and without bias and old values, and with the sums of an
// operand.
void CheckProducts(Backend& backend, Backend& reference, const GemmSizes& size, DType dtype);
// gemm_cases.cc: the products of a batch against the same products alone.
void CheckProductBatches(Backend& backend, DType dtype);
// layernorm_cases.cc: forward and backward, with residual and dropout.
void CheckLayerNorm(Backend& backend, Backend& reference, const MatrixSize& size, DType dtype);
// embedding_cases.cc: forward and backward, with dropout; the loss and its gradients, with a bias.
void CheckEmbedding(Backend& backend, Backend& reference, const MatrixSize& size, DType dtype);
void CheckCrossEntropy(Backend& backend, Backend& reference, const MatrixSize& size, int64_t vocab,
                       DType dtype);
// head_loss_cases.cc: each kind, with masks and smoothing; one logit a row where that is its kind.
void CheckHeadLoss(Backend& backend, Backend& reference, const MatrixSize& size, DType dtype);
// flat_cases.cc: addition, sums of squares and AdamW; strided rows.
void CheckFlat(Backend& backend, Backend& reference, int64_t elements, DType dtype);
void CheckRows(Backend& backend, const MatrixSize& size, DType dtype);

}  // namespace anyorder::kernels
