#include "core/train/piece_lengths.h"

#include <optional>

#include "core/base/status.h"

namespace anyorder {
namespace {

constexpr absl::string_view kWordMark = "\xE2\x96\x81";  // U+2581
constexpr uint64_t kBytePiece = 6;                       // SentencePiece.Type.BYTE

// Walks the fields of one protobuf message.
class MessageReader {
 public:
  explicit MessageReader(absl::string_view bytes) : rest_(bytes) {}

  // The next field; false at the end or where the bytes are no message, which ok() tells apart.
  bool Next() {
    if (rest_.empty()) return false;
    const std::optional<uint64_t> tag = Varint();
    if (!tag) return Fail();
    field_ = *tag >> 3;
    switch (*tag & 7) {
      case 0: {
        const std::optional<uint64_t> value = Varint();
        if (!value) return Fail();
        varint_ = *value;
        return true;
      }
      case 1:
        return Take(8);
      case 2: {
        const std::optional<uint64_t> size = Varint();
        return size ? Take(*size) : Fail();
      }
      case 5:
        return Take(4);
      default:
        return Fail();
    }
  }
  bool ok() const { return ok_; }
  uint64_t field() const { return field_; }
  uint64_t varint() const { return varint_; }
  absl::string_view bytes() const { return bytes_; }

 private:
  bool Fail() {
    ok_ = false;
    return false;
  }
  bool Take(uint64_t size) {
    if (size > rest_.size()) return Fail();
    bytes_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }
  std::optional<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  absl::string_view rest_;
  bool ok_ = true;
  uint64_t field_ = 0;
  uint64_t varint_ = 0;
  absl::string_view bytes_;
};

TextLength LengthOf(absl::string_view piece) {
  TextLength length;
  while (!piece.empty()) {
    if (piece.substr(0, kWordMark.size()) == kWordMark) {
      piece.remove_prefix(kWordMark.size());
      ++length.characters;
      ++length.bytes;
      continue;
    }
    // Every byte but continuations (10xxxxxx) begins a code point.
    if ((static_cast<uint8_t>(piece[0]) & 0xC0) != 0x80) ++length.characters;
    ++length.bytes;
    piece.remove_prefix(1);
  }
  return length;
}

}  // namespace

absl::StatusOr<std::vector<TextLength>> PieceLengths(absl::string_view model,
                                                     const data::VocabIds& ids) {
  std::vector<TextLength> lengths;
  MessageReader message(model);
  while (message.Next()) {
    if (message.field() != 1) continue;
    MessageReader entry(message.bytes());
    absl::string_view piece;
    while (entry.Next()) {
      if (entry.field() == 1) piece = entry.bytes();
      if (entry.field() == 3 && entry.varint() == kBytePiece)
        return absl::UnimplementedError("the vocabulary has byte pieces");
    }
    if (!entry.ok()) return absl::DataLossError("not a SentencePiece model");
    lengths.push_back(LengthOf(piece));
  }
  if (!message.ok() || lengths.empty()) return absl::DataLossError("not a SentencePiece model");
  for (const int32_t id :
       {ids.bos, ids.eos, ids.cls, ids.sep, ids.pad, ids.mask, ids.eod, ids.eop}) {
    if (id >= 0 && id < static_cast<int32_t>(lengths.size())) lengths[id] = {};
  }
  if (ids.unk >= 0 && ids.unk < static_cast<int32_t>(lengths.size())) lengths[ids.unk] = {1, 1};
  return lengths;
}

}  // namespace anyorder
