// A dataset's file mapped into memory, and arrays in it whose bytes are checked before they are used.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "data/hdf5_file.h"

namespace anyorder::data {

// A whole file, read-only. Unmaps on destruction.
class MappedFile {
 public:
  // Errors: those of open and mmap; DataLoss if the file does not have `expected_bytes` bytes.
  static absl::StatusOr<MappedFile> Open(const std::string& path, uint64_t expected_bytes);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  const uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(const uint8_t* data, uint64_t size, std::string path)
      : data_(data), size_(size), path_(std::move(path)) {}
  const uint8_t* data_;
  uint64_t size_;
  std::string path_;
};

// One HDF5 dataset of a mapped file. Every chunk is compared with its CRC32C when it is first touched, once.
class CheckedArray {
 public:
  // Finds dataset `name` and its checksums. The mapping must outlive the array. Errors: DataLoss if either is
  // missing, or not `num_elements` elements of `element_bytes`.
  static absl::StatusOr<CheckedArray> Open(const MappedFile& file,
                                           const Hdf5Reader& reader,
                                           const std::string& name,
                                           uint32_t element_bytes,
                                           uint64_t num_elements);

  // Bytes [begin, end), verified. Thread-safe. DataLoss names file, dataset and chunk.
  absl::StatusOr<const uint8_t*> Bytes(uint64_t begin, uint64_t end) const;
  uint64_t size_bytes() const { return size_; }

 private:
  CheckedArray(const MappedFile& file, std::string name, const Hdf5Extent& extent);
  absl::Status VerifyChunk(uint64_t chunk) const;

  std::string path_;
  std::string name_;
  const uint8_t* data_;
  uint64_t size_;
  std::vector<uint32_t> checksums_;
  // 1 once the chunk was verified. Two threads may verify the same chunk; the result is the same.
  std::unique_ptr<std::atomic<uint8_t>[]> verified_;
};

}  // namespace anyorder::data
