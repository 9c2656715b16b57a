// Cleaning of one line of text before SentencePiece, as XLNet's preprocessing does it:
//   1. strip, and turn every run of Unicode white space into one space;
//   2. `` and '' become ";
//   3. NFKD, then drop every code point whose canonical combining class is not 0 (accents);
//   4. lower case, only when uncased, as Python's str.lower() makes it of the whole line.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anyorder::data {

enum class LetterCase { kCased, kUncased };

// Replaces `out` by the cleaned `line`. REQUIRES: line is valid UTF-8. ASCII lines, most of English
// text, take a path that never decodes.
//
// `origins`, if not null, becomes for each byte of `out` the byte of `line` at which the code point
// begins that it was made of, then line.size(). It never decreases; code points that were dropped
// lie between the origins of their neighbours.
void CleanLine(std::string_view line, LetterCase letter_case, std::string& out,
               std::vector<uint32_t>* origins = nullptr);

// Offset of the first byte that is not part of well-formed UTF-8 (RFC 3629: no surrogates, no
// overlong forms, nothing above U+10FFFF) or is NUL; `text.size()` if there is none.
size_t FirstInvalidByte(std::string_view text);

// Bytes of `text` without what stands at its end of a character that has not ended yet.
size_t CompleteBytes(std::string_view text);

// Appends `text` to `out` with U+FFFD for each NUL and each byte that starts no well-formed
// sequence. Returns how many were replaced.
size_t AppendWithReplacements(std::string_view text, std::string& out);

}  // namespace anyorder::data
