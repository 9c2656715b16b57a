// The CPU's element-wise and row-wise inner loops, compiled once per instruction set and picked at
// run time.
//
// Jobs are plain structs of pointers, because the variants must not share inline functions
// (vector/vector_math.h says why). A job's rows, columns or elements are split by the caller; what
// a piece computes does not depend on the split.

#pragma once

#include <cstdint>

namespace anyorder::kernels::cpu {

enum class Element : uint8_t { kFloat32, kBFloat16 };

// kernels/dropout.h without its functions. Element (row, column) uses row_ids[row].
struct DropoutJob {
  uint32_t key0 = 0;
  uint32_t key1 = 0;
  uint32_t site = 0;
  uint32_t threshold = 0;
  float scale = 1.0f;
  const int32_t* row_ids = nullptr;
};

enum class Pointwise : uint8_t { kIdentity, kGeluTanh, kGeluErf, kRelu, kSilu, kTanh };

// y = dropout(f(x) factor), or with dy: y = dropout(dy) factor f'(x), dfactor = dropout(dy) f(x).
struct PointwiseJob {
  Element element = Element::kFloat32;
  Pointwise function = Pointwise::kIdentity;
  const void* x = nullptr;
  const void* dy = nullptr;
  const void* factor = nullptr;  // null: 1
  void* y = nullptr;
  void* dfactor = nullptr;
  int64_t columns = 0;
  DropoutJob dropout;
};

// Null mean and beta: RMSNorm.
struct LayerNormForwardJob {
  Element element = Element::kFloat32;
  const void* x = nullptr;
  const void* residual = nullptr;
  const void* gamma = nullptr;
  const void* beta = nullptr;
  float epsilon = 0.0f;
  void* sum = nullptr;
  float* mean = nullptr;
  float* rstd = nullptr;
  void* y = nullptr;
  int64_t columns = 0;
  DropoutJob dropout;
};

struct LayerNormBackwardJob {
  Element element = Element::kFloat32;
  const void* dy = nullptr;
  const void* sum = nullptr;
  const float* mean = nullptr;
  const float* rstd = nullptr;
  const void* gamma = nullptr;
  void* dx = nullptr;
  void* dresidual = nullptr;
  int64_t columns = 0;
  DropoutJob dropout;
};

struct EmbeddingJob {
  Element element = Element::kFloat32;
  const void* source = nullptr;  // forward: the table; backward: dy
  void* target = nullptr;        // forward: y; backward: dtable, fp32
  const int32_t* ids = nullptr;
  float scale = 1.0f;
  int64_t rows = 0;
  int64_t columns = 0;
  DropoutJob dropout;
};

// kernels/rows.h; `sign` is -1 to turn back.
struct RotaryJob {
  Element element = Element::kFloat32;
  const void* x = nullptr;
  const float* angles = nullptr;
  void* y = nullptr;
  float sign = 1.0f;
  int64_t columns = 0;
  int64_t head_dim = 0;
};

// Rows of logits in fp32 -> losses, and with `gradients` the logits are replaced by their
// gradients.
struct SoftmaxJob {
  float* logits = nullptr;  // [rows, vocab]
  const int32_t* labels = nullptr;
  const float* row_weights = nullptr;
  float* loss = nullptr;
  uint16_t* rounded = nullptr;  // bf16 copy of the gradients, or null
  bool gradients = false;
  int64_t vocab = 0;
};

struct AdamWJob {
  const float* grad = nullptr;
  float* master = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  void* weights = nullptr;  // or null
  Element weights_element = Element::kFloat32;
  float grad_scale = 1.0f;
  float beta1 = 0.0f;
  float one_minus_beta1 = 0.0f;
  float beta2 = 0.0f;
  float one_minus_beta2 = 0.0f;
  float learning_rate = 0.0f;
  float correction = 1.0f;
  float epsilon = 0.0f;
  float weight_decay = 0.0f;
};

struct VectorKernels {
  const char* name;  // "avx512", "avx2", "baseline"
  void (*pointwise)(const PointwiseJob& job, int64_t row_begin, int64_t row_end);
  void (*layer_norm_forward)(const LayerNormForwardJob& job, int64_t row_begin, int64_t row_end);
  // Writes the rows' dgamma and dbeta sums, each [columns]; RMSNorm leaves dbeta alone.
  void (*layer_norm_backward)(const LayerNormBackwardJob& job, int64_t row_begin, int64_t row_end,
                              float* dgamma, float* dbeta);
  void (*embedding_forward)(const EmbeddingJob& job, int64_t row_begin, int64_t row_end);
  // All rows, in order, of the columns [begin, end); begin is a multiple of 8.
  void (*embedding_backward)(const EmbeddingJob& job, int64_t column_begin, int64_t column_end);
  void (*rotary)(const RotaryJob& job, int64_t row_begin, int64_t row_end);
  void (*softmax)(const SoftmaxJob& job, int64_t row_begin, int64_t row_end);
  void (*adamw)(const AdamWJob& job, int64_t begin, int64_t end);
  double (*sum_of_squares)(const float* x, int64_t count);
  // sums[c] = sum over rows [begin, end) of x[r, c]
  void (*column_sum)(Element element, const void* x, int64_t columns, int64_t row_begin,
                     int64_t row_end, float* sums);
  // y = a + b
  void (*add)(Element element, const void* a, const void* b, void* y, int64_t begin, int64_t end);
  // y = x in another type; fp32 -> bf16 if `to` is kBFloat16, else bf16 -> fp32
  void (*cast)(Element to, const void* x, void* y, int64_t begin, int64_t end);
  // exp and erfc of `count` elements, and the kept factors of one dropout row: for tests of their
  // errors
  void (*exp)(const float* x, float* y, int64_t count);
  void (*erfc)(const float* x, float* y, int64_t count);
  void (*dropout_factors)(const DropoutJob& job, int64_t row, int64_t columns, float* factors);
};

}  // namespace anyorder::kernels::cpu
