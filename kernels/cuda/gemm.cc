#include "kernels/cuda/gemm.h"

#include <algorithm>
#include <cstdint>

#include "core/base/check.h"
#include "core/base/status.h"
#include "kernels/arguments.h"
#include "kernels/cuda/operations.h"

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
  for (auto* blocks : {&workspaces_, &biases_, &sums_}) {
    for (const auto& [stream, block] : *blocks) {
      if (block.data != nullptr) runtime_.FreeDevice(block.data);
    }
  }
}

absl::Status GemmEngine::Grow(Block& block, int64_t bytes, StreamView stream) {
  if (block.bytes >= bytes) return absl::OkStatus();
  ANYORDER_CHECK(!runtime_.IsCapturing(stream))
      << "a product needs " << bytes << " bytes more for the first time inside of a graph";
  if (block.data != nullptr) runtime_.FreeDevice(block.data);
  block = {};
  ANYORDER_ASSIGN_OR_RETURN(block.data, runtime_.AllocateDevice(bytes));
  block.bytes = bytes;
  return absl::OkStatus();
}

void* GemmEngine::GrowOrEnd(Block& block, int64_t bytes, StreamView stream) {
  if (const absl::Status status = Grow(block, bytes, stream); !status.ok()) EndWith(status);
  return block.data;
}

absl::Status GemmEngine::Reserve(int64_t rows, int64_t columns, StreamView stream) {
  // SumApart's, too.
  const int64_t partials = ColumnSumScratchElements(rows, columns) * SizeOf(DType::kFloat32);
  ANYORDER_RETURN_IF_ERROR(
      Grow(workspaces_[stream.handle], std::max(workspace_bytes(), partials), stream));
  for (auto* vectors : {&biases_, &sums_}) {
    ANYORDER_RETURN_IF_ERROR(
        Grow((*vectors)[stream.handle], columns * SizeOf(DType::kFloat32), stream));
  }
  return absl::OkStatus();
}

void* GemmEngine::Workspace(StreamView stream, int64_t bytes) {
  return GrowOrEnd(workspaces_[stream.handle], bytes, stream);
}

const void* GemmEngine::BiasFor(const GemmArgs& args, StreamView stream) {
  const DType dtype = args.c.dtype();
  if (args.bias.dtype() == dtype && IsAligned(args.bias.raw())) return args.bias.raw();
  const int64_t bytes = args.bias.num_elements() * SizeOf(dtype);
  void* const copy = GrowOrEnd(biases_[stream.handle], bytes, stream);
  if (args.bias.dtype() == dtype) {
    runtime_.CopyOnDevice(args.bias.raw(), copy, bytes, stream);
  } else {
    Cast(args.bias, TensorView(copy, dtype, {args.bias.num_elements()}), stream);
  }
  return copy;
}

void* GemmEngine::PlaceOf(const TensorView& sum, StreamView stream) {
  if (IsAligned(sum.raw())) return sum.raw();
  return GrowOrEnd(sums_[stream.handle], sum.num_bytes(), stream);
}

void GemmEngine::SumApart(const ColumnSumArgs& sum, StreamView stream) {
  const int64_t elements = ColumnSumScratchElements(NumRows(sum.x), NumColumns(sum.x));
  const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
  // After the product, which is done with the workspace.
  auto* const partials = static_cast<float*>(Workspace(stream, bytes));
  if (runtime_.is_emulated() && bytes > 0) runtime_.FillBytes(partials, 0xff, bytes, stream);
  ColumnSum(sum, {partials, elements}, stream);
}

bool GemmEngine::RunProduct(const GemmArgs& args, const TensorView& sum, StreamView stream) {
  ColumnMajorProduct product = ColumnMajorOf(args);
  if (product.rows == 0 || product.columns == 0) return false;
  if (product.inner == 0) {
    PlainGemm(args, stream);
    return false;
  }
  if (product.bias != nullptr) product.bias = BiasFor(args, stream);
  if (MayFuseSum(product.key)) product.sum = PlaceOf(sum, stream);
  const Made made = Multiply(product, stream);
  if (made == Made::kNothing) PlainGemm(args, stream);
  if (made != Made::kProductAndSum) return false;
  if (product.sum != sum.raw())
    runtime_.CopyOnDevice(product.sum, sum.raw(), sum.num_bytes(), stream);
  return true;
}

void GemmEngine::Run(const GemmArgs& args, StreamView stream) {
  const ColumnSumArgs sum = SumOf(args);
  const bool is_summed = RunProduct(args, sum.y, stream);
  if (!sum.y.is_null() && !is_summed) SumApart(sum, stream);
}

}  // namespace anyorder::kernels::cuda
