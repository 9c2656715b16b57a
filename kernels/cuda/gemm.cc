#include "kernels/cuda/gemm.h"

#include <cstdint>

#include "core/base/check.h"
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

void* GemmEngine::Grow(Block& block, int64_t bytes, StreamView stream) {
  if (block.bytes >= bytes) return block.data;
  ANYORDER_CHECK(!runtime_.IsCapturing(stream))
      << "a product needs " << bytes << " bytes more for the first time inside of a graph";
  if (block.data != nullptr) runtime_.FreeDevice(block.data);
  block = {};
  block = {AllocateOrEnd(runtime_, bytes), bytes};
  return block.data;
}

void* GemmEngine::Workspace(StreamView stream, int64_t bytes) {
  return Grow(workspaces_[stream.handle], bytes, stream);
}

const void* GemmEngine::BiasFor(const GemmArgs& args, StreamView stream) {
  const DType dtype = args.c.dtype();
  const bool is_aligned = reinterpret_cast<uintptr_t>(args.bias.raw()) % kBiasAlignment == 0;
  if (args.bias.dtype() == dtype && is_aligned) return args.bias.raw();
  const int64_t bytes = args.bias.num_elements() * SizeOf(dtype);
  void* const copy = Grow(biases_[stream.handle], bytes, stream);
  if (args.bias.dtype() == dtype) {
    runtime_.CopyOnDevice(args.bias.raw(), copy, bytes, stream);
  } else {
    Cast(args.bias, TensorView(copy, dtype, {args.bias.num_elements()}), stream);
  }
  return copy;
}

void GemmEngine::Run(const GemmArgs& args, StreamView stream) {
  ColumnMajorProduct product = ColumnMajorOf(args);
  if (product.rows == 0 || product.columns == 0) return;
  if (product.inner == 0) return PlainGemm(args, stream);
  if (product.bias != nullptr) product.bias = BiasFor(args, stream);
  if (!Multiply(product, stream)) PlainGemm(args, stream);
}

}  // namespace anyorder::kernels::cuda
