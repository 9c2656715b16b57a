// How much text a token stands for, read from the vocabulary file in the directory of the shards:
// bits per character and per byte need it.
//
// Programs that train or evaluate do not link SentencePiece; the piece list is the first field of
// its protobuf message and is read here.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "data/dataset/dataset_index.h"

namespace anyorder {

struct TextLength {
  int64_t characters = 0;  // code points
  int64_t bytes = 0;       // UTF-8
};

// By token id. The word mark U+2581 counts as the one character it stands for (a space, or the
// begin of a line); pieces of `ids` (<eod> and the like) stand for no text, <unk> for one
// character, whose bytes count as one.
// DataLoss if `model` is not a SentencePiece model; Unimplemented if it has byte pieces.
absl::StatusOr<std::vector<TextLength>> PieceLengths(absl::string_view model,
                                                     const data::VocabIds& ids);

}  // namespace anyorder
