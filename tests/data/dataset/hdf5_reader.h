// Reads HDF5 files with libhdf5 itself: the witness that what is written is HDF5, and lies where
// shards.idx and dataset.json say. Only for files that the test wrote: it aborts where one is not
// as asked, and libhdf5 1.10.8 may crash on damaged ones.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace anyorder::data {

// Where a contiguous dataset of little-endian unsigned integers lies in its file.
struct Hdf5Extent {
  uint64_t offset = 0;  // from the first byte of the file
  uint64_t bytes = 0;
  uint32_t element_bytes = 0;
  std::vector<uint64_t> shape;
};

class Hdf5Reader {
 public:
  explicit Hdf5Reader(const std::string& path);
  ~Hdf5Reader();
  Hdf5Reader(const Hdf5Reader&) = delete;
  Hdf5Reader& operator=(const Hdf5Reader&) = delete;

  Hdf5Extent Locate(const std::string& name) const;
  // Attributes of the root group.
  uint64_t IntegerAttribute(const std::string& name) const;
  std::string StringAttribute(const std::string& name) const;

 private:
  int64_t file_;  // hid_t
};

}  // namespace anyorder::data
