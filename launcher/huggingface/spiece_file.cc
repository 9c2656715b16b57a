#include "launcher/huggingface/spiece_file.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/fields.h"
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
    case PieceType::kUnknown:
      return "the unknown piece";
    case PieceType::kControl:
      return "a control piece";
    case PieceType::kUserDefined:
      return "a user-defined piece";
    default:
      return "a normal piece";
  }
}

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;       // of varints
  absl::string_view bytes;  // of length-delimited ones
};

// Reads a protobuf message field by field (protobuf's encoding guide: key = number << 3 | wire
// type).
class MessageReader {
 public:
  explicit MessageReader(absl::string_view message) : rest_(message) {}

  // Nothing at the end, and where the message is damaged.
  std::optional<Field> Next() {
    if (rest_.empty()) return std::nullopt;
    Field field;
    uint64_t key = 0;
    if (!ReadVarint(key)) return Damaged();
    field.number = key >> 3;
    switch (key & 7) {
      case 0:
        return ReadVarint(field.value) ? std::optional(field) : Damaged();
      case 1:
        return Take(8, field.bytes) ? std::optional(field) : Damaged();
      case 2: {
        uint64_t length = 0;
        return ReadVarint(length) && Take(length, field.bytes) ? std::optional(field) : Damaged();
      }
      case 5:
        return Take(4, field.bytes) ? std::optional(field) : Damaged();
      default:
        return Damaged();
    }
  }
  bool is_damaged() const { return is_damaged_; }

 private:
  std::optional<Field> Damaged() {
    is_damaged_ = true;
    return std::nullopt;
  }
  bool ReadVarint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool Take(uint64_t length, absl::string_view& bytes) {
    if (length > rest_.size()) return false;
    bytes = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return true;
  }

  absl::string_view rest_;
  bool is_damaged_ = false;
};

}  // namespace

absl::StatusOr<std::vector<VocabularyPiece>> ParsePieces(absl::string_view model,
                                                         absl::string_view path) {
  std::vector<VocabularyPiece> pieces;
  MessageReader reader(model);
  bool is_damaged = false;
  while (const std::optional<Field> field = reader.Next()) {
    if (field->number != kPiecesField) continue;
    VocabularyPiece piece;
    MessageReader members(field->bytes);
    while (const std::optional<Field> member = members.Next()) {
      if (member->number == kTextField) piece.text = std::string(member->bytes);
      if (member->number == kTypeField) piece.type = static_cast<PieceType>(member->value);
    }
    is_damaged = is_damaged || members.is_damaged();
    pieces.push_back(std::move(piece));
  }
  if (!is_damaged && !reader.is_damaged() && !pieces.empty()) return pieces;
  return absl::DataLossError(absl::StrCat(
      "'", path, "' is not a whole SentencePiece model; fetch the model's spiece.model again"));
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
  return absl::FailedPreconditionError(
      absl::StrCat("'", path, "' is not a vocabulary of XLNet: ", faults.Joined(),
                   "; use the spiece.model that the model was trained with"));
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
