// The readers behind token_file.h, one for each kind of file, and what they share.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/file_system.h"
#include "core/base/status.h"
#include "data/prep/tokens/token_file.h"

namespace anyorder::data {

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
