#include "data/dataset/shard.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/crc32c.h"
#include "core/base/status.h"

namespace anyorder::data {

absl::StatusOr<Shard> Shard::Open(FileSystem& fs, const std::string& path,
                                  const ShardRecord& record, uint64_t num_tokens,
                                  uint64_t token_bytes) {
  ASSIGN_OR_RETURN(StoredFile file, StoredFile::Open(fs, path, record.bytes));
  Shard shard(std::move(file), record.digest.Hex());
  RETURN_IF_ERROR(shard.Locate(record, num_tokens, token_bytes));
  RETURN_IF_ERROR(shard.CheckMetadata(record.metadata_digest));
  return shard;
}

absl::Status Shard::Locate(const ShardRecord& record, uint64_t num_tokens, uint64_t token_bytes) {
  const auto check = [&](uint64_t offset, uint64_t bytes, const char* what, const char* name) {
    if (bytes <= file_.size() && offset <= file_.size() - bytes) return absl::OkStatus();
    return DataLoss("'", file_.path(), "' has ", file_.size(), " bytes, too few for the ", bytes,
                    " of ", what, "'", name, "' at byte ", offset, " that ", kShardIndexFile,
                    " lists; restore both or prepare the data again");
  };
  for (size_t i = 0; i < kNumShardArrays; ++i) {
    Array& array = arrays_[i];
    const uint64_t bytes = ShardArrayBytes(static_cast<ShardArray>(i), num_tokens, token_bytes);
    const uint64_t sum_bytes = sizeof(uint32_t) * NumChunks(bytes);
    RETURN_IF_ERROR(check(record.arrays[i], bytes, "", kShardArrayNames[i]));
    RETURN_IF_ERROR(
        check(record.checksums[i], sum_bytes, "the checksums of ", kShardArrayNames[i]));
    array.range = {.offset = record.arrays[i], .bytes = bytes};
    array.checksums.resize(NumChunks(bytes));
    RETURN_IF_ERROR(file_.ReadAt(record.checksums[i], array.checksums.data(), sum_bytes));
  }
  return absl::OkStatus();
}

// What no chunk's checksum guards: HDF5's own structures, which only other tools parse, the
// attributes, which differ in any other file, and the checksums.
absl::Status Shard::CheckMetadata(const Digest128& expected) const {
  std::vector<ByteRange> guarded;
  for (const Array& array : arrays_) guarded.push_back(array.range);
  ASSIGN_OR_RETURN(const Digest128 found, file_.DigestOutside(std::move(guarded)));
  if (found == expected) return absl::OkStatus();
  return DataLoss("'", file_.path(),
                  "' is damaged, or a file of another dataset: its metadata have digest ",
                  found.Hex(), " but ", kShardIndexFile, " says ", expected.Hex(),
                  "; restore it or prepare the data again");
}

absl::StatusOr<std::vector<uint8_t>> Shard::ReadChunk(ShardArray array, uint64_t chunk) const {
  const auto& [range, checksums] = arrays_[array];
  ANYORDER_CHECK(chunk < checksums.size()) << chunk << " of " << checksums.size();
  const uint64_t begin = chunk * kChunkBytes;
  std::vector<uint8_t> bytes(std::min(kChunkBytes, range.bytes - begin));
  RETURN_IF_ERROR(file_.ReadAt(range.offset + begin, bytes.data(), bytes.size()));
  const uint32_t sum = Crc32c(bytes.data(), static_cast<int64_t>(bytes.size()));
  if (sum == checksums[chunk]) return bytes;
  return DataLoss("'", file_.path(), "' dataset '", kShardArrayNames[array], "' chunk ", chunk,
                  " (byte ", range.offset + begin, " of the file): CRC32C is 0x",
                  absl::Hex(sum, absl::kZeroPad8), ", stored 0x",
                  absl::Hex(checksums[chunk], absl::kZeroPad8),
                  "; restore it or prepare the data again");
}

absl::Status Shard::Verify() const {
  for (size_t array = 0; array < kNumShardArrays; ++array) {
    for (uint64_t chunk = 0; chunk < arrays_[array].checksums.size(); ++chunk)
      RETURN_IF_ERROR(ReadChunk(static_cast<ShardArray>(array), chunk).status());
  }
  return file_.CheckDigest(digest_);
}

}  // namespace anyorder::data
