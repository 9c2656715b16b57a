// IEEE 754 binary16, in which some model files store their weights. Nothing computes in it.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace anyorder::launcher {

// Exact.
inline float FromFloat16(uint16_t bits) {
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  const int exponent = bits >> 10 & 0x1f;
  const auto fraction = static_cast<float>(bits & 0x3ffu);
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * std::ldexp(1024.0f + fraction, exponent - 25);
}

// Rounded to nearest even. From 65520 on the bits are those of infinity. REQUIRES: a finite value.
inline uint16_t ToFloat16(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000u : 0u);
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return sign | 0x7c00u;
  // Below 2^-14 all steps are 2^-24.
  const int exponent = std::max(magnitude == 0 ? -14 : std::ilogb(magnitude), -14);
  const float steps = std::nearbyint(std::ldexp(magnitude, 10 - exponent));
  // 2048 steps carry over into the exponent.
  return static_cast<uint16_t>(sign + ((exponent + 15) << 10) + static_cast<int>(steps) - 1024);
}

}  // namespace anyorder::launcher
