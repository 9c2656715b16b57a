// What a checkpoint consists of: one vote per node while it is being made, one manifest once all
// votes agree. FORMAT.md describes both files.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "ckpt/layout.h"
#include "ckpt/safetensors.h"
#include "core/base/dtype.h"
#include "core/base/tensor.h"

namespace anyorder::ckpt {

// A contiguous part of a logical tensor inside one file.
struct TensorPiece {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape global_shape;
  int64_t begin = 0;  // flat elements [begin, end) of the global tensor
  int64_t end = 0;
  int64_t offset = 0;  // bytes from the start of the file
};

struct FileRecord {
  std::string name;
  int64_t bytes = 0;
  std::vector<uint32_t> crcs;  // of each kCrcChunkBytes of the file, header included
};

struct VotedFile {
  FileRecord record;
  int rank = 0;
  std::vector<TensorPiece> pieces;
};

// "My ranks' files are on disk": one per node and generation.
struct Vote {
  SaveIdentity id;
  int node = 0;
  std::string metadata;
  std::vector<VotedFile> files;
};

struct Segment {
  int64_t begin = 0;
  int64_t end = 0;
  int file = 0;        // index into Manifest::files
  int64_t offset = 0;  // of element `begin`, bytes from the start of the file
};

struct LogicalTensor {
  DType dtype = DType::kFloat32;
  Shape shape;
  std::vector<Segment> segments;  // sorted, without gap or overlap, covering every element
};

struct Manifest {
  SaveIdentity id;
  std::string metadata;
  std::string created;  // wall time, RFC 3339; information only
  std::vector<FileRecord> files;
  std::map<std::string, LogicalTensor> tensors;

  int64_t num_bytes() const;
};

// The pieces that a rank file's header declares (client.cc writes them so).
absl::StatusOr<std::vector<TensorPiece>> PiecesOf(const SafetensorsHeader& header,
                                                  absl::string_view path);
// The header's metadata for pieces stored under `keys`, plus what identifies the save.
SafetensorsMetadata MetadataFor(const SaveIdentity& id, int rank,
                                const std::vector<std::string>& keys,
                                const std::vector<TensorPiece>& pieces);

// Joins the votes of all nodes.
// Errors: DataLoss if they do not belong together, ranks are missing or repeated, or a tensor has a
// gap, an overlap, or different dtypes or shapes.
absl::StatusOr<Manifest> MergeVotes(const std::vector<Vote>& votes);

std::string SerializeVote(const Vote& vote);
std::string SerializeManifest(const Manifest& manifest);
// Errors: DataLoss naming `path` and what is wrong; nothing inside is trusted before it is checked.
absl::StatusOr<Vote> ParseVote(absl::string_view text, absl::string_view path);
absl::StatusOr<Manifest> ParseManifest(absl::string_view text, absl::string_view path);

}  // namespace anyorder::ckpt
