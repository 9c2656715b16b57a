// The pieces of a SentencePiece model file, read without SentencePiece: only anyorder-prep may link
// that (data/prep/README.md).
//
// The file is a protobuf message; of it only `pieces` is looked at: field 1, repeated, with piece =
// 1, score = 2, type = 3 (sentencepiece_model.proto).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::launcher {

enum class PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

struct VocabularyPiece {
  std::string text;
  PieceType type = PieceType::kNormal;
};

// In the order of their ids. `path` names the model in messages. DataLoss if it is none.
absl::StatusOr<std::vector<VocabularyPiece>> ParsePieces(absl::string_view model,
                                                         absl::string_view path);

// FailedPrecondition listing every special piece that does not have the id and kind of XLNet's
// published vocabulary.
absl::Status CheckXlnetPieces(const std::vector<VocabularyPiece>& pieces, absl::string_view path);

// The text that tokens stand for. A word mark is a space, also before the first word; <eop> is a
// line end; control pieces are nothing.
std::string TextOfTokens(const std::vector<VocabularyPiece>& pieces,
                         const std::vector<int32_t>& ids);

}  // namespace anyorder::launcher
