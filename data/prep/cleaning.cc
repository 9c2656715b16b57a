#include "data/prep/cleaning.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstring>

namespace anyorder::data {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

bool IsAsciiSpace(unsigned char c) {
  return c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31);
}

// Length of the run of ASCII at the start of `text`.
size_t AsciiPrefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080u) != 0) break;
  }
  while (i < text.size() && static_cast<unsigned char>(text[i]) < 0x80) ++i;
  return i;
}

// Length of the well-formed sequence at the start of `text`, 0 if there is none.
size_t Decode(std::string_view text, utf8proc_int32_t& code_point) {
  const utf8proc_ssize_t length =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                       static_cast<utf8proc_ssize_t>(text.size()), &code_point);
  return length > 0 ? static_cast<size_t>(length) : 0;
}

void AppendUtf8(char32_t code_point, std::string& out) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

// Steps 1 and 2. Quotes pair up from the left: three apostrophes become one quote and one
// apostrophe.
void CollapseAndQuote(std::string_view line, std::string& out) {
  bool pending_space = false;
  char half_quote = 0;  // an unpaired ` or ' that is the last byte of `out`
  for (size_t i = 0; i < line.size();) {
    const unsigned char byte = static_cast<unsigned char>(line[i]);
    size_t next = i + 1;
    bool is_space = IsAsciiSpace(byte);
    if (byte >= 0x80) {
      next = i;
      is_space = IsUnicodeSpace(NextCodePoint(line, next));
    }
    if (is_space) {
      pending_space = !out.empty();
      i = next;
      continue;
    }
    if (pending_space) {
      out.push_back(' ');
      pending_space = false;
      half_quote = 0;
    }
    if ((byte == '`' || byte == '\'') && half_quote == static_cast<char>(byte)) {
      out.back() = '"';
      half_quote = 0;
    } else {
      out.append(line.substr(i, next - i));
      half_quote = byte == '`' || byte == '\'' ? static_cast<char>(byte) : 0;
    }
    i = next;
  }
}

// Step 3 for the non-ASCII code point `code_point`.
void AppendWithoutAccents(char32_t code_point, std::string& out) {
  // The longest compatibility decomposition in Unicode has 18 code points (U+FDFA).
  utf8proc_int32_t parts[32];
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code_point), parts, 32,
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT), &boundary);
  for (utf8proc_ssize_t i = 0; i < count && i < 32; ++i) {
    if (utf8proc_get_property(parts[i])->combining_class == 0)
      AppendUtf8(static_cast<char32_t>(parts[i]), out);
  }
}

// Unicode's property Cased, of the characters that NFKD leaves.
bool IsCased(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT: return true;
    default: return (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
  }
}

// Unicode's property Case_Ignorable, of the characters that NFKD leaves: marks, modifiers, format
// characters, and what may stand inside a word.
bool IsCaseIgnorable(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x55F || c == 0x5F4 ||
             c == 0x2018 || c == 0x2019 || c == 0x2027;
  }
}

// Whether the next character that is not case-ignorable is cased.
bool GoesOnCased(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const char32_t code_point = NextCodePoint(text, i);
    if (!IsCaseIgnorable(code_point)) return IsCased(code_point);
  }
  return false;
}

// Step 4. Like Python's lower(), a capital sigma that ends a word becomes the final form: one that
// follows a cased character and precedes none, with case-ignorable ones on either side skipped.
void LowerCase(std::string& text) {
  std::string lowered;
  lowered.reserve(text.size());
  bool after_cased = false;
  for (size_t i = 0; i < text.size();) {
    char32_t code_point = NextCodePoint(text, i);
    if (!IsCaseIgnorable(code_point)) {
      const bool ends_word = code_point == kCapitalSigma && after_cased &&
                             !GoesOnCased(std::string_view(text).substr(i));
      after_cased = IsCased(code_point);
      if (ends_word) {
        AppendUtf8(kFinalSigma, lowered);
        continue;
      }
    }
    code_point = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
    AppendUtf8(code_point, lowered);
  }
  text = std::move(lowered);
}

}  // namespace

bool IsUnicodeSpace(char32_t c) {
  if (c < 0x80) return IsAsciiSpace(static_cast<unsigned char>(c));
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

char32_t NextCodePoint(std::string_view text, size_t& offset) {
  utf8proc_int32_t code_point = 0;
  const size_t length = Decode(text.substr(offset), code_point);
  offset += length > 0 ? length : 1;
  return length > 0 ? static_cast<char32_t>(code_point) : 0xFFFD;
}

void CleanLine(std::string_view line, LetterCase letter_case, std::string& out) {
  out.clear();
  CollapseAndQuote(line, out);
  const size_t ascii = AsciiPrefix(out);
  if (ascii == out.size()) {
    if (letter_case == LetterCase::kUncased) {
      for (char& c : out) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
      }
    }
    return;
  }
  std::string plain;
  plain.reserve(out.size());
  plain.assign(out, 0, ascii);
  for (size_t i = ascii; i < out.size();) {
    if (static_cast<unsigned char>(out[i]) < 0x80) {
      plain.push_back(out[i++]);
    } else {
      AppendWithoutAccents(NextCodePoint(out, i), plain);
    }
  }
  out = std::move(plain);
  if (letter_case == LetterCase::kUncased) LowerCase(out);
}

size_t FirstInvalidByte(std::string_view text) {
  const void* nul = text.empty() ? nullptr : std::memchr(text.data(), 0, text.size());
  const size_t end = nul == nullptr
                         ? text.size()
                         : static_cast<size_t>(static_cast<const char*>(nul) - text.data());
  const std::string_view checked = text.substr(0, end);
  utf8proc_int32_t code_point = 0;
  for (size_t i = AsciiPrefix(checked); i < end;) {
    const size_t length = Decode(checked.substr(i), code_point);
    if (length == 0) return i;
    i += length;
    i += AsciiPrefix(checked.substr(i));
  }
  return end;
}

size_t AppendWithReplacements(std::string_view text, std::string& out) {
  size_t replaced = 0;
  while (!text.empty()) {
    const size_t good = FirstInvalidByte(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    out.append("\xEF\xBF\xBD");
    text.remove_prefix(1);
    ++replaced;
  }
  return replaced;
}

}  // namespace anyorder::data
