// Names and constants of the dataset on disk; FORMAT.md is the full description. Change one, change
// both.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"

namespace anyorder::data {

inline constexpr uint64_t kFormatVersion = 3;  // of shards and of shards.idx
inline constexpr uint64_t kIndexVersion = 4;   // of dataset.json; 3, which lists lanes.h5, is read
inline constexpr char kFormatName[] = "anyorder-dataset";

inline constexpr char kIndexFile[] = "dataset.json";
inline constexpr char kShardIndexFile[] = "shards.idx";
// The tokenizer that the tokens belong to: a SentencePiece model with XLNet's special pieces, one
// with others, Hugging Face's, or only what was declared of it.
inline constexpr char kTokenizerFile[] = "spiece.model";
inline constexpr char kOtherModelFile[] = "tokenizer.model";
inline constexpr char kHuggingFaceFile[] = "tokenizer.json";
inline constexpr char kDeclaredFile[] = "vocabulary.json";
inline constexpr char kExamplesFile[] = "examples.bin";
inline constexpr char kOriginsFile[] = "sources.jsonl";
inline std::string ShardFileName(int64_t index) { return absl::StrFormat("shard-%05d.h5", index); }

// Datasets of a shard. The checksums of /NAME are in /checksums/NAME.
inline constexpr char kTokens[] = "tokens";
inline constexpr char kSentenceFlags[] = "sentence_flags";
inline constexpr char kDocumentStarts[] = "document_starts";
inline constexpr char kWordStarts[] = "word_starts";
inline constexpr char kChecksumsGroup[] = "checksums";

// The arrays of a shard, in the order in which shards.idx lists them.
enum ShardArray : size_t { kTokenIds, kSentenceBits, kDocumentBits, kWordBits, kNumShardArrays };
inline constexpr const char* kShardArrayNames[] = {kTokens, kSentenceFlags, kDocumentStarts,
                                                   kWordStarts};

// The header and a record of shards.idx.
inline constexpr uint64_t kShardIndexHeaderBytes = 32;
inline constexpr uint64_t kShardRecordBytes = 104;

// Attributes of the root group.
inline constexpr char kAttrFormatVersion[] = "format_version";
inline constexpr char kAttrShardIndex[] = "shard_index";
inline constexpr char kAttrFirstToken[] = "first_token";
inline constexpr char kAttrNumTokens[] = "num_tokens";
inline constexpr char kAttrChunkBytes[] = "chunk_bytes";
inline constexpr char kAttrVocabSize[] = "vocab_size";
inline constexpr char kAttrTokenizerDigest[] = "tokenizer_digest";
inline constexpr char kAttrCorpusDigest[] = "corpus_digest";

// One CRC32C guards this many bytes: small enough that checking one costs a reader of a single row
// little (3 us), large enough that the tables stay below 0.01 % of the data.
inline constexpr uint64_t kChunkBytes = 64 << 10;

// 152 MiB of uint16 tokens and their bits. Large enough that 10^12 tokens are 15,000 files, of
// which a metadata server and `ls` think nothing; small enough that preparation holds three copies
// of one in memory (../prep/README.md), and that a damaged one is soon restored.
inline constexpr uint64_t kDefaultShardTokens = 64 << 20;
inline constexpr uint64_t kShardTokensMultiple = 64;

// Bytes per token on disk.
constexpr uint64_t TokenBytes(uint64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

constexpr uint64_t NumChunks(uint64_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes; }

constexpr uint64_t BitmapBytes(uint64_t num_tokens) { return (num_tokens + 7) / 8; }

constexpr uint64_t ShardArrayBytes(ShardArray array, uint64_t num_tokens, uint64_t token_bytes) {
  return array == kTokenIds ? num_tokens * token_bytes : BitmapBytes(num_tokens);
}

}  // namespace anyorder::data
