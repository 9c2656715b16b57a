// The only home of SentencePiece. Its header and Abseil's clash in one file on Debian 12, so
// neither this header nor its source includes Abseil: errors are strings here ("" is success), and
// tokenizer.h turns them into Status. Debian 12's libsentencepiece exports an old protobuf of its
// own, so no target may link the system's; Debian 13's library brings the system's by itself.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/prep/cleaning.h"

namespace anyorder::data {

// Bytes [begin, end) of an encoded text that a piece was made of, with the space that its word mark
// stands for; empty where the library put a mark or cut what one character became.
struct PieceBytes {
  uint32_t begin = 0;
  uint32_t end = 0;
};

enum class PieceKind {
  kText,
  kByte,     // "<0x41>"
  kUnknown,  // what text becomes that has no piece
  kControl,  // never produced from text
  kUnused
};

struct VocabularyPiece {
  std::string text;
  PieceKind kind = PieceKind::kText;
  float score = 0;  // log-probability

  // Whether it stands for text that somebody wrote. <eop>, which XLNet's vocabulary finds in text,
  // does not: it marks the end of a paragraph, as <eod> does of a document.
  bool is_text() const {
    return kind == PieceKind::kByte || (kind == PieceKind::kText && text != "<eop>");
  }
};

enum class Segmentation {
  kLibrary,  // as the library does it; unknown characters that follow one another are one piece
  kSplitUnknown,  // each is one <unk>: of models of words or characters
  // XLNet's digit-comma rule: a piece longer than one character that ends in a digit and a comma is
  // encoded again without the comma and without word marks, then the comma follows as a piece of
  // its own. So "2000," and "2000" share their pieces.
  kDigitComma
};

// Whether the digit-comma rule applies to `piece`.
bool EndsInDigitComma(std::string_view piece);

// Not safe for use by two threads at once: Encode reuses one result buffer.
class SentencePieceBridge {
 public:
  SentencePieceBridge();
  ~SentencePieceBridge();
  SentencePieceBridge(const SentencePieceBridge&) = delete;
  SentencePieceBridge& operator=(const SentencePieceBridge&) = delete;

  // Loads a serialised model. Returns the library's error, or "".
  std::string Load(const std::string& model);

  int32_t vocab_size() const;
  VocabularyPiece piece(int32_t id) const;
  // All of them, by id.
  std::vector<VocabularyPiece> pieces() const;
  // The id of exactly `piece`, or -1.
  int32_t FindPiece(const std::string& piece) const;

  // Appends the ids of `text`, and the bytes of each, of unknown ones that were split those of all,
  // to `bytes` if it is not null, which must have as many elements as `ids`. REQUIRES: Load
  // succeeded.
  std::string Encode(std::string_view text, std::vector<int32_t>& ids,
                     Segmentation how = Segmentation::kLibrary,
                     std::vector<PieceBytes>* bytes = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Trains a model of `type`: "unigram" with XLNet's published settings, or "word" or "char" for the
// most frequent ones; the same sentences give the same model. Puts the serialised model in `model`:
// `vocab_size` pieces, or fewer where `takes_fewer` and the library found no more. `clean` is
// that of the sentences: unless kXlnet, pieces have no NFKC; with kNone also all spaces of a text,
// and a tab if there is one. Returns the library's error, or "".
std::string TrainSentencePiece(const std::string& type, uint64_t vocab_size, bool takes_fewer,
                               CleanMode clean, const std::vector<std::string>& sentences,
                               std::string& model);

}  // namespace anyorder::data
