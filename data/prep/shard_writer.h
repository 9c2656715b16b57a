// Writes the token stream as shards (FORMAT.md).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_index.h"

namespace anyorder::data {

class Hdf5ImageWriter;
struct DatasetVocabulary;

// Whether shards may have so many tokens. InvalidArgument naming --shard-tokens.
absl::Status CheckShardTokens(uint64_t shard_tokens);

// Stores the vocabulary's file in `directory`, and returns what dataset.json says before the text
// is known. Errors: those of the disk.
absl::StatusOr<DatasetIndex> StartDataset(const std::string& directory,
                                          const DatasetVocabulary& vocabulary,
                                          uint64_t shard_tokens, std::string corpus_digest);

// Writes a file of the dataset and returns its entry. Errors: those of the disk.
absl::StatusOr<DatasetFile> StoreFile(const std::string& directory, const std::string& name,
                                      const std::string& bytes);

// Takes sentences in stream order. Holds one shard in memory (about 2.4 bytes per uint16 token,
// three times that while it is written) and 104 bytes for each finished one.
class ShardWriter {
 public:
  // Writes to `directory`. `is_start_piece` is indexed by id. `index`: see StartDataset.
  ShardWriter(std::string directory, DatasetIndex index, const std::vector<bool>& is_start_piece);

  // `ids`: token_bytes each, little-endian, as the shard stores them. Errors: DataLoss for an id
  // outside the vocabulary; those of the disk.
  absl::Status AddSentence(absl::Span<const char> ids);
  absl::Status AddSentence(absl::Span<const int32_t> ids);  // as numbers
  // Ends the document: one <eod> with the flag of the sentence before it.
  absl::Status EndDocument();
  // Writes the last shard and shards.idx. Returns the index with num_tokens, shards and, where
  // there are any, the number of tokens that are <unk>.
  absl::StatusOr<DatasetIndex> Finish();

 private:
  absl::Status Append(absl::Span<const char> ids, bool flag);
  absl::Status WriteShard();
  absl::Status StoreShard(Hdf5ImageWriter& image);

  const std::string directory_;
  DatasetIndex index_;
  std::vector<ShardRecord> shards_;
  std::vector<uint8_t> is_start_;  // 0 or 1, indexed by id
  std::string tokens_;
  std::vector<uint8_t> sentence_flags_;
  std::vector<uint8_t> document_starts_;
  std::vector<uint8_t> word_starts_;
  uint64_t filled_ = 0;  // tokens in the shard being built, which begins at index_.num_tokens
  uint64_t num_unknown_ = 0;
  bool next_flag_ = true;  // of the next sentence
  bool starts_document_ = true;
};

}  // namespace anyorder::data
