#include "kernels/cuda/gemm.h"

#include "kernels/arguments.h"
#include "kernels/cuda/operations.h"

namespace anyorder::kernels::cuda {

ColumnMajorProduct ColumnMajorOf(const GemmArgs& args) {
  ColumnMajorProduct product;
  product.key = GemmKeyOf(args);
  product.a = args.b.raw();
  product.b = args.a.raw();
  product.bias = args.bias.raw();
  product.d = args.c.raw();
  product.transpose_a = args.transpose_b;
  product.transpose_b = args.transpose_a;
  product.rows = product.key.n;
  product.columns = product.key.m;
  product.inner = product.key.k;
  product.stride_a = NumColumns(args.b);
  product.stride_b = NumColumns(args.a);
  product.stride_d = product.key.n;
  return product;
}

GemmEngine::~GemmEngine() {
  for (auto* blocks : {&workspaces_, &biases_}) {
    for (const auto& [stream, block] : *blocks)
      runtime_.FreeDevice(block.data);
  }
}

void* GemmEngine::Grow(Runtime& runtime, Block& block, int64_t bytes) {
  if (block.bytes >= bytes) return block.data;
  if (block.data != nullptr) runtime.FreeDevice(block.data);
  block = {};
  block = {AllocateOrEnd(runtime, bytes), bytes};
  return block.data;
}

void* GemmEngine::Workspace(StreamView stream, int64_t bytes) {
  return Grow(runtime_, workspaces_[stream.handle], bytes);
}

void GemmEngine::Run(const GemmArgs& args, StreamView stream) {
  ColumnMajorProduct product = ColumnMajorOf(args);
  if (product.rows == 0 || product.columns == 0) return;
  if (product.inner == 0) return PlainGemm(args, stream);
  if (product.bias != nullptr && args.bias.dtype() != args.c.dtype()) {
    // Libraries add the bias in d's dtype.
    void* wide = Grow(runtime_, biases_[stream.handle], product.rows * SizeOf(args.c.dtype()));
    Cast(args.bias, TensorView(wide, args.c.dtype(), {product.rows}), stream);
    product.bias = wide;
  }
  if (!Multiply(product, stream)) PlainGemm(args, stream);
}

}  // namespace anyorder::kernels::cuda
