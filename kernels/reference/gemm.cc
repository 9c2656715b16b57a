#include "kernels/arguments.h"
#include "kernels/reference/operations.h"

namespace anyorder::kernels::reference {

namespace {

template <typename T, typename C>
void GemmOf(const GemmArgs& args, const GemmSizes& size) {
  const T* a = args.a.data<T>();
  const T* b = args.b.data<T>();
  const T* bias = DataOrNull<T>(args.bias);
  C* c = args.c.data<C>();
  for (int64_t i = 0; i < size.m; ++i) {
    for (int64_t j = 0; j < size.n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < size.k; ++p) {
        const T a_ip = args.transpose_a ? a[p * size.m + i] : a[i * size.k + p];
        const T b_pj = args.transpose_b ? b[j * size.k + p] : b[p * size.n + j];
        sum += Load(a_ip) * Load(b_pj);
      }
      sum *= args.scale;
      if (bias != nullptr) sum += Load(bias[j]);
      C& result = c[i * size.n + j];
      // With beta 0 the old value may be anything, NaN too, and must not be read.
      if (args.beta != 0.0f) sum += args.beta * Load(result);
      result = Round<C>(sum);
    }
  }
}

}  // namespace

void Run(const GemmArgs& args) {
  const GemmSizes size = CheckArguments(args);
  for (int64_t i = 0; i < args.batch.count; ++i) {
    const GemmArgs product = ProductOf(args, i);
    WithStorage(args.a.dtype(), [&]<typename T>() {
      if (args.c.dtype() == DTypeOf<T>())
        GemmOf<T, T>(product, size);
      else
        GemmOf<T, GradientOf<T>>(product, size);
    });
    if (const ColumnSumArgs sum = SumOf(product); !sum.y.is_null()) Run(sum);
  }
}

void Run(const ColumnSumArgs& args) {
  WithStorage(args.x.dtype(), [&]<typename T>() {
    using G = GradientOf<T>;
    const T* x = args.x.data<T>();
    G* y = args.y.data<G>();
    const int64_t columns = NumColumns(args.x);
    for (int64_t c = 0; c < columns; ++c) {
      double sum = args.beta != 0.0f ? args.beta * Load(y[c]) : 0.0;
      for (int64_t r = 0; r < NumRows(args.x); ++r) sum += Load(x[r * columns + c]);
      y[c] = Round<G>(sum);
    }
  });
}

}  // namespace anyorder::kernels::reference
