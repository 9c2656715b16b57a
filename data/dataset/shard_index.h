// shards.idx (FORMAT.md): of each shard its length, its digests and where its arrays lie, in
// records of one size. A shard's record is read when the shard is: 10^12 tokens have 15,000 shards,
// or many more, and a rank reads from few of them.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "data/dataset/stored_file.h"

namespace anyorder::data {

struct ShardRecord {
  uint64_t bytes = 0;         // of the file
  Digest128 digest;           // of the whole file
  Digest128 metadata_digest;  // of all bytes but those that have checksums (FORMAT.md)
  // Where the first byte of each array is in the file, and of its checksums; by ShardArray.
  std::array<uint64_t, kNumShardArrays> arrays = {};
  std::array<uint64_t, kNumShardArrays> checksums = {};

  friend bool operator==(const ShardRecord&, const ShardRecord&) = default;
};

// The bytes of shards.idx.
std::string SerializeShardIndex(const std::vector<ShardRecord>& records);

// Thread-safe.
class ShardIndex {
 public:
  // Reads the file once, to compare it with its digest in dataset.json (25 MB for 238,000 shards),
  // and keeps none of it. DataLoss if it is missing, damaged, or has not a record for each shard.
  static absl::StatusOr<ShardIndex> Open(FileSystem& fs, const std::string& directory,
                                         const DatasetIndex& index);

  uint64_t num_shards() const { return num_shards_; }
  // Errors: those of StoredFile::ReadAt. REQUIRES shard < num_shards().
  absl::StatusOr<ShardRecord> Read(uint64_t shard) const;

 private:
  ShardIndex(StoredFile file, uint64_t num_shards)
      : file_(std::move(file)), num_shards_(num_shards) {}

  StoredFile file_;
  uint64_t num_shards_;
};

}  // namespace anyorder::data
