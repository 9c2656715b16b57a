// Which characters of a text, as it was written, each of its tokens was made of. Cleaning drops,
// joins and replaces characters, and SentencePiece normalises once more, so both say where what
// they give comes from (CleanLine, PieceBytes), and that is all that is believed: nothing is looked
// for in the text again.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "data/dataset/example_origins.h"
#include "data/prep/cleaning.h"
#include "data/prep/tokenizer.h"

namespace anyorder::data {

struct AlignedText {
  std::vector<int32_t> ids;
  std::vector<CharacterRange> ranges;  // of each, as in OriginalPassage
};

// The tokens of `text` once it is cleaned. What cleaning drops, such as a combining accent, belongs
// to the token before it. REQUIRES valid UTF-8.
absl::StatusOr<AlignedText> EncodeAligned(const Tokenizer& tokenizer, std::string_view text,
                                          LetterCase letter_case);

// Tokens [begin, end) that share a character with `characters`; begin == end: none does.
struct TokenRange {
  int32_t begin = 0;
  int32_t end = 0;

  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};
TokenRange TokensOf(const std::vector<CharacterRange>& ranges, CharacterRange characters);

}  // namespace anyorder::data
