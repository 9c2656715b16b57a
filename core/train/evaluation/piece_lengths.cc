#include "core/train/evaluation/piece_lengths.h"

#include "core/base/message_reader.h"

namespace anyorder {
namespace {

constexpr absl::string_view kWordMark = "\xE2\x96\x81";  // U+2581
constexpr uint64_t kBytePiece = 6;                       // SentencePiece.Type.BYTE

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
