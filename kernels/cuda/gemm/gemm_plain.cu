// Matrix products of any shape, one thread an element: for those that cuBLASLt does not have, an
// inner size of 0 above all. Slow and exact to the contract (kernels/gemm.h).

#include "kernels/arguments.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {

inline constexpr int kPlainGemmThreads = 128;

template <typename T, typename C>
struct PlainGemmParams {
  const T* a;
  const T* b;
  const T* bias;  // or null
  C* c;
  int64_t m;
  int64_t n;
  int64_t k;
  // Elements between neighbours in each direction, whichever way the operand is stored.
  int64_t a_row;
  int64_t a_inner;
  int64_t b_inner;
  int64_t b_column;
  float scale;
  float beta;
};

template <typename T, typename C>
ANYORDER_KERNEL void PlainGemmKernel(PlainGemmParams<T, C> p) {
  const int64_t at = int64_t{BlockX()} * kPlainGemmThreads + Thread();
  if (at >= p.m * p.n) return;
  const int64_t row = at / p.n;
  const int64_t column = at % p.n;
  float sum = 0;
  for (int64_t i = 0; i < p.k; ++i)
    sum = MultiplyAdd(ToFloat(p.a[row * p.a_row + i * p.a_inner]),
                      ToFloat(p.b[i * p.b_inner + column * p.b_column]), sum);
  sum *= p.scale;
  if (p.bias != nullptr) sum += ToFloat(p.bias[column]);
  // With beta 0 the old value may be anything and is not read.
  if (p.beta != 0) sum += p.beta * ToFloat(p.c[at]);
  p.c[at] = FromFloat<C>(sum);
}

void PlainGemm(const GemmArgs& args, StreamView stream) {
  const GemmSizes size = SizesOf(args);
  const int64_t columns_a = NumColumns(args.a);
  const int64_t columns_b = NumColumns(args.b);
  WithStorage(args.a.dtype(), [&]<typename T>() {
    WithStorage(args.c.dtype(), [&]<typename C>() {
      PlainGemmParams<T, C> params = {};
      params.a = args.a.data<T>();
      params.b = args.b.data<T>();
      params.bias = DataOrNull<T>(args.bias);
      params.c = args.c.data<C>();
      params.m = size.m;
      params.n = size.n;
      params.k = size.k;
      params.a_row = args.transpose_a ? 1 : columns_a;
      params.a_inner = args.transpose_a ? columns_a : 1;
      params.b_inner = args.transpose_b ? 1 : columns_b;
      params.b_column = args.transpose_b ? columns_b : 1;
      params.scale = args.scale;
      params.beta = args.beta;
      Launch(PlainGemmKernel<T, C>, ShapeOfThreads(size.m * size.n, kPlainGemmThreads), params,
             stream);
    });
  });
}

}  // namespace anyorder::kernels::cuda
