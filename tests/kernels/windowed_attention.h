// Longformer's attention (Beltagy et al. 2020, section 3) computed in the four ways that its
// authors and we know, to be compared:
//
//   dense    scores of all pairs, masked: T x T floats
//   loop one diagonal of the score matrix at a time; leanest, any stride and side, no matrix
//   products
//   chunks overlapping blocks of twice the window, a matrix product each; about twice the loop's
//   memory, T a multiple of
//            the whole window, undilated and two-sided
//   fused the product's kernel (kernels/attention.h), windows as data; for global rows a second
//   call
//
// One lane and one head. The first `num_global` slots are global: local rows share one softmax over
// global keys and window, global rows see everything through projections of their own and replace
// what the local ones would give there (the released code). The first three keep their
// probabilities for backward, as automatic differentiation does.
//
// T slots, D head size, W diagonals, G global slots. All tensors fp32.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace anyorder::kernels::testing {

enum class Way { kDense, kLoop, kChunks, kFused };

struct WindowedShape {
  int64_t length = 0;    // T
  int64_t head_dim = 0;  // D
  Band band;             // limited on both sides
  int64_t num_global = 0;
  bool causal = false;  // no row sees a later key, global or not

  float scale() const;
  // Whether local row `i` sees key `j`.
  bool IsVisible(int64_t i, int64_t j) const;
  bool IsVisibleToGlobal(int64_t i, int64_t j) const { return !causal || j <= i; }
};

struct WindowedInputs {
  const float* q = nullptr;         // [T, D], rows of global slots are not used
  const float* k = nullptr;         // [T, D]
  const float* v = nullptr;         // [T, D]
  const float* global_q = nullptr;  // [G, D]
  const float* global_k = nullptr;  // [T, D]
  const float* global_v = nullptr;  // [T, D]
};

struct WindowedGradients {  // shapes as above; all overwritten, unused rows of dq with 0
  float* dq = nullptr;
  float* dk = nullptr;
  float* dv = nullptr;
  float* dglobal_q = nullptr;
  float* dglobal_k = nullptr;
  float* dglobal_v = nullptr;
};

class WindowedAttention {
 public:
  virtual ~WindowedAttention() = default;
  // out: [T, D].
  virtual void Forward(const WindowedInputs& in, float* out) = 0;
  // REQUIRES: Forward was called with the same inputs; `out` is what it gave. dout: [T, D].
  virtual void Backward(const WindowedInputs& in, const float* out, const float* dout,
                        const WindowedGradients& gradients) = 0;
};

// Inputs of such a problem.
std::vector<float> NormalValues(int64_t count, uint64_t seed);

// Null where the way cannot do the shape (see above). `backend` computes the matrix products and is
// borrowed.
std::unique_ptr<WindowedAttention> MakeWindowedAttention(Way way, const WindowedShape& shape,
                                                         Backend& backend);

}  // namespace anyorder::kernels::testing
