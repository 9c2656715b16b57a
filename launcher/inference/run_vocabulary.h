// The vocabulary of a run: texts as token ids, and token ids as text.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "data/prep/tokenizer.h"
#include "data/prep/tokenizer_process.h"
#include "data/prep/vocabulary.h"

namespace anyorder::launcher {

using TokenLists = std::vector<std::vector<int32_t>>;

// Not safe for use by two threads at once.
class RunVocabulary {
 public:
  RunVocabulary() = default;  // empty
  // `vocabulary`: as data::ReadVocabulary gives it. `size`: ids that the model has, at least the
  // vocabulary's; 0: as many. A tokenizer.json starts a process of Python, which stays. Errors:
  // FailedPrecondition for ids of an unknown tokenizer, and a file that is not what it was; those
  // of TokenizerProcess.
  static absl::StatusOr<RunVocabulary> Make(const data::DatasetVocabulary& vocabulary,
                                            int64_t size = 0);

  const std::string& path() const { return path_; }
  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }
  // By id. Of a tokenizer.json their texts are the bytes that they add to a text, and special
  // tokens without a role in ids() are text: they may be part of a chat template.
  const std::vector<data::VocabularyPiece>& pieces() const { return pieces_; }
  // The ids of special tokens; -1: there is none.
  const data::VocabIds& ids() const { return ids_; }
  // Whether it is a tokenizer.json, which encodes a text as it is written, and knows the special
  // tokens of a chat template (data::kTemplateMark).
  bool is_huggingface() const { return !script_.empty(); }
  // Whether a text's first word is encoded as one behind a space.
  bool adds_space() const { return adds_space_; }

  // The ids of each text, encoded as a corpus is. What is not UTF-8 becomes U+FFFD. `doing` begins
  // the message of an error, "encoding the prompts".
  // Errors: FailedPrecondition for a text that cannot be encoded, as for NUL, but of a
  // tokenizer.json, for which it is a mark; Unavailable as of TokenizerProcess, after which the
  // next call starts another process.
  absl::StatusOr<TokenLists> Encode(const std::vector<std::string>& texts,
                                    absl::string_view doing) const;
  // The text that tokens stand for, which may begin or end within a character. A word mark is a
  // space, also before the first word; pieces that are no text are nothing.
  std::string TextOf(const std::vector<int32_t>& tokens) const {
    std::string text;
    for (const int32_t token : tokens) text += texts_[static_cast<size_t>(token)];
    return text;
  }

 private:
  absl::Status ReadSentencePiece(const data::DatasetVocabulary& vocabulary);
  absl::Status ReadHuggingFace();
  absl::Status EncodeCleaned(const std::string& text, std::vector<int32_t>& ids) const;
  absl::StatusOr<TokenLists> EncodeAsWritten(const std::vector<std::string>& texts) const;

  std::string path_;
  data::VocabIds ids_;
  std::vector<data::VocabularyPiece> pieces_;
  std::vector<std::string> texts_;  // of each piece
  bool adds_space_ = true;
  // SentencePiece's.
  data::Cleaning cleaning_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  // A tokenizer.json's.
  std::string script_;                                       // tokenize_texts.py
  mutable std::unique_ptr<data::TokenizerProcess> process_;  // null: to be started again
};

// What a piece of SentencePiece adds to a text.
std::string TextOfPiece(const data::VocabularyPiece& piece);

}  // namespace anyorder::launcher
