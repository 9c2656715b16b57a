// The only home of hdf5.h. Writing makes a whole file in memory, because then the caller can store
// it with the same write, fsync and rename as any other file and see the disk's own error. Reading
// only locates things: the bytes are read by mmap at the offsets found here (78 times faster than
// H5Dread for rows).
//
// Neither class may be used from two threads at once; HDF5 itself is serial, so neither may two
// objects.

#pragma once

#include <cstdint>
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
  absl::Status AddDataset(const std::string& name,
                          uint32_t element_bytes,
                          const std::vector<uint64_t>& shape,
                          const void* values);
  // Attributes of the root group.
  absl::Status AddAttribute(const std::string& name, uint64_t value);
  absl::Status AddAttribute(const std::string& name, absl::string_view value);

  // The file's bytes. Nothing may be added afterwards.
  absl::StatusOr<std::string> Finish();

 private:
  explicit Hdf5ImageWriter(int64_t file) : file_(file) {}
  int64_t file_;  // hid_t; negative when moved from
};

// Where a contiguous dataset lies in its file.
struct Hdf5Extent {
  uint64_t offset = 0;  // from the first byte of the file
  uint64_t bytes = 0;
  uint32_t element_bytes = 0;
  std::vector<uint64_t> shape;
};

class Hdf5Reader {
 public:
  // Errors: NotFound and PermissionDenied as open(2); DataLoss if it is not an intact HDF5 file.
  static absl::StatusOr<Hdf5Reader> Open(const std::string& path);
  ~Hdf5Reader();
  Hdf5Reader(Hdf5Reader&& other) noexcept;
  Hdf5Reader& operator=(Hdf5Reader&&) = delete;

  // Errors: DataLoss, naming file and dataset, if it is missing, not contiguous, not a
  // little-endian unsigned integer type, or reaches past the end of the file.
  absl::StatusOr<Hdf5Extent> Locate(const std::string& name) const;
  // Errors: DataLoss if missing or of another type.
  absl::StatusOr<uint64_t> ReadUint64Attribute(const std::string& name) const;
  absl::StatusOr<std::string> ReadStringAttribute(const std::string& name) const;

 private:
  Hdf5Reader(int64_t file, std::string path, uint64_t file_bytes)
      : file_(file), path_(std::move(path)), file_bytes_(file_bytes) {}
  int64_t file_;  // hid_t; negative when moved from
  std::string path_;
  uint64_t file_bytes_;
};

}  // namespace anyorder::data
