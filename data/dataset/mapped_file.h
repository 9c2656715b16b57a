// A dataset's file mapped into memory, and arrays in it whose bytes are checked before they are
// used.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/digest.h"

namespace anyorder::data {

// A whole file, read-only. Unmaps on destruction.
class MappedFile {
 public:
  // Errors: those of open and mmap.
  static absl::StatusOr<MappedFile> Map(const std::string& path);
  // A file of dataset.json. DataLoss if it is missing or does not have `expected_bytes` bytes.
  static absl::StatusOr<MappedFile> Open(const std::string& path, uint64_t expected_bytes);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  absl::string_view bytes() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(const uint8_t* data, uint64_t size, std::string path)
      : data_(data), size_(size), path_(std::move(path)) {}
  const uint8_t* data_;
  uint64_t size_;
  std::string path_;
};

// One array of a mapped file. Every chunk is compared with its CRC32C when it is first touched,
// once.
class CheckedArray {
 public:
  // The array of `size` bytes that begins at offsets[name], and its checksums. The mapping must
  // outlive it. Errors: DataLoss if `offsets` lacks either, or the file does not reach so far.
  static absl::StatusOr<CheckedArray> Open(const MappedFile& file,
                                           const std::map<std::string, uint64_t>& offsets,
                                           const std::string& name, uint64_t size);

  // Bytes [begin, end), verified. Thread-safe. DataLoss names file, dataset and chunk.
  absl::StatusOr<const uint8_t*> Bytes(uint64_t begin, uint64_t end) const;
  uint64_t size_bytes() const { return range_.bytes; }
  // Where it lies in the file.
  const ByteRange& range() const { return range_; }

 private:
  CheckedArray(const MappedFile& file, std::string name, const ByteRange& range);
  absl::Status VerifyChunk(uint64_t chunk) const;

  std::string path_;
  std::string name_;
  const uint8_t* data_;
  ByteRange range_;
  std::vector<uint32_t> checksums_;
  // 1 once the chunk was verified. Two threads may verify the same chunk; the result is the same.
  std::unique_ptr<std::atomic<uint8_t>[]> verified_;
};

}  // namespace anyorder::data
