#include "tests/bench/operands.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/base/check.h"
#include "tests/testing/dithered.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::bench {
namespace {

test::HostTensor DrawValues(DType dtype, int64_t count, double deviation, bool dithered) {
  std::vector<double> numbers =
      test::RandomTensor(DType::kBFloat16, {count}, 1, deviation).Values();
  if (dithered) numbers = testing::Dithered(std::move(numbers), 2);
  test::HostTensor values(dtype, {count});
  for (int64_t i = 0; i < count; ++i) values.Set(i, numbers[static_cast<size_t>(i)]);
  return values;
}

}  // namespace

void* DeviceMemory::Allocate(int64_t bytes) {
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> buffer = backend_.Allocate(bytes);
  ANYORDER_CHECK_OK(buffer.status());
  buffers_.push_back(*std::move(buffer));
  return buffers_.back()->data();
}

TensorView DeviceMemory::Tensor(DType dtype, Shape shape) {
  return TensorView(Allocate(shape.num_elements() * SizeOf(dtype)), dtype, shape);
}

TensorView DeviceMemory::Random(DType dtype, Shape shape, uint64_t seed, double deviation,
                                bool dithered) {
  // A length that no row divides: lanes are not copies of each other.
  constexpr int64_t kPiece = (1 << 20) - 3;
  constexpr int64_t kPlaces = 1 << 12;
  static std::map<std::tuple<DType, double, bool>, test::HostTensor> drawn;
  test::HostTensor& values = drawn[{dtype, deviation, dithered}];
  if (values.size() == 0) values = DrawValues(dtype, kPiece + kPlaces, deviation, dithered);
  const TensorView tensor = Tensor(dtype, shape);
  const int64_t total = shape.num_elements();
  const auto place = static_cast<int64_t>(seed * 977 % kPlaces);
  for (int64_t begin = 0; begin < total; begin += kPiece) {
    const TensorView piece = tensor.Slice(begin, {std::min(kPiece, total - begin)});
    const TensorView from = values.view().Slice(place, piece.shape());
    backend_.CopyToDevice(from.raw(), piece.raw(), piece.num_bytes(), {});
  }
  return tensor;
}

std::vector<float> Download(kernels::Backend& device, const TensorView& view) {
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  if (view.dtype() == DType::kFloat32) {
    device.CopyToHost(view.raw(), values.data(), view.num_bytes(), {});
    device.Synchronize({});
    return values;
  }
  std::vector<BFloat16> narrow(values.size());
  device.CopyToHost(view.raw(), narrow.data(), view.num_bytes(), {});
  device.Synchronize({});
  std::transform(narrow.begin(), narrow.end(), values.begin(),
                 [](BFloat16 x) { return static_cast<float>(x); });
  return values;
}

LayerNormOperands MakeLayerNorm(DeviceMemory& memory, DType dtype, int64_t rows, int64_t columns,
                                const kernels::Dropout& dropout, uint64_t seed) {
  const Shape shape{rows, columns};
  LayerNormOperands operands;
  kernels::LayerNormForwardArgs& forward = operands.forward;
  forward.x = memory.Random(dtype, shape, seed + 1);
  forward.residual = memory.Random(dtype, shape, seed + 2);
  forward.gamma = memory.Random(dtype, {columns}, 3);
  forward.beta = memory.Random(dtype, {columns}, 4);
  forward.dropout = dropout;
  forward.row_ids = memory.Array(test::RowIds(rows));
  forward.sum = memory.Tensor(dtype, shape);
  forward.mean = memory.Tensor(DType::kFloat32, {rows});
  forward.rstd = memory.Tensor(DType::kFloat32, {rows});
  forward.y = memory.Tensor(dtype, shape);
  kernels::LayerNormBackwardArgs& backward = operands.backward;
  backward.dy = forward.x;
  backward.sum = forward.sum;
  backward.mean = forward.mean;
  backward.rstd = forward.rstd;
  backward.gamma = forward.gamma;
  backward.dropout = dropout;
  backward.row_ids = forward.row_ids;
  backward.dx = forward.y;
  backward.dresidual = memory.Tensor(dtype, shape);
  backward.dgamma = memory.Tensor(DType::kFloat32, {columns});
  backward.dbeta = memory.Tensor(DType::kFloat32, {columns});
  return operands;
}

kernels::LinearCrossEntropyArgs MakeClassifier(DeviceMemory& memory, DType dtype, int64_t rows,
                                               int64_t columns, int64_t vocab) {
  return {.x = memory.Random(dtype, {rows, columns}, 1),
          .weight = memory.Random(dtype, {vocab, columns}, 2, 0.02),
          .bias = memory.Random(dtype, {vocab}, 3, 0.02),
          .labels = memory.Array(test::RandomIds(rows, vocab, 4)),
          .row_weights = memory.Array(std::vector<float>(static_cast<size_t>(rows), 1.0f)),
          .loss = memory.Tensor(DType::kFloat32, {rows}),
          .dx = memory.Tensor(dtype, {rows, columns}),
          .dweight = memory.Tensor(DType::kFloat32, {vocab, columns}),
          .dbias = memory.Tensor(DType::kFloat32, {vocab}),
          .workspace = memory.Tensor(
              DType::kUint8,
              {memory.backend().LinearCrossEntropyWorkspaceBytes(rows, columns, vocab, dtype)})};
}

kernels::AdamWArgs MakeAdamW(DeviceMemory& memory, DType dtype, int64_t count) {
  return {.grad = memory.Random(DType::kFloat32, {count}, 1, 1e-3),
          .master = memory.Random(DType::kFloat32, {count}, 2, 0.02),
          .m = memory.Random(DType::kFloat32, {count}, 3, 1e-3),
          .v = memory.Tensor(DType::kFloat32, {count}),
          .weights = memory.Tensor(dtype, {count}),
          .learning_rate = 1e-5};
}

}  // namespace anyorder::bench
