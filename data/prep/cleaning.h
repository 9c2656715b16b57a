// Cleaning of one line of text before SentencePiece, as XLNet's preprocessing does it:
//   1. strip, and turn every run of Unicode white space into one space;
//   2. `` and '' become ";
//   3. NFKD, then drop every code point whose canonical combining class is not 0 (accents);
//   4. lower case, only when uncased, as Python's str.lower() makes it of the whole line.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anyorder::data {

enum class LetterCase { kCased, kUncased };
constexpr auto SpellingsOf(LetterCase) { return std::array{"cased", "uncased"}; }
// Which steps are made: all; not the third, XLNet's keep_accents, since in many languages marks are
// part of the words; the fourth alone.
enum class CleanMode { kXlnet, kAccents, kNone };
constexpr auto SpellingsOf(CleanMode) { return std::array{"xlnet", "accents", "none"}; }

struct Cleaning {
  LetterCase letter_case = LetterCase::kCased;
  CleanMode mode = CleanMode::kXlnet;

  const char* name() const { return SpellingsOf(mode)[static_cast<size_t>(mode)]; }
};

// Where scripts begin in Unicode; several may have one name.
inline constexpr std::pair<char32_t, const char*> kScripts[] = {
    {0x0, "Latin"},      {0x370, "Greek"},    {0x400, "Cyrillic"}, {0x530, "Armenian"},
    {0x590, "Hebrew"},   {0x600, "Arabic"},   {0x700, "other"},    {0x900, "Devanagari"},
    {0x980, "Bengali"},  {0xA00, "Gurmukhi"}, {0xA80, "Gujarati"}, {0xB00, "Odia"},
    {0xB80, "Tamil"},    {0xC00, "Telugu"},   {0xC80, "Kannada"},  {0xD00, "Malayalam"},
    {0xD80, "Sinhala"},  {0xE00, "Thai"},     {0xE80, "Lao"},      {0xF00, "Tibetan"},
    {0x1000, "Myanmar"}, {0x10A0, "other"},   {0x1D00, "Latin"},   {0x1F00, "Greek"},
    {0x2000, "other"},   {0x2C60, "Latin"},   {0x2C80, "other"},   {0x3040, "kana"},
    {0x3100, "other"}};
// By script: letters, and those of them from which step 3 dropped marks.
struct MarkCounts {
  uint64_t letters[std::size(kScripts)] = {};
  uint64_t bare[std::size(kScripts)] = {};

  // Adds what is not 0 as "letters_Thai", say, and "letters_without_marks_Thai".
  void AddTo(std::map<std::string, uint64_t>& counts) const;
};

// Replaces `out` by the cleaned `line`. REQUIRES: line is valid UTF-8. ASCII lines, most of English
// text, take a path that never decodes. Adds to `marks`, if not null, where step 3 is made.
//
// `origins`, if not null, becomes for each byte of `out` the byte of `line` at which the code point
// begins that it was made of, then line.size(). It never decreases; code points that were dropped
// lie between the origins of their neighbours.
void CleanLine(std::string_view line, const Cleaning& cleaning, std::string& out,
               std::vector<uint32_t>* origins = nullptr, MarkCounts* marks = nullptr);

// Whether there is nothing but Unicode's white space in it.
bool IsBlank(std::string_view line);
// The last character if it is white space; else "".
std::string_view SpaceAtEnd(std::string_view text);

// Offset of the first byte that is not part of well-formed UTF-8 (RFC 3629: no surrogates, no
// overlong forms, nothing above U+10FFFF) or is NUL; `text.size()` if there is none.
size_t FirstInvalidByte(std::string_view text);

// Bytes of `text` without what stands at its end of a character that has not ended yet.
size_t CompleteBytes(std::string_view text);

// Appends `text` to `out` with U+FFFD for each NUL and each byte that starts no well-formed
// sequence. Returns how many were replaced.
size_t AppendWithReplacements(std::string_view text, std::string& out);

// Makes each JSON escape of half a surrogate pair, "\ud800" say, that of U+FFFD. Returns how many.
size_t ReplaceHalfPairs(std::string& json);

}  // namespace anyorder::data
