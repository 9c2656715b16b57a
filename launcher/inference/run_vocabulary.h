// The vocabulary of a run: texts as token ids, and token ids as text.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "data/prep/tokenizer.h"

namespace anyorder::launcher {

// Not safe for use by two threads at once.
class RunVocabulary {
 public:
  RunVocabulary() = default;  // empty
  // `model`: the bytes of the SentencePiece model at `path`; `letter_case`: "cased" or "uncased".
  // Errors: FailedPrecondition if it is none, or has other special pieces than XLNet's.
  static absl::StatusOr<RunVocabulary> Make(std::string path, const std::string& letter_case,
                                            const std::string& model);

  const std::string& path() const { return path_; }
  // By token id.
  const std::vector<data::VocabularyPiece>& pieces() const { return pieces_; }
  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }

  // The ids of each text, cleaned and encoded as a corpus is. What is not UTF-8 becomes U+FFFD.
  // `doing` begins the message of an error, "encoding the prompts". FailedPrecondition for NUL.
  absl::StatusOr<std::vector<std::vector<int32_t>>> Encode(const std::vector<std::string>& texts,
                                                           absl::string_view doing) const;
  // The text that tokens stand for (TextOfPieces).
  std::string TextOf(const std::vector<int32_t>& tokens) const;

 private:
  std::string path_;
  data::LetterCase letter_case_ = data::LetterCase::kCased;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::vector<data::VocabularyPiece> pieces_;
};

// A word mark is a space, also before the first word; pieces that are no text are nothing.
std::string TextOfPieces(const std::vector<data::VocabularyPiece>& pieces,
                         const std::vector<int32_t>& tokens);

}  // namespace anyorder::launcher
