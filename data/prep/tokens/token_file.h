// Files of ready token ids: .npy arrays, Megatron's .bin with its .idx, llm.c's and nanoGPT's .bin,
// and lines of JSON. Binary files are read by range; memory is one piece, whatever their size.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace anyorder::data {

// What a reader must know of the ids.
struct TokenOptions {
  uint64_t vocab_size = 0;          // ids are in [0, vocab_size)
  int32_t pad = -1;                 // trailing ones of a row of a 2-D .npy are dropped; -1: none
  std::string field = "input_ids";  // of objects in lines of JSON
};

// The next ids of a file: at most kMostPieceTokens of them, or a line of JSON.
struct TokenPiece {
  std::vector<int32_t> ids;
  // Whether the file says that a sentence, or a document, ends after them. Files that know no
  // sentences say so of documents alone.
  bool ends_sentence = false;
  bool ends_document = false;
};
inline constexpr uint64_t kMostPieceTokens = uint64_t{1} << 20;
using TakeTokens = absl::FunctionRef<absl::Status(TokenPiece& piece)>;

// The files that `paths` name, in that order, once each: of Megatron's pair either may be named.
// What is named again is said on stderr.
// InvalidArgument for a directory or a file of unknown kind; NotFound; DataLoss for an empty one.
absl::StatusOr<std::vector<std::string>> FindTokenFiles(const std::vector<std::string>& paths);

// Passes on the pieces of one of FindTokenFiles. The kind follows from the ending and the first
// bytes: .npy; .jsonl, .ndjson and .json, also .gz or .zst; .idx, or .bin with a .idx, is
// Megatron's; .bin with a magic number of llm.c; any other .bin holds bare uint16, as nanoGPT
// writes it. Errors: DataLoss, saying what is wrong and where, for a wrong magic number, header,
// type, size or offset, and for an id outside the vocabulary; those of reading and of `take`.
absl::Status ReadTokenFile(const std::string& path, const TokenOptions& options, TakeTokens take);

}  // namespace anyorder::data
