// Tensors that own host memory, for tests: any dtype, filled from a seed, read and written as
// double.

#pragma once

#include <cmath>
#include <vector>

#include "core/base/philox.h"
#include "core/base/tensor.h"

namespace anyorder::test {

class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, Shape shape)
      : dtype_(dtype),
        shape_(shape),
        bytes_(static_cast<size_t>(shape.num_elements() * SizeOf(dtype))) {}

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t size() const { return bytes_.empty() ? 0 : shape_.num_elements(); }
  // Null if default-constructed: an argument that is not given.
  TensorView view() {
    return shape_.rank() == 0 ? TensorView()
                              : TensorView(const_cast<void*>(Place()), dtype_, shape_);
  }
  ConstTensorView view() const {
    return shape_.rank() == 0 ? ConstTensorView() : ConstTensorView(Place(), dtype_, shape_);
  }

  double At(int64_t i) const {
    switch (dtype_) {
      case DType::kFloat64: return view().data<double>()[i];
      case DType::kFloat32: return view().data<float>()[i];
      case DType::kBFloat16: return static_cast<float>(view().data<BFloat16>()[i]);
      default: ANYORDER_CHECK(false) << Name(dtype_);
    }
    return 0;
  }
  void Set(int64_t i, double value) {
    switch (dtype_) {
      case DType::kFloat64: view().data<double>()[i] = value; return;
      case DType::kFloat32: view().data<float>()[i] = static_cast<float>(value); return;
      case DType::kBFloat16:
        view().data<BFloat16>()[i] = BFloat16(static_cast<float>(value));
        return;
      default: ANYORDER_CHECK(false) << Name(dtype_);
    }
  }
  std::vector<double> Values() const {
    std::vector<double> values(size());
    for (int64_t i = 0; i < size(); ++i) values[i] = At(i);
    return values;
  }
  bool SameBits(const HostTensor& other) const { return bytes_ == other.bytes_; }

 private:
  // One without elements has a place, too.
  const void* Place() const {
    alignas(16) static const char kNowhere[16] = {};
    return bytes_.empty() ? kNowhere : bytes_.data();
  }

  DType dtype_ = DType::kFloat32;
  Shape shape_;
  std::vector<char> bytes_;
};

// Standard normal values times `deviation`, rounded to `dtype`.
inline HostTensor RandomTensor(DType dtype, Shape shape, uint64_t seed, double deviation = 1.0) {
  HostTensor tensor(dtype, shape);
  RandomStream random(seed, RandomPurpose::kInit, 0, 0);
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, deviation * random.Normal());
  return tensor;
}

// Small integers: their sums are exact, so that results have the same bits whatever the order.
inline HostTensor Integers(DType dtype, Shape shape, int64_t seed) {
  HostTensor tensor(dtype, shape);
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.Set(i, static_cast<double>((i * 7 + seed) % 11 - 5));
  return tensor;
}

// [size], with these values.
inline HostTensor TensorOf(DType dtype, const std::vector<double>& values) {
  HostTensor tensor(dtype, {static_cast<int64_t>(values.size())});
  for (int64_t i = 0; i < tensor.size(); ++i) tensor.Set(i, values[i]);
  return tensor;
}

template <typename T>
ConstTensorView ViewOf(const std::vector<T>& values) {
  return ConstTensorView(values.data(), {static_cast<int64_t>(values.size())});
}

// The same values in another dtype; exact when it is the wider one.
inline HostTensor ToDType(const HostTensor& tensor, DType dtype) {
  if (tensor.shape().rank() == 0) return tensor;  // not given
  HostTensor result(dtype, tensor.shape());
  for (int64_t i = 0; i < tensor.size(); ++i) result.Set(i, tensor.At(i));
  return result;
}
inline HostTensor Wide(const HostTensor& tensor) { return ToDType(tensor, DType::kFloat64); }
inline HostTensor Absolute(const HostTensor& tensor) {
  HostTensor result = tensor;
  for (int64_t i = 0; i < tensor.size(); ++i) result.Set(i, std::fabs(tensor.At(i)));
  return result;
}

// Row ids that are neither consecutive nor small, as logical ids of a microbatch are.
inline std::vector<int32_t> RowIds(int64_t rows) {
  std::vector<int32_t> ids(rows);
  for (int64_t r = 0; r < rows; ++r) ids[r] = static_cast<int32_t>(100003 * r + 17);
  return ids;
}

// Integers in [0, bound).
inline std::vector<int32_t> RandomIds(int64_t count, int64_t bound, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kPairs, 0, 0);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(static_cast<uint32_t>(bound)));
  return ids;
}

}  // namespace anyorder::test
