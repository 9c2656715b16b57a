// What a SentencePiece model file says, read without SentencePiece: only anyorder-prep may link
// that (data/prep/README.md).
//
// The file is a protobuf message (sentencepiece_model.proto). Read of it: `pieces` = 1, repeated,
// with piece = 1, score = 2, type = 3; of `trainer_spec` = 2 model_type = 3,
// treat_whitespace_as_suffix = 24 and byte_fallback = 35; of `normalizer_spec` = 3
// precompiled_charsmap = 2, add_dummy_prefix = 3, remove_extra_whitespaces = 4 and
// escape_whitespaces = 5.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::launcher {

enum class PieceType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct VocabularyPiece {
  std::string text;
  PieceType type = PieceType::kNormal;
  float score = 0;  // log-probability

  // Whether it stands for text that somebody wrote. <eop>, a user-defined piece of XLNet, does not:
  // it marks the end of a paragraph, as <eod> does of a document.
  bool is_text() const;
};

// TrainerSpec.model_type.
enum class VocabularyType { kUnigram = 1, kBpe = 2, kWords = 3, kCharacters = 4 };

struct Vocabulary {
  std::vector<VocabularyPiece> pieces;  // in the order of their ids
  VocabularyType type = VocabularyType::kUnigram;
  std::string charsmap;  // of the normalisation, compiled; empty: none
  // How spaces become word marks, and unknown characters bytes: as in XLNet's vocabulary.
  bool has_xlnet_spaces = true;
};

// `path` names the model in messages. DataLoss if it is none.
absl::StatusOr<Vocabulary> ParseVocabulary(absl::string_view model, absl::string_view path);
// Its pieces alone.
absl::StatusOr<std::vector<VocabularyPiece>> ParsePieces(absl::string_view model,
                                                         absl::string_view path);

// FailedPrecondition listing every special piece that does not have the id and kind of XLNet's
// published vocabulary.
absl::Status CheckXlnetPieces(const std::vector<VocabularyPiece>& pieces, absl::string_view path);

// The text that tokens stand for. A word mark is a space, also before the first word; pieces that
// are no text are nothing.
std::string TextOfTokens(const std::vector<VocabularyPiece>& pieces,
                         const std::vector<int32_t>& ids);

}  // namespace anyorder::launcher
