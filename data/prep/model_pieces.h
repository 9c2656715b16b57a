// What SentencePiece's interface neither tells of a serialised model nor does to it: the kind of
// model and its rules of normalisation, and models with fewer pieces. The file is a protobuf
// message (sentencepiece_model.proto), which is read field by field.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace anyorder::data {

enum class ModelType { kUnigram = 1, kBpe = 2, kWords = 3, kCharacters = 4 };

struct ModelRules {
  ModelType type = ModelType::kUnigram;
  std::string charsmap;  // of the normalisation, compiled; empty: none
  // How spaces become word marks, and unknown characters bytes: as in XLNet's vocabulary.
  bool has_xlnet_spaces = true;
  bool keeps_spaces = false;  // also several together, and those at the ends of a text
};

// Whether word spans may begin at this piece: it begins with U+2581 or '<', or is one of a fixed
// list of punctuation marks (FORMAT.md, "start piece").
bool IsStartPiece(std::string_view piece);

// The rules of a model that the library has loaded; of other bytes, what can be read.
ModelRules ReadModelRules(const std::string& model);

uint64_t NumPieces(const std::string& model);

// What SentencePiece's trainer would have made of the same candidates for `size` pieces: all pieces
// of one character and special ones, and the best of the others. REQUIRES: the trainer made
// `model`, which has at least `size` pieces, fewer than `size` of them of one character or special.
std::string BestPieces(const std::string& model, uint64_t size);

}  // namespace anyorder::data
