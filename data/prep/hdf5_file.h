// The only home of hdf5.h. A whole file is made in memory, because then the caller can store it
// with the same write, fsync and rename as any other file and see the disk's own error.
//
// Nothing here reads: shards.idx says where each array begins, and trainers read ranges of the
// files. That is faster than H5Dread (78 times for rows, mapped), and libhdf5 1.10.8 reads freed
// memory and allocates by wild sizes where a file's metadata is damaged.
//
// No two threads may use this at once, with different objects either: HDF5 itself is serial.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace anyorder::data {

// Builds an HDF5 file in memory. Same calls, same bytes: object times off, library format fixed at
// the oldest, every dataset contiguous and aligned to 64 bytes.
class Hdf5ImageWriter {
 public:
  static absl::StatusOr<Hdf5ImageWriter> Create();
  ~Hdf5ImageWriter();
  Hdf5ImageWriter(Hdf5ImageWriter&& other) noexcept;
  Hdf5ImageWriter& operator=(Hdf5ImageWriter&&) = delete;

  // `values`: product(shape) little-endian unsigned integers of 1, 2, 4 or 8 bytes. `name` may hold
  // slashes; missing groups are made. Errors: ResourceExhausted (out of memory).
  absl::Status AddDataset(const std::string& name, uint32_t element_bytes,
                          const std::vector<uint64_t>& shape, const void* values);
  // Attributes of the root group.
  absl::Status AddAttribute(const std::string& name, uint64_t value);
  absl::Status AddAttribute(const std::string& name, absl::string_view value);

  // Where each dataset's first byte is in the file.
  const std::map<std::string, uint64_t>& offsets() const { return offsets_; }

  // The file's bytes. Nothing may be added afterwards.
  absl::StatusOr<std::string> Finish();

 private:
  explicit Hdf5ImageWriter(int64_t file) : file_(file) {}
  int64_t file_;  // hid_t; negative when moved from
  std::map<std::string, uint64_t> offsets_;
};

}  // namespace anyorder::data
