#include "core/base/digest.h"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace anyorder
