// All operations a device must offer; the model is written against this and nothing else.
//
// Three implementations: reference (plain loops in double, the executable specification that tests compare
// with), cpu (oneDNN and vectorised fused kernels) and, on GPUs, cuda. One parameterised test suite runs
// every backend against the reference.
//
// Contract of every operation: tensors are dense row-major; shapes and dtypes are the caller's duty and
// broken ones abort (ANYORDER_CHECK); the stream comes last; nothing is allocated and nothing synchronises.
// T below is the activation dtype: fp32, or bf16 with fp32 accumulation; the reference also takes fp64, so
// that whole models can be checked by finite differences. "G" is the gradient dtype of parameters: fp32, or
// fp64 where T is fp64. Results do not depend on the number of threads.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/stream.h"
#include "core/base/tensor.h"
#include "kernels/attention.h"
#include "kernels/dropout.h"

namespace anyorder::kernels {

// Elements per block of SumOfSquares; sharding boundaries of the flat parameter space are multiples of it.
inline constexpr int64_t kNormBlockElements = 16384;

// c = op(a) op(b) + bias + beta * c, with op(a) [M, K], op(b) [K, N].
struct GemmArgs {
  ConstTensorView a;  // [M, K], or [K, M] with transpose_a   T
  ConstTensorView b;  // [K, N], or [N, K] with transpose_b   T
  bool transpose_a = false;
  bool transpose_b = false;
  ConstTensorView bias;  // [N] T or null, added to every row
  float beta = 0.0f;     // 0: c is overwritten and may hold anything before; 1: c is added to
  TensorView c;          // [M, N]  T or G
};

// y[c] (+)= sum over rows of x[r, c]: bias gradients.
struct ColumnSumArgs {
  ConstTensorView x;  // [rows, columns]  T
  float beta = 0.0f;  // 0 or 1
  TensorView y;       // [columns]  G
};

enum class Activation { kGeluTanh, kGeluErf, kRelu };

// y = dropout(activation(x)).
struct ActivationForwardArgs {
  Activation activation = Activation::kGeluTanh;
  ConstTensorView x;  // [rows, columns]  T
  Dropout dropout;
  const int32_t* row_ids = nullptr;  // [rows]
  TensorView y;                      // [rows, columns]  T
};
struct ActivationBackwardArgs {
  Activation activation = Activation::kGeluTanh;
  ConstTensorView x;  // forward's input
  ConstTensorView dy;
  Dropout dropout;
  const int32_t* row_ids = nullptr;
  TensorView dx;  // may be dy
};

// y = dropout(x); its own backward with dy, dx.
struct DropoutArgs {
  ConstTensorView x;                 // [rows, columns]  T
  Dropout dropout;                   // disabled: a copy
  const int32_t* row_ids = nullptr;  // [rows]
  TensorView y;                      // may be x
};

// sum = residual + dropout(x);  y = (sum - mean) * rstd * gamma + beta, over the last dimension with the
// population variance (post-LN, Vaswani et al. 2017). With a null residual: plain LayerNorm of dropout(x).
struct LayerNormForwardArgs {
  ConstTensorView x;         // [rows, columns]  T
  ConstTensorView residual;  // [rows, columns]  T or null
  ConstTensorView gamma;     // [columns]        T
  ConstTensorView beta;      // [columns]        T
  float epsilon = 1e-12f;
  Dropout dropout;
  const int32_t* row_ids = nullptr;
  TensorView sum;   // [rows, columns]  T, kept for backward
  TensorView mean;  // [rows]           G
  TensorView rstd;  // [rows]           G
  TensorView y;     // [rows, columns]  T
};
struct LayerNormBackwardArgs {
  ConstTensorView dy;   // [rows, columns]  T
  ConstTensorView sum;  // from forward, as are mean and rstd
  ConstTensorView mean;
  ConstTensorView rstd;
  ConstTensorView gamma;  // [columns]  T
  Dropout dropout;
  const int32_t* row_ids = nullptr;
  TensorView dx;         // [rows, columns]  T, through dropout
  TensorView dresidual;  // [rows, columns]  T; null if forward had no residual
  TensorView dgamma;     // [columns]  G, overwritten
  TensorView dbeta;      // [columns]  G, overwritten
};

// y[r] = dropout(scale * table[ids[r]]).
struct EmbeddingForwardArgs {
  ConstTensorView table;         // [vocab, columns]  T
  const int32_t* ids = nullptr;  // [rows], each in [0, vocab)
  float scale = 1.0f;
  Dropout dropout;
  const int32_t* row_ids = nullptr;
  TensorView y;  // [rows, columns]  T
};
// dtable[ids[r]] += scale * dropout'(dy[r]), rows in increasing order (bitwise repeatable).
struct EmbeddingBackwardArgs {
  ConstTensorView dy;  // [rows, columns]  T
  const int32_t* ids = nullptr;
  float scale = 1.0f;
  Dropout dropout;
  const int32_t* row_ids = nullptr;
  TensorView dtable;  // [vocab, columns]  G, added to
};

// Softmax cross-entropy of a linear layer on the rows that carry a target, without ever holding all logits:
//   logits[r] = x[r] . weight^T + bias;   loss[r] = logsumexp(logits[r]) - logits[r][label[r]]
// With gradients: d(sum_r row_weight[r] * loss[r]). Rows of weight 0 get loss 0 and no gradient.
struct LinearCrossEntropyArgs {
  ConstTensorView x;                   // [rows, columns]   T
  ConstTensorView weight;              // [vocab, columns]  T
  ConstTensorView bias;                // [vocab]           T or null
  const int32_t* labels = nullptr;     // [rows]
  const float* row_weights = nullptr;  // [rows]
  TensorView loss;                     // [rows]  G
  // Null in evaluation; otherwise all three (dbias null if bias is).
  TensorView dx;         // [rows, columns]   T, overwritten
  TensorView dweight;    // [vocab, columns]  G, added to (tied embeddings share it)
  TensorView dbias;      // [vocab]           G, added to
  TensorView workspace;  // uint8, LinearCrossEntropyWorkspaceBytes(...) or more
};

// Decoupled weight decay Adam (Loshchilov & Hutter 2019) on a flat range:
//   g = grad_scale * grad;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   master -= learning_rate * ( c m / (sqrt(v) + epsilon) + weight_decay * master )
// c = sqrt(1 - b2^t) / (1 - b1^t) with bias correction (t = step + 1), else 1 (the published XLNet form).
struct AdamWArgs {
  ConstTensorView grad;  // [n] G
  TensorView master;     // [n] G
  TensorView m;          // [n] G
  TensorView v;          // [n] G
  TensorView weights;    // [n] T or null: receives master rounded to T
  double grad_scale = 1;
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0;
  bool bias_correction = false;
  int64_t step = 0;  // 0-based
};

// Rows of `columns` elements between strided places; strides count elements. Moves recurrence memory.
struct CopyRowsArgs {
  ConstTensorView source;
  int64_t source_begin = 0;  // element index of the first row
  int64_t source_stride = 0;
  TensorView destination;  // same dtype
  int64_t destination_begin = 0;
  int64_t destination_stride = 0;
  int64_t rows = 0;
  int64_t columns = 0;
};

// y[r] = x[rows[r]]  (gather), or with `scatter_add`: y[rows[r]] += x[r]. Rows must not repeat in a scatter.
struct GatherRowsArgs {
  ConstTensorView x;              // [*, columns]  T
  const int32_t* rows = nullptr;  // [num_rows]
  int64_t num_rows = 0;
  bool scatter_add = false;
  TensorView y;  // [*, columns]  T
};

class Buffer;  // device memory, freed with the object

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  // "reference", "cpu (avx512_bf16)", ...
  // Whether T = dtype is supported (natively, not emulated).
  virtual bool Supports(DType dtype) const = 0;

  // Set-up. Memory is zeroed, 64-byte aligned and touched, so that the first step does not pay for it.
  virtual absl::StatusOr<std::unique_ptr<Buffer>> Allocate(int64_t bytes) = 0;
  virtual int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape,
                                                  DType dtype) const = 0;
  virtual int64_t LinearCrossEntropyWorkspaceBytes(int64_t rows,
                                                   int64_t columns,
                                                   int64_t vocab,
                                                   DType dtype) const = 0;

  virtual void Gemm(const GemmArgs& args, StreamView stream) = 0;
  virtual void ColumnSum(const ColumnSumArgs& args, StreamView stream) = 0;
  virtual void AttentionForward(const AttentionForwardArgs& args, StreamView stream) = 0;
  virtual void AttentionBackward(const AttentionBackwardArgs& args, StreamView stream) = 0;
  virtual void ActivationForward(const ActivationForwardArgs& args, StreamView stream) = 0;
  virtual void ActivationBackward(const ActivationBackwardArgs& args, StreamView stream) = 0;
  virtual void DropoutApply(const DropoutArgs& args, StreamView stream) = 0;
  virtual void LayerNormForward(const LayerNormForwardArgs& args, StreamView stream) = 0;
  virtual void LayerNormBackward(const LayerNormBackwardArgs& args, StreamView stream) = 0;
  virtual void EmbeddingForward(const EmbeddingForwardArgs& args, StreamView stream) = 0;
  virtual void EmbeddingBackward(const EmbeddingBackwardArgs& args, StreamView stream) = 0;
  virtual void LinearCrossEntropy(const LinearCrossEntropyArgs& args, StreamView stream) = 0;
  virtual void AdamW(const AdamWArgs& args, StreamView stream) = 0;
  virtual void CopyRows(const CopyRowsArgs& args, StreamView stream) = 0;
  virtual void GatherRows(const GatherRowsArgs& args, StreamView stream) = 0;

  // sums[i] = sum of squares of x[i * kNormBlockElements, (i+1) * kNormBlockElements), in double, added in a
  // fixed order. x: [n] G; sums: [ceil(n / kNormBlockElements)] fp64. Not finite iff an element is not, or overflows.
  virtual void SumOfSquares(ConstTensorView x, TensorView sums, StreamView stream) = 0;
  // y = a + b, element-wise, same dtype; y may be a or b. The node of the gradient tree.
  virtual void Add(ConstTensorView a, ConstTensorView b, TensorView y, StreamView stream) = 0;
  // y = x rounded to y's dtype.
  virtual void Cast(ConstTensorView x, TensorView y, StreamView stream) = 0;
  virtual void FillZero(TensorView x, StreamView stream) = 0;
};

class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() const = 0;
  virtual int64_t size_bytes() const = 0;
};

struct CpuBackendOptions {
  int num_threads = 1;  // OpenMP threads of this rank; results do not depend on it
};
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options);
std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace anyorder::kernels
