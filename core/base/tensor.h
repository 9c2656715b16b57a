// Borrowed views of dense row-major tensors: pointer, dtype, shape. Copying a view copies no data.

#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/dtype.h"

namespace anyorder {

class Shape {
 public:
  static constexpr int kMaxRank = 5;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<int64_t> dims) {  // NOLINT(google-explicit-constructor)
    for (const int64_t dim : dims) Append(dim);
  }

  // REQUIRES: rank() < kMaxRank.
  constexpr void Append(int64_t dim) { dims_[rank_++] = dim; }

  constexpr int rank() const { return rank_; }
  constexpr int64_t operator[](int i) const { return dims_[i]; }
  constexpr int64_t num_elements() const {
    int64_t count = 1;
    for (int i = 0; i < rank_; ++i) count *= dims_[i];
    return count;
  }
  constexpr bool operator==(const Shape&) const = default;
  // "[2, 3]"
  std::string ToString() const {
    std::string text = "[";
    for (int i = 0; i < rank_; ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", dims_[i]);
    return text + "]";
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};  // 0 from rank_ on
  int rank_ = 0;
};

// `Void` is `void` or `const void`. A default-constructed view is null: "not given".
template <typename Void>
class BasicTensorView {
 public:
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;

  BasicTensorView() = default;
  BasicTensorView(Void* data, DType dtype, Shape shape)
      : data_(data), dtype_(dtype), shape_(shape) {}
  template <typename T>
  BasicTensorView(T* data, Shape shape)
      : data_(data), dtype_(DTypeOf<std::remove_const_t<T>>()), shape_(shape) {}

  // A mutable view converts to a read-only one.
  operator BasicTensorView<const void>() const {  // NOLINT(google-explicit-constructor)
    return BasicTensorView<const void>(data_, dtype_, shape_);
  }

  bool is_null() const { return data_ == nullptr; }
  Void* raw() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t num_elements() const { return shape_.num_elements(); }
  int64_t num_bytes() const { return num_elements() * SizeOf(dtype_); }

  template <typename T>
  Element<T>* data() const {
    ANYORDER_CHECK(dtype_ == DTypeOf<T>()) << "tensor holds " << Name(dtype_);
    return static_cast<Element<T>*>(data_);
  }

  // The elements from flat element `begin` on, seen with `shape`.
  BasicTensorView Slice(int64_t begin, Shape shape) const {
    ANYORDER_CHECK(begin >= 0 && begin + shape.num_elements() <= num_elements())
        << "slice " << begin << "+" << shape.ToString() << " of " << shape_.ToString();
    using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
    return BasicTensorView(static_cast<Byte*>(data_) + begin * SizeOf(dtype_), dtype_, shape);
  }
  BasicTensorView Reshape(Shape shape) const {
    ANYORDER_CHECK(shape.num_elements() == num_elements());
    return BasicTensorView(data_, dtype_, shape);
  }

 private:
  Void* data_ = nullptr;
  DType dtype_ = DType::kFloat32;
  Shape shape_;
};

using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

}  // namespace anyorder
