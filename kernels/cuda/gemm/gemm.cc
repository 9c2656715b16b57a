#include "kernels/cuda/gemm/gemm.h"

#include <cstdint>

#include "core/base/status.h"
#include "kernels/arguments.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch_shape.h"

namespace anyorder::kernels::cuda {

namespace {

bool IsAligned(const void* vector) {
  return reinterpret_cast<uintptr_t>(vector) % kBiasAlignment == 0;
}

}  // namespace

ColumnMajorProduct ColumnMajorOf(const GemmArgs& args) {
  ColumnMajorProduct product;
  product.key = GemmKeyOf(args);
  product.a = args.b.raw();
  product.b = args.a.raw();
  product.bias = args.bias.raw();
  product.d = args.c.raw();
  product.scale = args.scale;
  return product;
}

GemmEngine::GemmEngine(Runtime& runtime)
    : runtime_(runtime),
      workspaces_(runtime.MakeScratch()),
      biases_(runtime.MakeScratch()),
      sums_(runtime.MakeScratch()) {}

absl::Status GemmEngine::Reserve(int64_t rows, int64_t columns, StreamView stream) {
  const GemmReserve bytes = GemmReserveOf(rows, columns, workspace_bytes());
  RETURN_IF_ERROR(workspaces_->Reserve(bytes.workspace, stream));
  RETURN_IF_ERROR(biases_->Reserve(bytes.bias, stream));
  return sums_->Reserve(bytes.sum, stream);
}

void* GemmEngine::Workspace(StreamView stream, int64_t bytes) {
  return workspaces_->Take(bytes, stream);
}

void GemmEngine::SetBias(const GemmArgs& args, ColumnMajorProduct* product, StreamView stream) {
  const DType dtype = args.c.dtype();
  const bool is_one = args.batch.count == 1;
  const int64_t step = is_one ? 0 : args.batch.bias;
  product->bias = args.bias.raw();
  product->step_bias = step;
  if (args.bias.dtype() == dtype && IsAligned(args.bias.raw()) &&
      step * SizeOf(dtype) % kBiasAlignment == 0)
    return;
  const int64_t elements = args.bias.num_elements();
  const int64_t bytes = elements * SizeOf(dtype);
  const int64_t padded = CeilDivide(bytes, kBiasAlignment) * kBiasAlignment;
  char* const copies = static_cast<char*>(biases_->Take(args.batch.count * padded, stream));
  for (int64_t i = 0; i < args.batch.count; ++i) {
    const ConstTensorView bias = ProductOf(args, i).bias;
    char* const copy = copies + i * padded;
    if (bias.dtype() == dtype) {
      runtime_.CopyOnDevice(bias.raw(), copy, bytes, stream);
    } else {
      cuda::Run(CastArgs{bias, TensorView(copy, dtype, {elements})}, stream);
    }
  }
  product->bias = copies;
  product->step_bias = is_one ? 0 : padded / SizeOf(dtype);
}

void GemmEngine::SumApart(const ColumnSumArgs& sum, StreamView stream) {
  const int64_t elements = ColumnSumScratchElements(NumRows(sum.x), NumColumns(sum.x));
  const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
  // After the product, which is done with the workspace.
  auto* const partials = static_cast<float*>(Workspace(stream, bytes));
  cuda::Run(sum, partials, stream);
}

bool GemmEngine::RunProduct(const GemmArgs& args, const TensorView& sum, StreamView stream) {
  ColumnMajorProduct product = ColumnMajorOf(args);
  if (product.rows() == 0 || product.columns() == 0) return false;
  if (product.bias != nullptr && product.inner() > 0) SetBias(args, &product, stream);
  // Where the library may store the sum: its place, or room to copy it from.
  if (MayFuseSum(product.key))
    product.sum = IsAligned(sum.raw()) ? sum.raw() : sums_->Take(sum.num_bytes(), stream);
  const Made made = product.inner() == 0 ? Made::kNothing : Multiply(product, stream);
  for (int64_t i = 0; i < args.batch.count && made == Made::kNothing; ++i)
    PlainGemm(ProductOf(args, i), stream);
  if (made != Made::kProductAndSum) return false;
  if (product.sum != sum.raw())
    runtime_.CopyOnDevice(product.sum, sum.raw(), sum.num_bytes(), stream);
  return true;
}

void GemmEngine::Run(const GemmArgs& args, StreamView stream) {
  if (args.batch.count == 0) return;
  const ColumnSumArgs sum = SumOf(args);
  if (RunProduct(args, sum.y, stream) || sum.y.is_null()) return;
  for (int64_t i = 0; i < args.batch.count; ++i) SumApart(SumOf(ProductOf(args, i)), stream);
}

}  // namespace anyorder::kernels::cuda
