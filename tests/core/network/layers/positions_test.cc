#include "core/network/layers/positions.h"

#include <gtest/gtest.h>

#include <array>
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

}  // namespace
}  // namespace anyorder
