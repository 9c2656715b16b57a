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

// A run of integers in a file, read piece by piece and checked against the vocabulary.
class IntegerRun {
 public:
  IntegerRun(const RangeFile& file, IntegerType type, const TokenOptions& options)
      : file_(file), type_(type), options_(options) {}

  // Appends elements [0, count) from byte `offset` on. DataLoss naming the first id outside.
  absl::Status Append(uint64_t offset, uint64_t count, std::vector<int32_t>& ids);

 private:
  const RangeFile& file_;
  const IntegerType type_;
  const TokenOptions& options_;
  std::string bytes_;
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

using TokenFileOrStatus = absl::StatusOr<std::unique_ptr<TokenFile>>;

TokenFileOrStatus OpenNumpy(RangeFile file, const TokenOptions& options);
// `idx` is the index; the tokens are in the .bin of the same name.
TokenFileOrStatus OpenMegatron(RangeFile idx, const TokenOptions& options);
TokenFileOrStatus OpenLlmC(RangeFile file, const TokenOptions& options);
TokenFileOrStatus OpenBareTokens(RangeFile file, const TokenOptions& options);
TokenFileOrStatus OpenJsonIds(const std::string& path, const TokenOptions& options);

inline constexpr absl::string_view kNumpyMagic("\x93NUMPY", 6);
inline constexpr absl::string_view kMegatronMagic("MMIDIDX\0\0", 9);
// Whether the first bytes are those of llm.c's files.
bool IsLlmC(absl::string_view start);

}  // namespace anyorder::data
