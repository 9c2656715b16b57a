#include "data/prep/cleaning.h"

#include <utf8proc.h>

#include <cstring>
#include <utility>

#include "core/base/unicode.h"

namespace anyorder::data {
namespace {

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

using Origins = std::vector<uint32_t>;

// What was appended to `out` since it last fitted `origins`, which may be null, comes from
// `origin`.
void NoteOrigin(size_t origin, const std::string& out, Origins* origins) {
  if (origins != nullptr) origins->resize(out.size(), static_cast<uint32_t>(origin));
}

// Steps 1 and 2. Quotes pair up from the left: three apostrophes become one quote and one
// apostrophe.
void CollapseAndQuote(std::string_view line, std::string& out, Origins* origins) {
  size_t space_begin = 0;
  bool pending_space = false;
  char half_quote = 0;  // an unpaired ` or ' that is the last byte of `out`
  for (size_t i = 0; i < line.size();) {
    const unsigned char byte = static_cast<unsigned char>(line[i]);
    size_t next = i;
    const bool is_space = IsUnicodeSpace(byte < 0x80 ? line[next++] : NextCodePoint(line, next));
    if (is_space) {
      if (!pending_space) space_begin = i;
      pending_space = !out.empty();
      i = next;
      continue;
    }
    if (pending_space) {
      out.push_back(' ');
      NoteOrigin(space_begin, out, origins);
      pending_space = false;
      half_quote = 0;
    }
    if ((byte == '`' || byte == '\'') && half_quote == static_cast<char>(byte)) {
      out.back() = '"';
      half_quote = 0;
    } else {
      out.append(line.substr(i, next - i));
      NoteOrigin(i, out, origins);
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

// Step 4.
void ToLowerCase(std::string& text, Origins* origins) {
  Origins sources;
  text = LowerCase(text, origins == nullptr ? nullptr : &sources);
  if (origins == nullptr) return;
  for (uint32_t& source : sources) source = (*origins)[source];
  *origins = std::move(sources);
}

// Steps 3 and 4 of what is no ASCII from byte `ascii` on.
void CleanBeyondAscii(size_t ascii, LetterCase letter_case, std::string& out, Origins* origins) {
  std::string plain;
  Origins plain_origins;
  Origins* const noted = origins == nullptr ? nullptr : &plain_origins;
  plain.reserve(out.size());
  plain.assign(out, 0, ascii);
  if (origins != nullptr)
    plain_origins.assign(origins->begin(), origins->begin() + static_cast<ptrdiff_t>(ascii));
  for (size_t i = ascii; i < out.size();) {
    const size_t origin = origins == nullptr ? 0 : (*origins)[i];
    if (static_cast<unsigned char>(out[i]) < 0x80) {
      plain.push_back(out[i++]);
    } else {
      AppendWithoutAccents(NextCodePoint(out, i), plain);
    }
    NoteOrigin(origin, plain, noted);
  }
  out = std::move(plain);
  if (origins != nullptr) *origins = std::move(plain_origins);
  if (letter_case == LetterCase::kUncased) ToLowerCase(out, origins);
}

}  // namespace

void CleanLine(std::string_view line, LetterCase letter_case, std::string& out,
               std::vector<uint32_t>* origins) {
  out.clear();
  if (origins != nullptr) origins->clear();
  CollapseAndQuote(line, out, origins);
  const size_t ascii = AsciiPrefix(out);
  if (ascii < out.size()) {
    CleanBeyondAscii(ascii, letter_case, out, origins);
  } else if (letter_case == LetterCase::kUncased) {
    for (char& c : out) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
  }
  if (origins != nullptr) origins->push_back(static_cast<uint32_t>(line.size()));
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

size_t CompleteBytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
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
