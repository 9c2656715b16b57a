#include "core/network/layers/positions.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace anyorder {
namespace {

TEST(EncodeDistanceTest, MatchesThePublishedExample) {
  std::array<double, 4> row{};
  EncodeDistance(3, -1, 4, row.data());
  const std::array<double, 4> ahead = {0.141120, 0.029996, -0.989992, 0.999550};
  for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], ahead[i], 5e-7) << i;
  EncodeDistance(-2, -1, 4, row.data());
  const std::array<double, 4> behind = {-0.909297, -0.019999, -0.416147, 0.999800};
  for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], behind[i], 5e-7) << i;
}

TEST(EncodeDistanceTest, ClampLimitsBothSides) {
  std::vector<double> limit(8);
  std::vector<double> beyond(8);
  for (const int64_t sign : {1, -1}) {
    EncodeDistance(sign * 5, 5, 8, limit.data());
    EncodeDistance(sign * 90, 5, 8, beyond.data());
    EXPECT_EQ(limit, beyond);
    EncodeDistance(sign * 90, -1, 8, beyond.data());
    EXPECT_NE(limit, beyond);
  }
}

// The released Llama 3.1 code goes by wavelengths: a pair is left alone, slowed down, or mixed.
TEST(RotaryFrequencyTest, Llama3ScalingIsTheReleasedRule) {
  ModelConfig model = {
      .head_dim = 128, .rope_base = 5e5, .rope_factor = 8, .rope_original_positions = 8192};
  std::array<int, 3> seen{};
  for (int64_t f = 0; f < 64; ++f) {
    model.rope_scaling = RopeScaling::kNone;
    const double plain = RotaryFrequency(model, f);
    EXPECT_NEAR(plain, std::pow(5e5, -static_cast<double>(f) / 64), 1e-14 * plain);
    model.rope_scaling = RopeScaling::kLlama3;
    const double wavelength = 2 * std::numbers::pi / plain;
    double expected = plain;
    size_t kind = 0;
    if (wavelength > 8192.0 / 1) {
      kind = 1;
      expected = plain / 8;
    } else if (wavelength >= 8192.0 / 4) {
      kind = 2;
      const double smooth = (8192 / wavelength - 1) / (4 - 1);
      expected = (1 - smooth) * plain / 8 + smooth * plain;
    }
    ++seen[kind];
    EXPECT_NEAR(RotaryFrequency(model, f), expected, 1e-14 * plain) << f;
  }
  for (const int count : seen) EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace anyorder
