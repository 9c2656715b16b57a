// Device memory, and operands of operations in it, for programs that time them.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/tensor.h"
#include "kernels/backend.h"

namespace anyorder::bench {

// Device memory of one case.
class DeviceMemory {
 public:
  explicit DeviceMemory(kernels::Backend& backend) : backend_(backend) {}
  TensorView Tensor(DType dtype, Shape shape);
  // Normal values: a million that are drawn once for each deviation, from a place on that `seed`
  // chooses, again and again. All are numbers of bf16, or, `dithered`, are moved from these by up
  // to half of bf16's distance.
  TensorView Random(DType dtype, Shape shape, uint64_t seed, double deviation = 1.0,
                    bool dithered = false);
  TensorView Floats(const std::vector<float>& values) {
    return TensorView(const_cast<float*>(Array(values)), {static_cast<int64_t>(values.size())});
  }
  template <typename T>
  const T* Array(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    void* const device = Allocate(bytes);
    backend_.CopyToDevice(values.data(), device, bytes, {});
    return static_cast<const T*>(device);
  }
  kernels::Backend& backend() { return backend_; }

 private:
  void* Allocate(int64_t bytes);

  kernels::Backend& backend_;
  std::vector<std::unique_ptr<kernels::Buffer>> buffers_;
};

// A tensor of fp32 or bf16 as fp32, in host memory.
std::vector<float> Download(kernels::Backend& device, const TensorView& view);

// Rows of the residual stream. Backward reads what forward wrote.
struct LayerNormOperands {
  kernels::LayerNormForwardArgs forward;
  kernels::LayerNormBackwardArgs backward;
};
LayerNormOperands MakeLayerNorm(DeviceMemory& memory, DType dtype, int64_t rows, int64_t columns,
                                const kernels::Dropout& dropout, uint64_t seed);
// Loss and all gradients of `rows` targets.
kernels::LinearCrossEntropyArgs MakeClassifier(DeviceMemory& memory, DType dtype, int64_t rows,
                                               int64_t columns, int64_t vocab);
// fp32 state, and weights of `dtype`.
kernels::AdamWArgs MakeAdamW(DeviceMemory& memory, DType dtype, int64_t count);

}  // namespace anyorder::bench
