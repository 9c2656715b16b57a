// Results of operations for the host: losses, logits.

#pragma once

#include <cstdint>
#include <vector>

#include "core/base/tensor.h"
#include "kernels/backend.h"

namespace anyorder {

// A tensor of the device as the host reads it: the tensor itself where the device's memory is the
// host's.
class HostCopy {
 public:
  // Asks for the elements of `x`, which view() has after Backend::Synchronize. Allocates for the
  // first tensor of its size only.
  void Fetch(ConstTensorView x, kernels::Backend& backend, StreamView stream) {
    view_ = x;
    if (backend.is_host_memory()) return;
    bytes_.resize(static_cast<size_t>(x.num_bytes()));
    backend.CopyToHost(x.raw(), bytes_.data(), x.num_bytes(), stream);
    view_ = ConstTensorView(bytes_.data(), x.dtype(), x.shape());
  }
  ConstTensorView view() const { return view_; }
  // Element `i` of any activation or gradient dtype.
  double At(int64_t i) const {
    switch (view_.dtype()) {
      case DType::kFloat64: return view_.data<double>()[i];
      case DType::kBFloat16:
        return static_cast<double>(static_cast<float>(view_.data<BFloat16>()[i]));
      default: return static_cast<double>(view_.data<float>()[i]);
    }
  }

 private:
  std::vector<char> bytes_;
  ConstTensorView view_;
};

}  // namespace anyorder
