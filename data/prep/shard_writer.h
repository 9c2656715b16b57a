// Writes the token stream as shards and lane tables (FORMAT.md).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "data/dataset/dataset_index.h"

namespace anyorder::data {

struct ShardWriterOptions {
  std::string directory;
  uint64_t shard_tokens = 0;
  uint64_t vocab_size = 0;
  int32_t eod = 0;
  std::vector<bool> is_start_piece;  // indexed by id
  std::string tokenizer_digest;
  std::string corpus_digest;
};

// Takes sentences in stream order. Holds one shard in memory (about 2.4 bytes per uint16 token,
// twice that while it is written).
class ShardWriter {
 public:
  explicit ShardWriter(ShardWriterOptions options);

  // `ids`: token_bytes each, little-endian, as the shard stores them. Errors: DataLoss for an id
  // outside the vocabulary; those of the disk.
  absl::Status AddSentence(absl::Span<const char> ids);
  // Ends the document: one <eod> with the flag of the sentence before it.
  absl::Status EndDocument();
  // Writes the last shard. Returns the list of all shards.
  absl::StatusOr<std::vector<DatasetFile>> Finish();

 private:
  absl::Status Append(absl::Span<const char> ids, bool flag);
  absl::Status WriteShard();

  ShardWriterOptions options_;
  uint64_t token_bytes_;
  std::vector<uint8_t> is_start_;  // 0 or 1, indexed by id
  std::string tokens_;
  std::vector<uint8_t> sentence_flags_;
  std::vector<uint8_t> document_starts_;
  std::vector<uint8_t> word_starts_;
  uint64_t filled_ = 0;       // tokens in the shard being built
  uint64_t first_token_ = 0;  // of it
  bool next_flag_ = true;     // of the next sentence
  bool starts_document_ = true;
  std::vector<DatasetFile> shards_;
};

// Writes lanes.h5 for a stream of `num_tokens`.
absl::StatusOr<DatasetFile> WriteLanes(const std::string& directory, uint64_t num_tokens,
                                       const std::string& tokenizer_digest,
                                       const std::string& corpus_digest);

}  // namespace anyorder::data
