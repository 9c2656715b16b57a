#include "core/base/crc32c.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

namespace anyorder {
namespace {

TEST(Crc32cTest, MatchesThePublishedVectors) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  // RFC 3720, B.4: 32 bytes of zeros, of ones, and ascending.
  std::array<uint8_t, 32> bytes{};
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x8a9136aau);
  bytes.fill(0xff);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x62a8ab43u);
  for (int i = 0; i < 32; ++i) bytes[i] = static_cast<uint8_t>(i);
  EXPECT_EQ(Crc32c(bytes.data(), 32), 0x46dd794eu);
  EXPECT_EQ(Crc32c(bytes.data() + 5, 27, Crc32c(bytes.data(), 5)), 0x46dd794eu);
}

}  // namespace
}  // namespace anyorder
