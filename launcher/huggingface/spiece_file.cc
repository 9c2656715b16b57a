#include "launcher/huggingface/spiece_file.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/fields.h"
#include "core/base/message_reader.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

constexpr uint64_t kPiecesField = 1;
constexpr uint64_t kTextField = 1;
constexpr uint64_t kTypeField = 3;

struct SpecialPiece {
  const char* text;
  PieceType type;
};

// In the order of their ids, from 0.
constexpr SpecialPiece kSpecialPieces[] = {
    {"<unk>", PieceType::kUnknown},    {"<s>", PieceType::kControl},
    {"</s>", PieceType::kControl},     {"<cls>", PieceType::kControl},
    {"<sep>", PieceType::kControl},    {"<pad>", PieceType::kControl},
    {"<mask>", PieceType::kControl},   {"<eod>", PieceType::kControl},
    {"<eop>", PieceType::kUserDefined}};

const char* NameOf(PieceType type) {
  switch (type) {
    case PieceType::kUnknown: return "the unknown piece";
    case PieceType::kControl: return "a control piece";
    case PieceType::kUserDefined: return "a user-defined piece";
    default: return "a normal piece";
  }
}

}  // namespace

absl::StatusOr<std::vector<VocabularyPiece>> ParsePieces(absl::string_view model,
                                                         absl::string_view path) {
  std::vector<VocabularyPiece> pieces;
  MessageReader reader(model);
  bool is_damaged = false;
  while (reader.Next()) {
    if (reader.field() != kPiecesField) continue;
    VocabularyPiece piece;
    MessageReader members(reader.bytes());
    while (members.Next()) {
      if (members.field() == kTextField) piece.text = std::string(members.bytes());
      if (members.field() == kTypeField) piece.type = static_cast<PieceType>(members.varint());
    }
    is_damaged = is_damaged || !members.ok();
    pieces.push_back(std::move(piece));
  }
  if (!is_damaged && reader.ok() && !pieces.empty()) return pieces;
  return DataLoss("'", path,
                  "' is not a whole SentencePiece model; fetch the model's spiece.model again");
}

absl::Status CheckXlnetPieces(const std::vector<VocabularyPiece>& pieces, absl::string_view path) {
  FaultList faults;
  size_t id = 0;
  for (const SpecialPiece& special : kSpecialPieces) {
    const auto found = std::find_if(pieces.begin(), pieces.end(),
                                    [&](const auto& piece) { return piece.text == special.text; });
    const size_t found_id = static_cast<size_t>(found - pieces.begin());
    if (found == pieces.end()) {
      faults.Add(absl::StrCat(special.text, " is missing"));
    } else if (found_id != id) {
      faults.Add(absl::StrCat(special.text, " has id ", found_id, ", not ", id));
    } else if (found->type != special.type) {
      faults.Add(
          absl::StrCat(special.text, " is ", NameOf(found->type), ", not ", NameOf(special.type)));
    }
    ++id;
  }
  if (faults.empty()) return absl::OkStatus();
  return FailedPrecondition("'", path, "' is not a vocabulary of XLNet: ", faults.Joined(),
                            "; use the spiece.model that the model was trained with");
}

std::string TextOfTokens(const std::vector<VocabularyPiece>& pieces,
                         const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) {
    const VocabularyPiece& piece = pieces[static_cast<size_t>(id)];
    if (piece.type == PieceType::kControl) continue;
    if (piece.type == PieceType::kUnknown) {
      text += " \u2047 ";  // what SentencePiece writes
    } else if (piece.text == "<eop>") {
      text += '\n';
    } else {
      absl::StrAppend(&text, absl::StrReplaceAll(piece.text, {{"\u2581", " "}}));
    }
  }
  return text;
}

}  // namespace anyorder::launcher
