// Files of ready token ids: .npy arrays, Megatron's .bin with its .idx, llm.c's and nanoGPT's .bin,
// and lines of JSON. Binary files are read by range; memory is one piece, whatever their size.
// What its readers, one for each kind of file, share comes behind what others use.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/file_system.h"
#include "core/base/status.h"

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

// A file of bytes that is read by range.
class RangeFile {
 public:
  // Errors: those of FileSystem::OpenForRead.
  static absl::StatusOr<RangeFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  uint64_t size() const { return static_cast<uint64_t>(file_->size()); }
  // Replaces `out` by bytes [offset, offset + bytes). DataLoss if the file ends before.
  absl::Status Read(uint64_t offset, uint64_t bytes, std::string& out) const;

 private:
  RangeFile(std::string path, std::unique_ptr<ReadableFile> file)
      : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  std::unique_ptr<ReadableFile> file_;
};

// How an integer is stored, little-endian.
struct IntegerType {
  uint64_t bytes = 0;
  bool is_signed = false;
};

// Runs of integers in a file, read piece by piece and checked against the vocabulary.
class IntegerRuns {
 public:
  // Borrows all but `type`.
  IntegerRuns(const RangeFile& file, IntegerType type, const TokenOptions& options, TakeTokens take)
      : file_(file), type_(type), options_(options), take_(take) {}

  // Passes on `count` integers from byte `offset` on, an empty piece if that is 0. The last piece
  // ends what is said. DataLoss naming the first id outside; those of reading and of `take`.
  absl::Status Pass(uint64_t offset, uint64_t count, bool ends_sentence, bool ends_document);

 private:
  absl::Status Read(uint64_t offset, uint64_t count);

  const RangeFile& file_;
  const IntegerType type_;
  const TokenOptions& options_;
  const TakeTokens take_;
  std::string bytes_;
  TokenPiece piece_;
};

// "'FILE': WHAT"; what to do next is part of WHAT.
template <typename... Parts>
absl::Status BadTokenFile(const std::string& path, const Parts&... what) {
  return DataLoss("'", path, "': ", what...);
}

// That `id` at `place` is outside the vocabulary, and why that may be.
absl::Status OutsideVocabulary(const std::string& path, const std::string& place, int64_t id,
                               uint64_t vocab_size);

// Little-endian integers of headers.
uint64_t ReadLittle(absl::string_view bytes, uint64_t offset, uint64_t width);

// As ReadTokenFile.
absl::Status ReadNumpy(const RangeFile& file, const TokenOptions& options, TakeTokens take);
// `idx` is the index; the tokens are in the .bin of the same name.
absl::Status ReadMegatron(const RangeFile& idx, const TokenOptions& options, TakeTokens take);
// Of llm.c or nanoGPT.
absl::Status ReadFlatTokens(const RangeFile& file, const TokenOptions& options, TakeTokens take);
absl::Status ReadJsonIds(const RangeFile& file, const TokenOptions& options, TakeTokens take);

inline constexpr absl::string_view kNumpyMagic("\x93NUMPY", 6);
inline constexpr absl::string_view kMegatronMagic("MMIDIDX\0\0", 9);

}  // namespace anyorder::data
