// The safetensors file layout: 8-byte little-endian header length, JSON header, raw little-endian
// tensors without gaps. Ours pads the header with spaces so that the data start on a 4 KiB
// boundary. Any safetensors reader opens these files.
//
// Used for checkpoint payload and, through SafetensorsWriter, for exported weights.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/dtype.h"
#include "core/base/file_system.h"
#include "core/base/tensor.h"

namespace anyorder::ckpt {

inline constexpr int64_t kSafetensorsAlignment = 4096;

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
};

// The header's "__metadata__": strings only, by the format's rule.
using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsLayout {
  std::string header;            // all bytes before the first tensor; a multiple of 4 KiB
  std::vector<int64_t> offsets;  // of each given entry, from the start of the file
  int64_t file_bytes = 0;
};

// Places wider element types first, so that every tensor is aligned to its element.
// Errors: InvalidArgument for an empty, reserved or repeated name.
absl::StatusOr<SafetensorsLayout> LayOutSafetensors(const std::vector<SafetensorsEntry>& entries,
                                                    const SafetensorsMetadata& metadata);

// Writes a file tensor by tensor, in any order and in pieces, without holding it in memory:
//   ASSIGN_OR_RETURN(auto writer, SafetensorsWriter::Create(path, entries, {{"format",
//   "pt"}}));
//   RETURN_IF_ERROR(writer.Write("name", view));  // for every entry
//   RETURN_IF_ERROR(writer.Finish());
// The bytes go to "path.tmp"; `path` appears only when Finish succeeds. A left-over "path.tmp" is
// replaced.
class SafetensorsWriter {
 public:
  // Errors: as LayOutSafetensors; AlreadyExists if `path` exists; I/O.
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path,
                                                  const std::vector<SafetensorsEntry>& entries,
                                                  const SafetensorsMetadata& metadata,
                                                  FileSystem* fs = FileSystem::Posix());
  SafetensorsWriter(SafetensorsWriter&&) = default;
  SafetensorsWriter& operator=(SafetensorsWriter&&) = default;

  // The whole tensor, with the dtype and number of elements of its entry.
  absl::Status Write(absl::string_view name, ConstTensorView tensor);
  // Elements [begin, end) in the entry's dtype.
  absl::Status WriteRange(absl::string_view name, int64_t begin, int64_t end, const void* data);
  // Checks that every tensor got all its elements, syncs and renames.
  absl::Status Finish();

 private:
  struct Tensor {
    SafetensorsEntry entry;
    int64_t offset = 0;
    int64_t elements_written = 0;
  };
  SafetensorsWriter() = default;

  std::string path_;
  std::unique_ptr<AtomicFile> file_;
  std::map<std::string, Tensor> tensors_;
};

struct SafetensorsTensor {
  SafetensorsEntry entry;
  int64_t offset = 0;  // from the start of the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in file order
  SafetensorsMetadata metadata;
  int64_t header_bytes = 0;  // where data start
};

// Parses the header of a file of `file_bytes` bytes, of which `prefix` holds the first ones, at
// least the header. Trusts nothing: every length, shape and offset is checked.
// Errors: DataLoss naming `path` and the entry.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view prefix,
                                                         int64_t file_bytes,
                                                         absl::string_view path);

// Reads a file made by anyone. The format has no checksums: checkpoints are read through reader.h.
class SafetensorsReader {
 public:
  static absl::StatusOr<SafetensorsReader> Open(const std::string& path,
                                                FileSystem* fs = FileSystem::Posix());

  const std::vector<SafetensorsTensor>& tensors() const { return header_.tensors; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  // Null if there is none.
  const SafetensorsTensor* Find(absl::string_view name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : &header_.tensors[found->second];
  }
  // Elements [begin, end) into `dst`. Errors: NotFound, OutOfRange, I/O.
  absl::Status Read(absl::string_view name, int64_t begin, int64_t end, void* dst) const;

 private:
  SafetensorsReader() = default;

  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  SafetensorsHeader header_;
  absl::flat_hash_map<std::string, size_t> places_;  // in header_.tensors, by name
};

}  // namespace anyorder::ckpt
