#include "core/base/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace anyorder {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;
constexpr char32_t kCapitalDottedI = 0x130;

// Whether its general category is one of these.
bool IsOneOf(char32_t c, auto... categories) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return ((category == categories) || ...);
}

bool IsIn(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

// Unicode's property Cased; of the characters that are case-ignorable, too, it does not matter.
bool IsCased(char32_t c) {
  return IsOneOf(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT) ||
         c == 0xAA || c == 0xBA || IsIn(c, 0x2160, 0x217F) || IsIn(c, 0x24B6, 0x24E9) ||
         IsIn(c, 0x1F130, 0x1F149) || IsIn(c, 0x1F150, 0x1F169) || IsIn(c, 0x1F170, 0x1F189);
}

// Unicode's property Case_Ignorable: marks, modifiers, format characters, and what may stand inside
// a word.
bool IsCaseIgnorable(char32_t c) {
  constexpr std::u32string_view kInWords =
      U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
  return kInWords.find(c) != kInWords.npos ||
         IsOneOf(c, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME, UTF8PROC_CATEGORY_CF,
                 UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_SK);
}

// Whether the next character that is not case-ignorable is cased.
bool GoesOnCased(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const char32_t code_point = NextCodePoint(text, i);
    if (!IsCaseIgnorable(code_point)) return IsCased(code_point);
  }
  return false;
}

}  // namespace

char32_t NextCodePoint(std::string_view text, size_t& offset) {
  utf8proc_int32_t code_point = 0;
  const utf8proc_ssize_t length =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + offset),
                       static_cast<utf8proc_ssize_t>(text.size() - offset), &code_point);
  offset += length > 0 ? static_cast<size_t>(length) : 1;
  return length > 0 ? static_cast<char32_t>(code_point) : 0xFFFD;
}

bool IsUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    // One that is written so takes three bytes; what is made of a bad byte takes one.
    if (NextCodePoint(text, at) == 0xFFFD && at - begin == 1) return false;
  }
  return true;
}

void AppendUtf8(char32_t code_point, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

bool IsWordCharacter(char32_t c) {
  return c == '_' || IsOneOf(c, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT,
                             UTF8PROC_CATEGORY_LM, UTF8PROC_CATEGORY_LO, UTF8PROC_CATEGORY_ND,
                             UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NO);
}

// A sigma is final if it follows a cased character and precedes none, with case-ignorable ones on
// either side skipped.
std::string LowerCase(std::string_view text, std::vector<uint32_t>* sources) {
  std::string lowered;
  if (sources != nullptr) sources->clear();
  lowered.reserve(text.size());
  bool after_cased = false;
  for (size_t i = 0; i < text.size();) {
    const auto begin = static_cast<uint32_t>(i);
    const char32_t code_point = NextCodePoint(text, i);
    if (code_point == kCapitalSigma && after_cased && !GoesOnCased(text.substr(i))) {
      AppendUtf8(kFinalSigma, lowered);
    } else if (code_point == kCapitalDottedI) {
      lowered.append("i\u0307");
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point))),
                 lowered);
    }
    if (sources != nullptr) sources->resize(lowered.size(), begin);
    if (!IsCaseIgnorable(code_point)) after_cased = IsCased(code_point);
  }
  return lowered;
}

std::string_view StripSpace(std::string_view text) {
  size_t begin = text.size(), end = 0;
  for (size_t at = 0, next = 0; at < text.size(); at = next) {
    if (IsUnicodeSpace(NextCodePoint(text, next))) continue;
    begin = std::min(begin, at);
    end = next;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

}  // namespace anyorder
