// A prepared dataset (FORMAT.md), open for reading: one logical stream of tokens over many mapped
// shards.
//
// Opening checks that the directory is complete and that every shard belongs to it. The bytes
// themselves are checked chunk by chunk, each once, before the first value in it is handed out; so
// no run trains on damaged data, and starting does not read the whole corpus.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "data/dataset/dataset_index.h"
#include "data/dataset/stored_examples.h"
#include "data/dataset/text_source.h"

namespace anyorder::data {

struct DatasetOptions {
  bool verify = false;  // check every chunk and every file's digest on open: reads everything
};

// Thread-safe after Open.
class Dataset : public TextSource {
 public:
  // Errors: NotFound (no dataset.json); FailedPrecondition (another format version);
  // DataLoss, naming file, HDF5 dataset and chunk (missing, truncated or damaged, or a file of
  // another dataset or tokenizer).
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& directory,
                                                       const DatasetOptions& options = {});
  ~Dataset() override;

  // Digests, vocabulary ids, sizes.
  const DatasetIndex& index() const { return index_; }

  int64_t num_tokens() const override { return static_cast<int64_t>(index_.num_tokens); }
  VocabularyIds vocabulary() const override;
  absl::Status ReadTokens(int64_t begin, int64_t end, int32_t* out) const override;
  absl::Status ReadSentenceFlags(int64_t begin, int64_t end, uint8_t* out) const override;
  absl::Status ReadWordStarts(int64_t begin, int64_t end, uint8_t* out) const override;
  // 1 at the first token of each document.
  absl::Status ReadDocumentStarts(int64_t begin, int64_t end, uint8_t* out) const;
  absl::StatusOr<LaneRange> ReadLaneRange(int64_t stream, int64_t num_streams,
                                          bool backward) const override;
  // The labelled examples that the text is, null for plain text.
  const StoredExamples* examples() const override { return examples_.get(); }

  // Every chunk that was not checked yet, and every file's digest. DataLoss.
  absl::Status Verify() const;

 private:
  struct File;

  Dataset(std::string directory, DatasetIndex index);
  // Maps the file and the arrays in it, each with its name and bytes.
  absl::StatusOr<std::unique_ptr<File>> OpenFile(
      const DatasetFile& entry,
      std::initializer_list<std::pair<const char*, uint64_t>> arrays) const;
  // Calls read(shard, begin, end, offset) for the part of [begin, end) in each shard; begin and end
  // then count from the shard's first token, and offset is where the part begins in [begin, end).
  template <typename Read>
  absl::Status ForEachShard(int64_t begin, int64_t end, Read read) const;
  absl::Status ReadBits(size_t array, int64_t begin, int64_t end, uint8_t* out) const;

  const std::string directory_;
  const DatasetIndex index_;
  std::vector<std::unique_ptr<File>> shards_;
  std::unique_ptr<File> lanes_;
  std::unique_ptr<StoredExamples> examples_;
};

}  // namespace anyorder::data
