// Element types of tensors, and bfloat16.

#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

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

// As safetensors has them (core/base/fields.h).
constexpr auto SpellingsOf(DType) {
  return std::array{"F64", "F32", "BF16", "F16", "I64", "I32", "U16", "U8"};
}
constexpr absl::string_view Name(DType dtype) {
  return SpellingsOf(dtype)[static_cast<size_t>(dtype)];
}
inline constexpr int64_t kDTypeBytes[] = {8, 4, 2, 2, 8, 4, 2, 1};  // of an element
constexpr int64_t SizeOf(DType dtype) { return kDTypeBytes[static_cast<int>(dtype)]; }

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
constexpr DType DTypeOf() {
  if (std::is_same_v<T, double>) return DType::kFloat64;
  if (std::is_same_v<T, float>) return DType::kFloat32;
  if (std::is_same_v<T, BFloat16>) return DType::kBFloat16;
  if (std::is_same_v<T, int64_t>) return DType::kInt64;
  if (std::is_same_v<T, int32_t>) return DType::kInt32;
  if (std::is_same_v<T, uint16_t>) return DType::kUint16;
  static_assert(std::is_same_v<T, uint8_t> || std::is_same_v<T, uint16_t> ||
                    std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t> ||
                    std::is_same_v<T, BFloat16> || std::is_floating_point_v<T>,
                "no DType");
  return DType::kUint8;
}

}  // namespace anyorder
