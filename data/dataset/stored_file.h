// A file of a dataset, read by range. Nothing that trainers read is mapped: where a disk fails or
// a file is cut, a read returns an error that names both, and a mapping ends the process by SIGBUS.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "data/dataset/dataset_index.h"

namespace anyorder::data {

// Thread-safe.
class StoredFile {
 public:
  // `bytes`: its length by the dataset's index. DataLoss if it is missing or has another length.
  static absl::StatusOr<StoredFile> Open(FileSystem& fs, const std::string& path, uint64_t bytes);
  // Opens DIRECTORY's file of this entry in dataset.json, and compares its digest. DataLoss if it
  // is missing, has another length or another digest.
  static absl::StatusOr<StoredFile> OpenListed(FileSystem& fs, const std::string& directory,
                                               const DatasetFile& entry);

  const std::string& path() const { return path_; }
  uint64_t size() const { return bytes_; }

  // Fills `out` with bytes [offset, offset + bytes). Errors name the file and these bytes: DataLoss
  // if the file was cut since it was opened, otherwise what the disk says (Unavailable).
  // REQUIRES offset + bytes <= size().
  absl::Status ReadAt(uint64_t offset, void* out, uint64_t bytes) const;
  // DigestOf what lies outside `holes`, read piece by piece.
  absl::StatusOr<Digest128> DigestOutside(std::vector<ByteRange> holes) const;
  // DataLoss if the whole file's digest is another one. `found`: what it is, where that is known.
  absl::Status CheckDigest(const std::string& expected_hex) const;
  absl::Status CheckDigest(const Digest128& found, const std::string& expected_hex) const;

 private:
  StoredFile(std::string path, uint64_t bytes, std::unique_ptr<ReadableFile> file)
      : path_(std::move(path)), bytes_(bytes), file_(std::move(file)) {}

  std::string path_;
  uint64_t bytes_;
  std::unique_ptr<ReadableFile> file_;
};

}  // namespace anyorder::data
