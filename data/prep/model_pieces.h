// The pieces of a serialised SentencePiece model, read and left out without the library, whose
// interface does neither.

#pragma once

#include <cstdint>
#include <string>

namespace anyorder::data {

uint64_t NumPieces(const std::string& model);

// What SentencePiece's trainer would have made of the same candidates for `size` pieces: all pieces
// of one character and special ones, and the best of the others. REQUIRES: the trainer made
// `model`, which has at least `size` pieces, fewer than `size` of them of one character or special.
std::string BestPieces(const std::string& model, uint64_t size);

}  // namespace anyorder::data
