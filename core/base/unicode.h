// Characters of UTF-8 text, with Python's meaning of lower case, white space and words, since the
// published preprocessing and scoring scripts are Python.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anyorder {

// Some programs begin a text with it.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Decodes the code point at `text[offset]`; advances `offset`. Of a byte that starts no well-formed
// sequence it makes U+FFFD and advances by one.
char32_t NextCodePoint(std::string_view text, size_t& offset);

bool IsUtf8(std::string_view text);

// REQUIRES: a Unicode scalar value.
void AppendUtf8(char32_t code_point, std::string& out);

// str.isspace(), which str.split() uses, too. Inline: preparation asks it of every character.
inline bool IsUnicodeSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// str.strip().
std::string_view StripSpace(std::string_view text);

// What \w of `re` matches: letters and numbers of all scripts, and "_".
bool IsWordCharacter(char32_t code_point);

// str.lower(): a capital sigma that ends a word becomes the final form, and a capital I with a dot
// becomes an i and a combining dot. `sources`, unless null, gets for each byte of the result the
// byte of `text` that its character begins with.
std::string LowerCase(std::string_view text, std::vector<uint32_t>* sources = nullptr);

}  // namespace anyorder
