// Which characters tokens were made of, and the file that says it of each example.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"

#include "data/dataset/example_origins.h"
#include "data/prep/cleaning.h"
#include "data/prep/examples/example_reader.h"
#include "data/prep/tokenizer.h"

namespace anyorder::data {

// Which characters of a text, as it was written, each of its tokens was made of. Cleaning drops,
// joins and replaces characters, and SentencePiece normalises once more, so both say where what
// they give comes from (CleanLine, PieceBytes), and that is all that is believed: nothing is looked
// for in the text again.
struct AlignedText {
  std::vector<int32_t> ids;
  std::vector<CharacterRange> ranges;  // of each, as in OriginalPassage
};

// The tokens of `text` once it is cleaned. What cleaning drops, such as a combining accent, belongs
// to the token before it. REQUIRES valid UTF-8.
absl::StatusOr<AlignedText> EncodeAligned(const Tokenizer& tokenizer, std::string_view text,
                                          const Cleaning& cleaning);

// Tokens [begin, end) that share a character with `characters`; begin == end: none does.
struct TokenRange {
  int32_t begin = 0;
  int32_t end = 0;

  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};
TokenRange TokensOf(const std::vector<CharacterRange>& ranges, CharacterRange characters);

// Collects sources.jsonl (FORMAT.md) while examples are read.
class OriginWriter {
 public:
  // The tokens of a passage, which are made once however many questions are about it. Valid as long
  // as the writer. `tokenizer` and cleaning must be the same in all calls.
  absl::StatusOr<const AlignedText*> Align(const Tokenizer& tokenizer, const Cleaning& cleaning,
                                           const std::string& passage);

  // The next example. REQUIRES that Align was called with its passage, if it has one.
  void Add(const WrittenExample& example);

  // What the file holds; "" where no example has anything to say.
  const std::string& text() const {
    static const std::string none;
    return has_origins_ ? text_ : none;
  }

 private:
  struct Passage {
    AlignedText aligned;
    int64_t example = -1;  // the first one about it; -1: not added yet
  };

  std::unordered_map<std::string, Passage> passages_;
  int64_t num_examples_ = 0;
  bool has_origins_ = false;
  std::string text_;
};

}  // namespace anyorder::data
