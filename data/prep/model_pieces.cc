#include "data/prep/model_pieces.h"

#include <algorithm>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/check.h"
#include "core/base/message_reader.h"

namespace anyorder::data {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kPieces = 1, kTrainerSpec = 2;                 // of ModelProto
constexpr uint64_t kPieceText = 1, kPieceType = 3;                // of SentencePiece
constexpr uint64_t kSpecVocabSize = 4, kSpecHardVocabLimit = 33;  // of TrainerSpec
constexpr uint64_t kNormalPiece = 1;
constexpr uint64_t kVarint = 0, kLengthDelimited = 2;  // wire types

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

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
    AppendVarint(kSpecVocabSize << 3 | kVarint, out);
    AppendVarint(size, out);
  }
  return out;
}

}  // namespace

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
    AppendVarint(kTrainerSpec << 3 | kLengthDelimited, out);
    AppendVarint(spec.size(), out);
    out.append(spec);
  }
  return out;
}

}  // namespace anyorder::data
