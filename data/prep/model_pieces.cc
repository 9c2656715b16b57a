#include "data/prep/model_pieces.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/check.h"
#include "core/base/varint.h"

namespace anyorder::data {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3;  // of ModelProto
constexpr uint64_t kPieceText = 1, kPieceType = 3;                      // of SentencePiece
constexpr uint64_t kModelType = 3, kSpecVocabSize = 4, kWhitespaceAsSuffix = 24,
                   kSpecHardVocabLimit = 33, kByteFallback = 35;  // of TrainerSpec
// Of NormalizerSpec; the rules of spaces are add_dummy_prefix, remove_extra_whitespaces and
// escape_whitespaces.
constexpr uint64_t kCharsmap = 2, kSpacePrefix = 3, kSpacesRemoved = 4, kSpacesEscaped = 5;
constexpr uint64_t kNormalPiece = 1;
constexpr uint64_t kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;  // wire types

// Walks the fields of one protobuf message, as far as the bytes are one.
class MessageReader {
 public:
  explicit MessageReader(absl::string_view bytes) : rest_(bytes) {}

  bool Next() {
    from_ = rest_;
    const std::optional<uint64_t> tag = TakeVarint(rest_);
    if (!tag) return false;
    field_ = *tag >> 3;
    varint_ = 0;
    bytes_ = {};
    switch (*tag & 7) {
      case kVarint: {
        const std::optional<uint64_t> value = TakeVarint(rest_);
        varint_ = value.value_or(0);
        return value.has_value();
      }
      case kLengthDelimited: {
        const std::optional<uint64_t> size = TakeVarint(rest_);
        return size && Take(*size);
      }
      case kFixed64: return Take(8);
      case kFixed32: return Take(4);
      default: return false;
    }
  }
  // Of the field that Next found: its number, its value if it is a varint, else its bytes.
  uint64_t field() const { return field_; }
  uint64_t varint() const { return varint_; }
  absl::string_view bytes() const { return bytes_; }
  // All of the field, as it stands in the message.
  absl::string_view raw() const { return from_.substr(0, from_.size() - rest_.size()); }

 private:
  bool Take(uint64_t size) {
    if (size > rest_.size()) return false;
    bytes_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  absl::string_view rest_;
  absl::string_view from_;  // rest_ when Next began
  uint64_t field_ = 0;
  uint64_t varint_ = 0;
  absl::string_view bytes_;
};

// Whether the piece is a normal one of several characters.
bool MayGo(absl::string_view piece) {
  uint64_t type = kNormalPiece;
  int64_t num_characters = 0;
  MessageReader reader(piece);
  while (reader.Next()) {
    if (reader.field() == kPieceType) type = reader.varint();
    if (reader.field() != kPieceText) continue;
    num_characters = std::count_if(reader.bytes().begin(), reader.bytes().end(), [](char byte) {
      return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
    });
  }
  return type == kNormalPiece && num_characters > 1;
}

void ReadTrainerRules(absl::string_view spec, ModelRules& rules) {
  MessageReader reader(spec);
  while (reader.Next()) {
    if (reader.field() == kModelType) rules.type = static_cast<ModelType>(reader.varint());
    if (reader.field() == kWhitespaceAsSuffix || reader.field() == kByteFallback)
      rules.has_xlnet_spaces &= reader.varint() == 0;
  }
}

void ReadNormalizerRules(absl::string_view spec, ModelRules& rules) {
  MessageReader reader(spec);
  while (reader.Next()) {
    if (reader.field() == kCharsmap) rules.charsmap = std::string(reader.bytes());
    if (reader.field() == kSpacesRemoved) rules.keeps_spaces = reader.varint() == 0;
    if (reader.field() == kSpacePrefix || reader.field() == kSpacesEscaped)
      rules.has_xlnet_spaces &= reader.varint() == 1;
  }
}

// `spec` of a model that was trained for `size` pieces and no fewer.
std::string SpecFor(absl::string_view spec, uint64_t size) {
  std::string out;
  MessageReader reader(spec);
  while (reader.Next()) {
    if (reader.field() == kSpecHardVocabLimit) continue;
    if (reader.field() != kSpecVocabSize) {
      out.append(reader.raw().data(), reader.raw().size());
      continue;
    }
    AppendVarint(out, kSpecVocabSize << 3 | kVarint);
    AppendVarint(out, size);
  }
  return out;
}

}  // namespace

bool IsStartPiece(std::string_view piece) {
  constexpr std::string_view kMarks = "!\"#$%&()*+,-./:;?@[\\]^_`{|}~";
  if (piece.empty()) return false;
  if (piece[0] == '<' || piece.substr(0, 3) == "\xE2\x96\x81") return true;
  return piece.size() == 1 && kMarks.find(piece[0]) != std::string_view::npos;
}

ModelRules ReadModelRules(const std::string& model) {
  ModelRules rules;
  MessageReader reader(model);
  while (reader.Next()) {
    if (reader.field() == kTrainerSpec) ReadTrainerRules(reader.bytes(), rules);
    if (reader.field() == kNormalizerSpec) ReadNormalizerRules(reader.bytes(), rules);
  }
  return rules;
}

uint64_t NumPieces(const std::string& model) {
  uint64_t count = 0;
  MessageReader reader(model);
  while (reader.Next()) count += reader.field() == kPieces ? 1 : 0;
  return count;
}

std::string BestPieces(const std::string& model, uint64_t size) {
  // The trainer sorts by score: the worst come last.
  std::vector<bool> may_go;
  MessageReader all(model);
  while (all.Next()) {
    if (all.field() == kPieces) may_go.push_back(MayGo(all.bytes()));
  }
  std::vector<bool> goes(may_go.size(), false);
  uint64_t left = may_go.size();
  for (size_t i = may_go.size(); i-- > 0 && left > size;) {
    goes[i] = may_go[i];
    left -= may_go[i] ? 1 : 0;
  }
  ANYORDER_CHECK(left == size) << left << " pieces are left, wanted " << size;
  std::string out;
  size_t piece = 0;
  MessageReader reader(model);
  while (reader.Next()) {
    if (reader.field() == kPieces && goes[piece++]) continue;
    if (reader.field() != kTrainerSpec) {
      out.append(reader.raw().data(), reader.raw().size());
      continue;
    }
    const std::string spec = SpecFor(reader.bytes(), size);
    AppendVarint(out, kTrainerSpec << 3 | kLengthDelimited);
    AppendVarint(out, spec.size());
    out.append(spec);
  }
  return out;
}

}  // namespace anyorder::data
