// One size of each operation against the reference, with the bounds of the suite of all backends
// (backend_fixture.h), for checks that run operation by operation. Backends take host memory
// (staged_backend.h); `reference` is MakeReferenceBackend's. Failures are GoogleTest's.

#pragma once

#include "core/base/dtype.h"
#include "kernels/backend.h"
#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {

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
