// One shard, open: its bytes are read chunk by chunk, and each chunk is compared with its checksum.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "data/dataset/shard_format.h"
#include "data/dataset/shard_index.h"
#include "data/dataset/stored_file.h"

namespace anyorder::data {

// Thread-safe.
class Shard {
 public:
  // Checks length and metadata digest, and reads the checksums: some ten reads, 30 KiB of a shard
  // of 64 Mi tokens. DataLoss if it is missing, damaged, or a file of another dataset.
  static absl::StatusOr<Shard> Open(FileSystem& fs, const std::string& path,
                                    const ShardRecord& record, uint64_t num_tokens,
                                    uint64_t token_bytes);

  // The bytes of a chunk, kChunkBytes but for the last of the array. DataLoss, naming file, array
  // and chunk, if they do not have its checksum; otherwise the errors of StoredFile::ReadAt.
  // REQUIRES that the array has such a chunk.
  absl::StatusOr<std::vector<uint8_t>> ReadChunk(ShardArray array, uint64_t chunk) const;

  // Reads every chunk, then the whole file for its digest.
  absl::Status Verify() const;

 private:
  struct Array {
    ByteRange range;
    std::vector<uint32_t> checksums;
  };

  Shard(StoredFile file, std::string digest) : file_(std::move(file)), digest_(std::move(digest)) {}
  absl::Status Locate(const ShardRecord& record, uint64_t num_tokens, uint64_t token_bytes);
  absl::Status CheckMetadata(const Digest128& expected) const;

  StoredFile file_;
  std::string digest_;  // hex, of the whole file
  std::array<Array, kNumShardArrays> arrays_;
};

}  // namespace anyorder::data
