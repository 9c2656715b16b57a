#include "core/base/digest.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "core/base/crc32c.h"

namespace anyorder {

namespace {

TEST(DigestTest, PublishedCheckValue) {
  EXPECT_EQ(DigestOf("").Hex(), "99aa06d3014798d86001c324468d497f");
  StreamingDigest digest;
  digest.Update("any");
  digest.Update("");
  digest.Update("order");
  EXPECT_EQ(digest.Value(), DigestOf("anyorder"));
}

TEST(DigestTest, HolesInAnyOrderAreLeftOut) {
  const std::string text = "0123456789";
  EXPECT_EQ(DigestOutside(text, {}), DigestOf(text));
  EXPECT_EQ(DigestOutside(text, {{6, 2}, {1, 3}}), DigestOf("04589"));
  EXPECT_EQ(DigestOutside(text, {{1, 6}, {2, 2}}), DigestOf("0789"));
  EXPECT_EQ(DigestOutside(text, {{0, 2}, {8, ~uint64_t{0}}}), DigestOf("234567"));
  EXPECT_EQ(DigestOutside(text, {{11, 5}, {~uint64_t{0}, 1}, {3, 0}}), DigestOf(text));
}

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
