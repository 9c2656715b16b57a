#include "data/prep/cleaning.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>

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

// Counts `c` if it is a letter. `bare` becomes where the last letter is to be counted that loses a
// mark, once however many it loses.
void CountLetter(char32_t c, MarkCounts& marks, uint64_t*& bare) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) return;
  const auto begins_behind = [c](const auto& script) { return script.first > c; };
  const auto script = std::find_if(std::begin(kScripts), std::end(kScripts), begins_behind) -
                      std::begin(kScripts) - 1;
  const bool is_letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  marks.letters[script] += is_letter;
  bare = is_letter ? &marks.bare[script] : nullptr;
}

// Step 3 for `code_point`. Whether it drops a mark.
bool AppendWithoutAccents(char32_t code_point, std::string& out) {
  // The longest compatibility decomposition in Unicode has 18 code points (U+FDFA).
  utf8proc_int32_t parts[32];
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code_point), parts, 32,
      static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT), &boundary);
  bool drops = false;
  for (utf8proc_ssize_t i = 0; i < count && i < 32; ++i) {
    const bool stays = utf8proc_get_property(parts[i])->combining_class == 0;
    if (stays) AppendUtf8(static_cast<char32_t>(parts[i]), out);
    drops |= !stays;
  }
  return drops;
}

// Step 4.
void ToLowerCase(std::string& text, Origins* origins) {
  Origins sources;
  text = LowerCase(text, origins == nullptr ? nullptr : &sources);
  if (origins == nullptr) return;
  for (uint32_t& source : sources) source = (*origins)[source];
  *origins = std::move(sources);
}

// Step 3.
void DropMarks(std::string& out, Origins* origins, MarkCounts* marks) {
  std::string plain;
  Origins plain_origins;
  Origins* const noted = origins == nullptr ? nullptr : &plain_origins;
  plain.reserve(out.size());
  uint64_t* bare = nullptr;
  for (size_t i = 0; i < out.size();) {
    const size_t origin = origins == nullptr ? 0 : (*origins)[i];
    const char32_t c = NextCodePoint(out, i);
    if (marks != nullptr) CountLetter(c, *marks, bare);
    if (AppendWithoutAccents(c, plain) && bare != nullptr) ++*std::exchange(bare, nullptr);
    NoteOrigin(origin, plain, noted);
  }
  out = std::move(plain);
  if (origins != nullptr) *origins = std::move(plain_origins);
}

}  // namespace

void MarkCounts::AddTo(std::map<std::string, uint64_t>& counts) const {
  for (size_t i = 0; i < std::size(kScripts); ++i) {
    const std::string script = kScripts[i].second;
    if (letters[i] > 0) counts["letters_" + script] += letters[i];
    if (bare[i] > 0) counts["letters_without_marks_" + script] += bare[i];
  }
}

bool IsBlank(std::string_view line) {
  for (size_t i = 0; i < line.size();) {
    if (!IsUnicodeSpace(NextCodePoint(line, i))) return false;
  }
  return true;
}

std::string_view SpaceAtEnd(std::string_view text) {
  size_t last = text.size();
  while (last > 0 && (text[--last] & 0xC0) == 0x80) {
  }
  text.remove_prefix(last);
  return FirstInvalidByte(text) == text.size() && IsBlank(text) ? text : "";
}

void CleanLine(std::string_view line, const Cleaning& cleaning, std::string& out,
               std::vector<uint32_t>* origins, MarkCounts* marks) {
  out.clear();
  if (origins != nullptr) origins->clear();
  if (cleaning.mode != CleanMode::kNone) {
    CollapseAndQuote(line, out, origins);
  } else {
    out = line;
    if (origins != nullptr) origins->resize(line.size());
    if (origins != nullptr) std::iota(origins->begin(), origins->end(), 0u);
  }
  if (AsciiPrefix(out) < out.size()) {
    if (cleaning.mode == CleanMode::kXlnet) DropMarks(out, origins, marks);
    if (cleaning.letter_case == LetterCase::kUncased) ToLowerCase(out, origins);
  } else {
    uint64_t letters = 0;
    for (char& c : out) {
      const bool is_capital = c >= 'A' && c <= 'Z';
      letters += is_capital || (c >= 'a' && c <= 'z');
      if (is_capital && cleaning.letter_case == LetterCase::kUncased)
        c = static_cast<char>(c - 'A' + 'a');
    }
    if (marks != nullptr && cleaning.mode == CleanMode::kXlnet) marks->letters[0] += letters;
  }
  if (origins != nullptr) origins->push_back(static_cast<uint32_t>(line.size()));
}

size_t FirstInvalidByte(std::string_view text) {
  // No further ahead than that: who replaces what is invalid asks again behind each byte of it.
  constexpr size_t kRun = 1024;
  for (size_t i = 0; i < text.size();) {
    const std::string_view run = text.substr(i, kRun);
    const std::string_view ascii = run.substr(0, AsciiPrefix(run));
    if (const size_t nul = ascii.find('\0'); nul != ascii.npos) return i + nul;
    i += ascii.size();
    if (ascii.size() == run.size()) continue;
    const size_t begin = i;
    // U+FFFD that stands in the text has three bytes.
    if (NextCodePoint(text, i) == 0xFFFD && i == begin + 1) return begin;
  }
  return text.size();
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

size_t ReplaceHalfPairs(std::string& json) {
  size_t replaced = 0;
  // Of "\uXXXX" at `at` the surrogates that it is one of: 0xD800, 0xDC00 or, if it is none, 0.
  const auto half = [&json](size_t at) -> unsigned {
    unsigned code = 0;
    const char* const digits = json.data() + std::min(json.size(), at + 2);
    if (json.compare(std::min(json.size(), at), 2, "\\u") != 0 || json.size() < at + 6) return 0;
    if (std::from_chars(digits, digits + 4, code, 16).ptr != digits + 4) return 0;
    return (code & 0xF800) == 0xD800 ? code & 0xFC00 : 0;
  };
  for (size_t at = json.find('\\'); at < json.size(); at = json.find('\\', at)) {
    const bool is_pair = half(at) == 0xD800 && half(at + 6) == 0xDC00;
    if (!is_pair && half(at) != 0) {
      json.replace(at, 6, "\\ufffd");
      ++replaced;
    }
    at += is_pair ? 12 : 2;
  }
  return replaced;
}

}  // namespace anyorder::data
