// A file mapped into memory, read-only. For what this program wrote a moment ago and its disk
// holds: an error of the disk, or a file that is cut while it is mapped, is a SIGBUS. What trainers
// read is read, not mapped (data/dataset/stored_file.h).

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::data {

// Unmaps on destruction.
class MappedFile {
 public:
  // Errors: those of open and mmap.
  static absl::StatusOr<MappedFile> Map(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  absl::string_view bytes() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile(const uint8_t* data, uint64_t size) : data_(data), size_(size) {}
  const uint8_t* data_;
  uint64_t size_;
};

}  // namespace anyorder::data
