#include "data/dataset/shard_index.h"

#include <bit>
#include <cstring>

#include "core/base/check.h"
#include "core/base/status.h"

namespace anyorder::data {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are stored as they are");

constexpr char kMagic[] = {'A', 'N', 'Y', 'O', 'S', 'H', 'R', 'D'};

struct Header {
  char magic[8];
  uint64_t format_version;
  uint64_t record_bytes;
  uint64_t num_shards;
};

// As stored: digests in canonical byte order, so that a dump shows them as they are printed.
struct StoredRecord {
  uint64_t bytes;
  uint64_t digest[2];
  uint64_t metadata_digest[2];
  uint64_t arrays[kNumShardArrays];
  uint64_t checksums[kNumShardArrays];
};
static_assert(sizeof(Header) == kShardIndexHeaderBytes);
static_assert(sizeof(StoredRecord) == kShardRecordBytes);

void Store(const Digest128& digest, uint64_t (&stored)[2]) {
  stored[0] = __builtin_bswap64(digest.hi);
  stored[1] = __builtin_bswap64(digest.lo);
}

Digest128 Load(const uint64_t (&stored)[2]) {
  return {.lo = __builtin_bswap64(stored[1]), .hi = __builtin_bswap64(stored[0])};
}

Header HeaderFor(uint64_t num_shards) {
  Header header = {.format_version = kFormatVersion,
                   .record_bytes = kShardRecordBytes,
                   .num_shards = num_shards};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  return header;
}

}  // namespace

std::string SerializeShardIndex(const std::vector<ShardRecord>& records) {
  const Header header = HeaderFor(records.size());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  for (const ShardRecord& record : records) {
    StoredRecord stored;
    stored.bytes = record.bytes;
    Store(record.digest, stored.digest);
    Store(record.metadata_digest, stored.metadata_digest);
    std::memcpy(stored.arrays, record.arrays.data(), sizeof stored.arrays);
    std::memcpy(stored.checksums, record.checksums.data(), sizeof stored.checksums);
    bytes.append(reinterpret_cast<const char*>(&stored), sizeof stored);
  }
  return bytes;
}

absl::StatusOr<ShardIndex> ShardIndex::Open(FileSystem& fs, const std::string& directory,
                                            const DatasetIndex& index) {
  const DatasetFile& entry = index.shards;
  const uint64_t num_shards = index.num_shards();
  ASSIGN_OR_RETURN(StoredFile file, StoredFile::OpenListed(fs, directory, entry));
  Header header;
  const Header expected = HeaderFor(num_shards);
  if (entry.bytes != sizeof header + num_shards * kShardRecordBytes) {
    return DataLoss("'", file.path(), "' has ", entry.bytes,
                    " bytes, which are not the records of ", num_shards,
                    " shards; restore it or prepare the data again");
  }
  RETURN_IF_ERROR(file.ReadAt(0, &header, sizeof header));
  if (std::memcmp(&header, &expected, sizeof header) != 0) {
    return DataLoss("'", file.path(), "' does not begin as the index of ", num_shards,
                    " shards does; prepare the data again");
  }
  return ShardIndex(std::move(file), num_shards);
}

absl::StatusOr<ShardRecord> ShardIndex::Read(uint64_t shard) const {
  ANYORDER_CHECK(shard < num_shards_) << shard << " of " << num_shards_;
  StoredRecord stored;
  RETURN_IF_ERROR(
      file_.ReadAt(kShardIndexHeaderBytes + shard * kShardRecordBytes, &stored, sizeof stored));
  ShardRecord record = {.bytes = stored.bytes,
                        .digest = Load(stored.digest),
                        .metadata_digest = Load(stored.metadata_digest)};
  std::memcpy(record.arrays.data(), stored.arrays, sizeof stored.arrays);
  std::memcpy(record.checksums.data(), stored.checksums, sizeof stored.checksums);
  return record;
}

}  // namespace anyorder::data
