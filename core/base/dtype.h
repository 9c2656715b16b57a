// Element types of tensors, and bfloat16.

#pragma once

#include <bit>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace anyorder {

// kFloat16 is only read from other people's files; no kernel computes in it.
enum class DType : uint8_t {
  kFloat64,
  kFloat32,
  kBFloat16,
  kFloat16,
  kInt64,
  kInt32,
  kUint16,
  kUint8
};

struct DTypeTraits {
  absl::string_view name;  // as safetensors spells it
  int64_t bytes = 0;       // of an element
};
inline constexpr DTypeTraits kDTypes[] = {{"F64", 8}, {"F32", 4}, {"BF16", 2}, {"F16", 2},
                                          {"I64", 8}, {"I32", 4}, {"U16", 2},  {"U8", 1}};

constexpr int64_t SizeOf(DType dtype) { return kDTypes[static_cast<int>(dtype)].bytes; }
constexpr absl::string_view Name(DType dtype) { return kDTypes[static_cast<int>(dtype)].name; }

// The upper half of a float, rounded to nearest even; NaN stays a (quiet) NaN.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit constexpr BFloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits =
        static_cast<uint16_t>(is_nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};
static_assert(sizeof(BFloat16) == 2);

template <DType dtype>
struct DTypeIs {
  static constexpr DType kValue = dtype;
};
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> : DTypeIs<DType::kFloat64> {};
template <>
struct DTypeOf<float> : DTypeIs<DType::kFloat32> {};
template <>
struct DTypeOf<BFloat16> : DTypeIs<DType::kBFloat16> {};
template <>
struct DTypeOf<int64_t> : DTypeIs<DType::kInt64> {};
template <>
struct DTypeOf<int32_t> : DTypeIs<DType::kInt32> {};
template <>
struct DTypeOf<uint16_t> : DTypeIs<DType::kUint16> {};
template <>
struct DTypeOf<uint8_t> : DTypeIs<DType::kUint8> {};

}  // namespace anyorder
