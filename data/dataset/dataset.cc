#include "data/dataset/dataset.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/status.h"
#include "data/dataset/stored_file.h"

namespace anyorder::data {

namespace {

// Fills out[i] with element i of `bytes`. Returns the largest.
template <typename Element>
uint64_t Widen(const uint8_t* bytes, uint64_t count, int32_t* out) {
  Element most = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Element value;
    std::memcpy(&value, bytes + i * sizeof(Element), sizeof(Element));
    most = std::max(most, value);
    out[i] = static_cast<int32_t>(value);
  }
  return most;
}

// No more shards than leave descriptors for everything else.
size_t OpenShardLimit(size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  return std::clamp<size_t>(limit.rlim_cur / 4, 1, wanted);
}

// Calls check(0) to check(count - 1) in several threads, because each waits for a disk. The error
// of the first that has one: whatever came before it was begun before it.
template <typename Check>
absl::Status CheckEach(uint64_t count, const Check& check) {
  constexpr uint64_t kThreads = 8;
  std::atomic<uint64_t> next = 0;
  struct {
    Mutex mutex;
    uint64_t bad ABSL_GUARDED_BY(mutex);
    absl::Status status ABSL_GUARDED_BY(mutex);
  } first = {{}, count, {}};
  const auto work = [&] {
    for (uint64_t i = next++; i < count; i = next++) {
      absl::Status found = check(i);
      if (found.ok()) continue;
      next = count;
      const MutexLock lock(&first.mutex);
      if (i >= first.bad) continue;
      first.bad = i;
      first.status = std::move(found);
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < std::min(count, kThreads); ++t) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(&first.mutex);
  return first.status;
}

}  // namespace

// One shard, open: its bytes are read chunk by chunk, and each chunk is compared with its checksum.
// Thread-safe.
class Dataset::Shard {
 public:
  // Checks length and metadata digest, and reads the checksums: some ten reads, 30 KiB of a shard
  // of 64 Mi tokens. DataLoss if it is missing, damaged, or a file of another dataset.
  static absl::StatusOr<Shard> Open(FileSystem& fs, const std::string& path,
                                    const ShardRecord& record, uint64_t num_tokens,
                                    uint64_t token_bytes) {
    ASSIGN_OR_RETURN(StoredFile file, StoredFile::Open(fs, path, record.bytes));
    Shard shard(std::move(file), record.digest.Hex());
    RETURN_IF_ERROR(shard.Locate(record, num_tokens, token_bytes));
    RETURN_IF_ERROR(shard.CheckMetadata(record.metadata_digest));
    return shard;
  }

  // The bytes of a chunk, kChunkBytes but for the last of the array. DataLoss, naming file, array
  // and chunk, if they do not have its checksum; otherwise the errors of StoredFile::ReadAt.
  // REQUIRES that the array has such a chunk.
  absl::StatusOr<Chunk> ReadChunk(ShardArray array, uint64_t chunk) const {
    const auto& [range, checksums] = arrays_[array];
    ANYORDER_CHECK(chunk < checksums.size()) << chunk << " of " << checksums.size();
    const uint64_t begin = chunk * kChunkBytes;
    Chunk bytes(std::min(kChunkBytes, range.bytes - begin));
    RETURN_IF_ERROR(file_.ReadAt(range.offset + begin, bytes.data(), bytes.size()));
    const uint32_t sum = Crc32c(bytes.data(), static_cast<int64_t>(bytes.size()));
    if (sum == checksums[chunk]) return bytes;
    return DataLoss("'", file_.path(), "' dataset '", kShardArrayNames[array], "' chunk ", chunk,
                    " (byte ", range.offset + begin, " of the file): CRC32C is 0x",
                    absl::Hex(sum, absl::kZeroPad8), ", stored 0x",
                    absl::Hex(checksums[chunk], absl::kZeroPad8),
                    "; restore it or prepare the data again");
  }

  // Reads every chunk, then the whole file for its digest.
  absl::Status Verify() const {
    for (size_t array = 0; array < kNumShardArrays; ++array) {
      for (uint64_t chunk = 0; chunk < arrays_[array].checksums.size(); ++chunk)
        RETURN_IF_ERROR(ReadChunk(static_cast<ShardArray>(array), chunk).status());
    }
    return file_.CheckDigest(digest_);
  }

 private:
  struct Array {
    ByteRange range;
    std::vector<uint32_t> checksums;
  };

  Shard(StoredFile file, std::string digest) : file_(std::move(file)), digest_(std::move(digest)) {}

  absl::Status Locate(const ShardRecord& record, uint64_t num_tokens, uint64_t token_bytes) {
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
  absl::Status CheckMetadata(const Digest128& expected) const {
    std::vector<ByteRange> guarded;
    for (const Array& array : arrays_) guarded.push_back(array.range);
    ASSIGN_OR_RETURN(const Digest128 found, file_.DigestOutside(std::move(guarded)));
    if (found == expected) return absl::OkStatus();
    return DataLoss("'", file_.path(),
                    "' is damaged, or a file of another dataset: its metadata have digest ",
                    found.Hex(), " but ", kShardIndexFile, " says ", expected.Hex(),
                    "; restore it or prepare the data again");
  }

  StoredFile file_;
  std::string digest_;  // hex, of the whole file
  std::array<Array, kNumShardArrays> arrays_;
};

// Says what a thread reads, for as long as it does.
class Dataset::ReadNote {
 public:
  ReadNote(const Dataset& dataset, std::string what) : dataset_(dataset) {
    const MutexLock lock(&dataset_.reads_mutex_);
    place_ = dataset_.reads_.insert(std::move(what));
  }
  ~ReadNote() {
    const MutexLock lock(&dataset_.reads_mutex_);
    dataset_.reads_.erase(place_);
  }
  ReadNote(const ReadNote&) = delete;
  ReadNote& operator=(const ReadNote&) = delete;

 private:
  const Dataset& dataset_;
  std::multiset<std::string>::iterator place_;
};

Dataset::Dataset(std::string directory, DatasetIndex index, ShardIndex shards,
                 const DatasetOptions& options)
    : directory_(std::move(directory)),
      index_(std::move(index)),
      shard_index_(std::move(shards)),
      fs_(*options.fs),
      shards_(OpenShardLimit(options.max_open_shards)),
      chunks_(options.max_chunks) {}

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(const std::string& directory,
                                                       const DatasetOptions& options) {
  ASSIGN_OR_RETURN(DatasetIndex index, ReadDatasetIndex(directory));
  RETURN_IF_ERROR(StoredFile::OpenListed(*options.fs, directory, index.tokenizer).status());
  if (index.tokenizer_digest != TokenizerDigest(index.tokenizer.digest, index.declared)) {
    return DataLoss("'", directory, "/", kIndexFile, "': tokenizer_digest ", index.tokenizer_digest,
                    " is not that of '", index.tokenizer.file,
                    "'; restore it or prepare the data again");
  }
  ASSIGN_OR_RETURN(ShardIndex shards, ShardIndex::Open(*options.fs, directory, index));
  std::unique_ptr<Dataset> dataset(
      new Dataset(directory, std::move(index), std::move(shards), options));
  if (dataset->index_.examples) {
    ASSIGN_OR_RETURN(dataset->examples_,
                     StoredExamples::Open(*options.fs, directory, dataset->index_, *dataset));
  }
  if (options.verify) RETURN_IF_ERROR(dataset->Verify());
  return dataset;
}

VocabularyIds Dataset::vocabulary() const {
  const VocabIds& ids = index_.vocab_ids;
  return {ids.sep, ids.cls, ids.mask, static_cast<int64_t>(index_.vocab_size),
          ids.bos, ids.eos, ids.eod};
}

std::string Dataset::ShardPath(uint64_t shard) const {
  return absl::StrCat(directory_, "/", ShardFileName(static_cast<int64_t>(shard)));
}

absl::StatusOr<Dataset::Shard> Dataset::OpenShard(uint64_t shard) const {
  const std::string path = ShardPath(shard);
  const ReadNote note(*this, absl::StrCat("opening '", path, "'"));
  ASSIGN_OR_RETURN(const ShardRecord record, shard_index_.Read(shard));
  return Shard::Open(fs_, path, record, index_.TokensOfShard(shard), index_.token_bytes);
}

absl::StatusOr<std::shared_ptr<const Dataset::Chunk>> Dataset::GetChunk(uint64_t shard,
                                                                        ShardArray array,
                                                                        uint64_t chunk) const {
  return chunks_.Get({shard, array, chunk}, [&]() -> absl::StatusOr<Chunk> {
    ASSIGN_OR_RETURN(const std::shared_ptr<const Shard> file,
                     shards_.Get(shard, [&] { return OpenShard(shard); }));
    const ReadNote note(*this, absl::StrCat("reading '", ShardPath(shard), "', ",
                                            kShardArrayNames[array], " chunk ", chunk));
    return file->ReadChunk(array, chunk);
  });
}

template <typename Use>
absl::Status Dataset::ForEachPiece(ShardArray array, int64_t begin, int64_t end,
                                   const Use& use) const {
  ANYORDER_CHECK(0 <= begin && begin <= end && end <= num_tokens())
      << begin << ".." << end << " of " << num_tokens();
  // An element never lies in two chunks.
  const uint64_t chunk_elements =
      array == kTokenIds ? kChunkBytes / index_.token_bytes : kChunkBytes * 8;
  const auto last = static_cast<uint64_t>(end);
  for (auto at = static_cast<uint64_t>(begin); at < last;) {
    const uint64_t shard = at / index_.shard_tokens;
    const uint64_t in_shard = at % index_.shard_tokens;
    const uint64_t first = in_shard % chunk_elements;
    const uint64_t count =
        std::min({last - at, index_.shard_tokens - in_shard, chunk_elements - first});
    ASSIGN_OR_RETURN(const std::shared_ptr<const Chunk> chunk,
                     GetChunk(shard, array, in_shard / chunk_elements));
    RETURN_IF_ERROR(use(chunk->data(), first, count, at - static_cast<uint64_t>(begin)));
    at += count;
  }
  return absl::OkStatus();
}

absl::Status Dataset::ReadTokens(int64_t begin, int64_t end, int32_t* out) const {
  const auto use = [&](const uint8_t* bytes, uint64_t first, uint64_t count, uint64_t at) {
    bytes += first * index_.token_bytes;
    const uint64_t largest = index_.token_bytes == 2 ? Widen<uint16_t>(bytes, count, out + at)
                                                     : Widen<uint32_t>(bytes, count, out + at);
    if (largest < index_.vocab_size) return absl::OkStatus();
    // An id is a row of the embedding table: one outside would be read from other memory.
    const uint64_t token = static_cast<uint64_t>(begin) + at;
    const auto first_token = static_cast<int64_t>(token % index_.shard_tokens);
    return DataLoss("'", ShardPath(token / index_.shard_tokens), "' tokens ",
                    RangeText(first_token, first_token + static_cast<int64_t>(count) - 1),
                    " hold id ", largest, " but the vocabulary has ", index_.vocab_size,
                    "; prepare the data again");
  };
  return ForEachPiece(kTokenIds, begin, end, use);
}

absl::Status Dataset::ReadBits(ShardArray array, int64_t begin, int64_t end, uint8_t* out) const {
  return ForEachPiece(array, begin, end,
                      [&](const uint8_t* bytes, uint64_t first, uint64_t count, uint64_t at) {
                        for (uint64_t i = 0; i < count; ++i)
                          out[at + i] = (bytes[(first + i) / 8] >> ((first + i) % 8)) & 1;
                        return absl::OkStatus();
                      });
}

std::string Dataset::CurrentRead() const {
  const MutexLock lock(&reads_mutex_);
  return reads_.empty() ? "" : *reads_.begin();
}

absl::Status Dataset::CheckShards(uint64_t most) const {
  const uint64_t num_shards = shard_index_.num_shards();
  const uint64_t count = std::min(most, num_shards);
  return CheckEach(count, [&](uint64_t i) { return OpenShard(i * num_shards / count).status(); });
}

absl::Status Dataset::Verify() const {
  if (index_.examples && index_.examples->origins) {
    RETURN_IF_ERROR(StoredFile::OpenListed(fs_, directory_, *index_.examples->origins).status());
  }
  return CheckEach(shard_index_.num_shards(), [&](uint64_t i) -> absl::Status {
    ASSIGN_OR_RETURN(const Shard shard, OpenShard(i));
    return shard.Verify();
  });
}

}  // namespace anyorder::data
