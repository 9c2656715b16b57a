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

constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64: return 8;
    case DType::kFloat32:
    case DType::kInt32: return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
    case DType::kUint16: return 2;
    case DType::kUint8: return 1;
  }
  return 0;
}

// The safetensors spelling: "F64", "F32", "BF16", "F16", "I64", "I32", "U16", "U8".
constexpr absl::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return "F64";
    case DType::kFloat32: return "F32";
    case DType::kBFloat16: return "BF16";
    case DType::kFloat16: return "F16";
    case DType::kInt64: return "I64";
    case DType::kInt32: return "I32";
    case DType::kUint16: return "U16";
    case DType::kUint8: return "U8";
  }
  return "?";
}

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

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType kValue = DType::kFloat64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kFloat32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType kValue = DType::kBFloat16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType kValue = DType::kInt64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType kValue = DType::kInt32;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType kValue = DType::kUint16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType kValue = DType::kUint8;
};

}  // namespace anyorder
