#include "launcher/huggingface/spiece_file.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/fields.h"
#include "core/base/message_reader.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

constexpr uint64_t kPiecesField = 1;
constexpr uint64_t kTrainerField = 2;
constexpr uint64_t kNormalizerField = 3;

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

// These return false for bytes that are no message.
bool AppendPiece(absl::string_view message, Vocabulary& vocabulary) {
  constexpr uint64_t kText = 1, kScore = 2, kType = 3;
  VocabularyPiece piece;
  MessageReader members(message);
  while (members.Next()) {
    if (members.field() == kText) piece.text = std::string(members.bytes());
    if (members.field() == kScore && members.bytes().size() == sizeof piece.score)
      std::memcpy(&piece.score, members.bytes().data(), sizeof piece.score);
    if (members.field() == kType) piece.type = static_cast<PieceType>(members.varint());
  }
  vocabulary.pieces.push_back(std::move(piece));
  return members.ok();
}

bool ReadTrainer(absl::string_view message, Vocabulary& vocabulary) {
  constexpr uint64_t kModelType = 3, kWhitespaceAsSuffix = 24, kByteFallback = 35;
  MessageReader members(message);
  while (members.Next()) {
    if (members.field() == kModelType)
      vocabulary.type = static_cast<VocabularyType>(members.varint());
    if (members.field() == kWhitespaceAsSuffix || members.field() == kByteFallback)
      vocabulary.has_xlnet_spaces &= members.varint() == 0;
  }
  return members.ok();
}

bool ReadNormalizer(absl::string_view message, Vocabulary& vocabulary) {
  constexpr uint64_t kCharsmap = 2, kFirstSpaceRule = 3, kLastSpaceRule = 5;
  MessageReader members(message);
  while (members.Next()) {
    if (members.field() == kCharsmap) vocabulary.charsmap = std::string(members.bytes());
    if (members.field() >= kFirstSpaceRule && members.field() <= kLastSpaceRule)
      vocabulary.has_xlnet_spaces &= members.varint() == 1;
  }
  return members.ok();
}

}  // namespace

bool VocabularyPiece::is_text() const {
  switch (type) {
    case PieceType::kNormal:
    case PieceType::kByte: return true;
    case PieceType::kUserDefined: return text != "<eop>";
    default: return false;
  }
}

absl::StatusOr<Vocabulary> ParseVocabulary(absl::string_view model, absl::string_view path) {
  Vocabulary vocabulary;
  MessageReader reader(model);
  bool is_whole = true;
  while (reader.Next()) {
    if (reader.field() == kPiecesField) {
      is_whole = AppendPiece(reader.bytes(), vocabulary) && is_whole;
    } else if (reader.field() == kTrainerField) {
      is_whole = ReadTrainer(reader.bytes(), vocabulary) && is_whole;
    } else if (reader.field() == kNormalizerField) {
      is_whole = ReadNormalizer(reader.bytes(), vocabulary) && is_whole;
    }
  }
  if (is_whole && reader.ok() && !vocabulary.pieces.empty()) return vocabulary;
  return DataLoss("'", path,
                  "' is not a whole SentencePiece model; fetch the model's spiece.model again");
}

absl::StatusOr<std::vector<VocabularyPiece>> ParsePieces(absl::string_view model,
                                                         absl::string_view path) {
  ANYORDER_ASSIGN_OR_RETURN(Vocabulary vocabulary, ParseVocabulary(model, path));
  return std::move(vocabulary.pieces);
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
    uint32_t byte = 0;
    if (!piece.is_text()) continue;
    if (piece.type == PieceType::kByte && std::sscanf(piece.text.c_str(), "<0x%2X>", &byte) == 1) {
      text += static_cast<char>(byte);
    } else {
      absl::StrAppend(&text, absl::StrReplaceAll(piece.text, {{"\u2581", " "}}));
    }
  }
  return text;
}

}  // namespace anyorder::launcher
