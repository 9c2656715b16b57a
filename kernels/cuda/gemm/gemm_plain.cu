#include "kernels/arguments.h"
#include "kernels/cuda/gemm/gemm_plain.cuh"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"
#include "kernels/cuda/platform/storage.h"

namespace anyorder::kernels::cuda {

void PlainGemm(const GemmArgs& args, StreamView stream) {
  const int64_t columns_a = NumColumns(args.a);
  const int64_t columns_b = NumColumns(args.b);
  WithStorage(args.a.dtype(), [&]<typename T>() {
    WithStorage(args.c.dtype(), [&]<typename C>() {
      PlainGemmParams<T, C> params = {};
      params.a = args.a.data<T>();
      params.b = args.b.data<T>();
      params.bias = args.bias.is_null() ? nullptr : args.bias.data<T>();
      params.c = args.c.data<C>();
      params.m = args.transpose_a ? columns_a : NumRows(args.a);
      params.k = args.transpose_a ? NumRows(args.a) : columns_a;
      params.n = args.transpose_b ? NumRows(args.b) : columns_b;
      params.a_row = args.transpose_a ? 1 : columns_a;
      params.a_inner = args.transpose_a ? columns_a : 1;
      params.b_inner = args.transpose_b ? 1 : columns_b;
      params.b_column = args.transpose_b ? columns_b : 1;
      params.beta = args.beta;
      Launch(PlainGemmKernel<T, C>,
             {.blocks_x = CeilDivide(params.m * params.n, kPlainGemmThreads),
              .threads = kPlainGemmThreads},
             params, stream);
    });
  });
}

}  // namespace anyorder::kernels::cuda
