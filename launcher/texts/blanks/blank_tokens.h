// A text with blanks (blank_text.h) as token ids, and which pieces may stand in its blanks.
//
// SentencePiece begins a word with a mark, so a blank behind a space, or at the beginning, is
// filled with pieces whose first has the mark; one that touches the character before it with pieces
// whose first has none. What touches the end of a blank is encoded without a mark. Tokens of a
// tokenizer.json have the space itself for a mark, and most such vocabularies put none before the
// first word of a text.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "data/prep/sentencepiece_bridge.h"
#include "launcher/texts/blanks/blank_text.h"

namespace anyorder::launcher {

// Whether the piece begins with the mark of a word, or is nothing else.
inline constexpr char kWordMark[] = "\u2581";
inline bool IsWordMark(const data::VocabularyPiece& piece) {
  return piece.text == kWordMark || piece.text == " ";
}
inline bool BeginsWord(const data::VocabularyPiece& piece) {
  return piece.text.starts_with(kWordMark) || piece.text.starts_with(' ');
}

struct TokenGap {
  int64_t length = 0;  // of a blank; 0: unknown
  bool begins_word = false;
  std::vector<int32_t> words;  // not a blank: what is asked about
};

struct GapText {
  // Before the first gap, between gaps, behind the last: gaps + 1. The first is not empty: a text
  // that begins with a gap has the end token of the document before it.
  std::vector<std::vector<int32_t>> around;
  std::vector<TokenGap> gaps;

  int64_t num_given() const {
    size_t given = 0;
    for (const std::vector<int32_t>& part : around) given += part.size();
    return static_cast<int64_t>(given);
  }
  // The text with gap g taken up by `inside[g]`, and the positions of all of those.
  std::vector<int32_t> With(const std::vector<std::vector<int32_t>>& inside,
                            std::vector<int64_t>* positions) const;
};

class GapEncoder {
 public:
  // `pieces` is borrowed. `end_token` ends a document. `adds_space`: a text's first word is encoded
  // as one behind a space.
  GapEncoder(const std::vector<data::VocabularyPiece>& pieces, int32_t end_token, bool adds_space);

  // What has to be encoded for a text: Assemble gets as many lists of ids.
  std::vector<std::string> PartsToEncode(const BlankText& text) const;

  // Blanks: the parts of the text between them. Words: the whole text is encoded as if they were
  // not marked; a piece that has characters of words and of the text before or behind them belongs
  // to the words.
  // InvalidArgument, naming the character, for text behind a blank that the vocabulary cannot
  // encode apart, and for words that have no piece of their own.
  absl::StatusOr<GapText> Assemble(const BlankText& text,
                                   const std::vector<std::vector<int32_t>>& encoded) const;

 private:
  absl::StatusOr<GapText> AssembleBlanks(const BlankText& text,
                                         const std::vector<std::vector<int32_t>>& encoded) const;
  absl::StatusOr<GapText> AssembleWords(const BlankText& text,
                                        const std::vector<std::vector<int32_t>>& encoded) const;
  std::string Spelled(const std::vector<int32_t>& tokens, std::vector<size_t>* ends) const;

  const std::vector<data::VocabularyPiece>& pieces_;
  const int32_t end_token_;
  const bool adds_space_;
  std::string joiner_;  // "": there is none
};

// Which pieces may not stand where in a blank.
class BlankRules {
 public:
  // [V]; 1: never.
  using Banned = std::shared_ptr<const std::vector<uint8_t>>;

  // Never pieces that are no text; the first as above; the last is not a word mark alone, which
  // would be an empty word.
  explicit BlankRules(const std::vector<data::VocabularyPiece>& pieces);

  // The fewest tokens that such a blank can have; 0 if no piece fits. (A vocabulary of characters
  // has the word mark as a piece of its own: 2.)
  int64_t LeastTokens(bool begins_word) const;
  // What is banned for token `index` of a blank of `length`.
  const Banned& At(bool begins_word, int64_t index, int64_t length) const {
    return banned_[index == 0][begins_word][index == length - 1];
  }

 private:
  // By whether the token is the first, and then begins a word; whether it is the last.
  Banned banned_[2][2][2];
};

}  // namespace anyorder::launcher
