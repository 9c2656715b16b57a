// A prepared dataset (FORMAT.md), open for reading: one logical stream of tokens over many shards.
//
// Opening checks that the directory belongs together: index, tokenizer, labelled examples. A
// shard is opened when the first of its tokens is wanted, and its length and metadata are checked
// then: a rank reads from lanes / shards of them, and 10^12 tokens have more shards than a process
// may open or map. The tokens are read and checked in chunks of 64 KiB, so that nothing is handed
// out that was not compared with its checksum. Shards and chunks that were used last are kept.

#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/file_system.h"
#include "core/base/mutex.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/lru_cache.h"
#include "data/dataset/shard_format.h"
#include "data/dataset/shard_index.h"
#include "data/dataset/stored_examples.h"
#include "data/dataset/text_source.h"

namespace anyorder::data {

struct DatasetOptions {
  bool verify = false;  // also Verify(): reads everything
  FileSystem* fs = FileSystem::Posix();
  // Shards that stay open, each with a descriptor and its checksums (24 KiB at 64 Mi tokens). More
  // lanes than this cost a rank some ten small reads for each chunk that it reads. At most a
  // quarter of the descriptors that the process may have are used, whatever this says.
  size_t max_open_shards = 256;
  // Chunks of 64 KiB that are kept. A lane reads from three at a time; with more lanes than a third
  // of this, each read is one of 64 KiB from the page cache (9 microseconds).
  size_t max_chunks = 1024;
};

// Thread-safe after Open.
class Dataset : public TextSource {
 public:
  // Errors: NotFound (no dataset.json); FailedPrecondition (another format version);
  // DataLoss, naming file and reason (missing, truncated or damaged, or a file of another dataset
  // or tokenizer). Those of shards come when they are read, see CheckShards.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& directory,
                                                       const DatasetOptions& options = {});

  // Digests, vocabulary ids, sizes.
  const DatasetIndex& index() const { return index_; }

  int64_t num_tokens() const override { return static_cast<int64_t>(index_.num_tokens); }
  VocabularyIds vocabulary() const override;
  absl::Status ReadTokens(int64_t begin, int64_t end, int32_t* out) const override;
  absl::Status ReadSentenceFlags(int64_t begin, int64_t end, uint8_t* out) const override {
    return ReadBits(kSentenceBits, begin, end, out);
  }
  absl::Status ReadWordStarts(int64_t begin, int64_t end, uint8_t* out) const override {
    return ReadBits(kWordBits, begin, end, out);
  }
  // 1 at the first token of each document.
  absl::Status ReadDocumentStarts(int64_t begin, int64_t end, uint8_t* out) const {
    return ReadBits(kDocumentBits, begin, end, out);
  }
  // The labelled examples that the text is, null for plain text.
  const StoredExamples* examples() const override { return examples_.get(); }
  std::string CurrentRead() const override;

  // Opens and checks up to `most` shards, spread evenly, by several threads: one process finds at
  // the start of a run what its ranks would find on the way. DataLoss, of the first bad shard.
  absl::Status CheckShards(uint64_t most = 4096) const;
  // Every chunk of every shard, every shard's digest, and that of sources.jsonl. DataLoss, of the
  // first bad file.
  absl::Status Verify() const;

 private:
  class Shard;
  class ReadNote;
  using ChunkKey = std::tuple<uint64_t, uint64_t, uint64_t>;  // shard, array, chunk
  using Chunk = std::vector<uint8_t>;

  Dataset(std::string directory, DatasetIndex index, ShardIndex shards,
          const DatasetOptions& options);
  std::string ShardPath(uint64_t shard) const;
  absl::StatusOr<Shard> OpenShard(uint64_t shard) const;
  absl::StatusOr<std::shared_ptr<const Chunk>> GetChunk(uint64_t shard, ShardArray array,
                                                        uint64_t chunk) const;
  // Calls use(bytes, first, count, at) for the elements [begin, end) of an array, chunk by chunk:
  // `count` elements from `first` on of the chunk are those from begin + at on.
  template <typename Use>
  absl::Status ForEachPiece(ShardArray array, int64_t begin, int64_t end, const Use& use) const;
  absl::Status ReadBits(ShardArray array, int64_t begin, int64_t end, uint8_t* out) const;

  const std::string directory_;
  const DatasetIndex index_;
  const ShardIndex shard_index_;
  FileSystem& fs_;
  mutable LruCache<uint64_t, Shard> shards_;
  mutable LruCache<ChunkKey, Chunk> chunks_;
  std::unique_ptr<StoredExamples> examples_;
  mutable Mutex reads_mutex_;
  mutable std::multiset<std::string> reads_ ABSL_GUARDED_BY(reads_mutex_);  // under way
};

}  // namespace anyorder::data
