#include "core/base/unicode.h"

#include <gtest/gtest.h>

namespace anyorder {
namespace {

// What Python 3.11 makes of the same; tests/parity/metrics_parity.py asks it about more.
TEST(UnicodeTest, LowerCaseIsPythons) {
  EXPECT_EQ(LowerCase("Hello, World_9"), "hello, world_9");
  EXPECT_EQ(LowerCase("ÄÖÜ ẞ ǅ Ⓐ Ⅷ"), "äöü ß ǆ ⓐ ⅷ");
  EXPECT_EQ(LowerCase("İstanbul"), "i\u0307stanbul");
  EXPECT_EQ(LowerCase("ΣΑΣ ΣΑΣ. Σ Α'Σ ΑΣ'Α"), "σας σας. σ α'ς ασ'α");
  EXPECT_EQ(LowerCase(""), "");
}

TEST(UnicodeTest, WordsAreLettersAndNumbersOfAllScripts) {
  for (const char32_t c : {U'a', U'Z', U'_', U'7', U'é', U'中', U'½', U'Ⅷ', U'ª', U'٣'})
    EXPECT_TRUE(IsWordCharacter(c)) << static_cast<uint32_t>(c);
  for (const char32_t c : {U' ', U'-', U'’', U'\u0301', U'€', U'\u200B', U'。', U'\uFFFD'})
    EXPECT_FALSE(IsWordCharacter(c)) << static_cast<uint32_t>(c);
}

TEST(UnicodeTest, DamagedBytesAreReplacedOneByOne) {
  const std::string text = "a\xC3\xE2\x82\xAC";
  size_t offset = 0;
  EXPECT_EQ(NextCodePoint(text, offset), U'a');
  EXPECT_EQ(NextCodePoint(text, offset), U'\uFFFD');
  EXPECT_EQ(offset, 2u);
  EXPECT_EQ(NextCodePoint(text, offset), U'€');
  EXPECT_EQ(offset, text.size());
}

}  // namespace
}  // namespace anyorder
