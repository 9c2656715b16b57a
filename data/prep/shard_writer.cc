#include "data/prep/shard_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "core/base/status.h"
#include "data/dataset/shard_format.h"
#include "data/prep/hdf5_file.h"
#include "data/prep/tokenizer.h"
#include "data/prep/vocabulary.h"

namespace anyorder::data {
namespace {

// Sets bits [begin, end) of `bits`.
void SetBits(std::vector<uint8_t>& bits, uint64_t begin, uint64_t end) {
  for (; begin < end && begin % 8 != 0; ++begin)
    bits[begin / 8] |= static_cast<uint8_t>(1u << (begin % 8));
  if (end - begin >= 8) {
    std::memset(bits.data() + begin / 8, 0xFF, (end - begin) / 8);
    begin += (end - begin) / 8 * 8;
  }
  for (; begin < end; ++begin) bits[begin / 8] |= static_cast<uint8_t>(1u << (begin % 8));
}

// Adds a dataset and its checksums.
absl::Status AddGuarded(Hdf5ImageWriter& image, const std::string& name, uint32_t element_bytes,
                        const std::vector<uint64_t>& shape, const void* values) {
  RETURN_IF_ERROR(image.AddDataset(name, element_bytes, shape, values));
  uint64_t bytes = element_bytes;
  for (const uint64_t dim : shape) bytes *= dim;
  std::vector<uint32_t> checksums;
  for (uint64_t at = 0; at < bytes; at += kChunkBytes) {
    checksums.push_back(
        Crc32c(static_cast<const char*>(values) + at, std::min(kChunkBytes, bytes - at)));
  }
  return image.AddDataset(absl::StrCat(kChecksumsGroup, "/", name), 4, {checksums.size()},
                          checksums.data());
}

// Where each array of a shard is in `image`.
ShardRecord LocateArrays(const Hdf5ImageWriter& image) {
  ShardRecord record;
  for (size_t i = 0; i < kNumShardArrays; ++i) {
    const char* const name = kShardArrayNames[i];
    record.arrays[i] = image.offsets().at(name);
    record.checksums[i] = image.offsets().at(absl::StrCat(kChecksumsGroup, "/", name));
  }
  return record;
}

// Sets the word-start bits of `ids`, the first of which is bit `at`, and counts those that are
// `unk`. Tokens are read by memcpy because work units do not align them. Returns the first id
// outside the vocabulary, or -1.
template <typename Token>
int64_t MarkWordStarts(absl::Span<const char> ids, uint64_t at,
                       const std::vector<uint8_t>& is_start, std::vector<uint8_t>& bits,
                       int64_t unk, uint64_t& num_unknown) {
  for (size_t i = 0; i < ids.size(); i += sizeof(Token), ++at) {
    Token id = 0;
    std::memcpy(&id, ids.data() + i, sizeof id);
    if (id >= is_start.size()) return id;
    num_unknown += id == unk ? 1 : 0;
    bits[at / 8] |= static_cast<uint8_t>(is_start[id] << (at % 8));
  }
  return -1;
}

}  // namespace

absl::StatusOr<DatasetFile> StoreFile(const std::string& directory, const std::string& name,
                                      const std::string& bytes) {
  RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(directory, "/", name), bytes));
  return DatasetFile{.file = name, .bytes = bytes.size(), .digest = DigestOf(bytes).Hex()};
}

absl::Status CheckShardTokens(uint64_t shard_tokens) {
  if (shard_tokens > 0 && shard_tokens % kShardTokensMultiple == 0) return absl::OkStatus();
  return InvalidArgument("--shard-tokens ", shard_tokens, " is not a positive multiple of ",
                         kShardTokensMultiple);
}

absl::StatusOr<DatasetIndex> StartDataset(const std::string& directory,
                                          const DatasetVocabulary& vocabulary,
                                          uint64_t shard_tokens, std::string corpus_digest) {
  DatasetIndex index;
  index.vocab_size = vocabulary.size;
  index.vocab_ids = vocabulary.ids;
  index.declared = vocabulary.AllDeclared();
  index.token_bytes = TokenBytes(index.vocab_size);
  index.shard_tokens = shard_tokens;
  index.chunk_bytes = kChunkBytes;
  index.tokenizer_digest = vocabulary.Digest();
  index.corpus_digest = std::move(corpus_digest);
  ASSIGN_OR_RETURN(index.tokenizer, StoreFile(directory, vocabulary.file, vocabulary.bytes));
  return index;
}

ShardWriter::ShardWriter(std::string directory, DatasetIndex index,
                         const std::vector<bool>& is_start_piece)
    : directory_(std::move(directory)),
      index_(std::move(index)),
      is_start_(is_start_piece.begin(), is_start_piece.end()) {
  ANYORDER_CHECK(index_.shard_tokens > 0 && index_.shard_tokens % kShardTokensMultiple == 0)
      << "shard_tokens=" << index_.shard_tokens;
}

absl::Status ShardWriter::AddSentence(absl::Span<const char> ids) {
  const bool flag = next_flag_;
  next_flag_ = !next_flag_;
  return Append(ids, flag);
}

absl::Status ShardWriter::AddSentence(absl::Span<const int32_t> ids) {
  std::string stored;
  stored.reserve(ids.size() * index_.token_bytes);
  // Little-endian hosts only (Debian amd64, arm64): the low bytes come first.
  for (const int32_t& id : ids)
    stored.append(reinterpret_cast<const char*>(&id), index_.token_bytes);
  return AddSentence(absl::MakeConstSpan(stored));
}

absl::Status ShardWriter::EndDocument() {
  char eod[4];
  std::memcpy(eod, &index_.vocab_ids.eod, sizeof eod);
  RETURN_IF_ERROR(Append({eod, index_.token_bytes}, !next_flag_));
  starts_document_ = true;
  return absl::OkStatus();
}

absl::Status ShardWriter::Append(absl::Span<const char> ids, bool flag) {
  while (!ids.empty()) {
    if (filled_ == 0) {
      const uint64_t bitmap_bytes = BitmapBytes(index_.shard_tokens);
      sentence_flags_.assign(bitmap_bytes, 0);
      document_starts_.assign(bitmap_bytes, 0);
      word_starts_.assign(bitmap_bytes, 0);
      tokens_.clear();
    }
    const uint64_t take =
        std::min<uint64_t>(ids.size() / index_.token_bytes, index_.shard_tokens - filled_);
    const absl::Span<const char> taken = ids.first(take * index_.token_bytes);
    const auto mark = index_.token_bytes == 2 ? MarkWordStarts<uint16_t> : MarkWordStarts<uint32_t>;
    // GPT-2 says that its <eod> is its <unk>.
    const VocabIds& vocab = index_.vocab_ids;
    const int64_t bad = mark(taken, filled_, is_start_, word_starts_,
                             vocab.unk == vocab.eod ? -1 : vocab.unk, num_unknown_);
    if (bad >= 0) {
      return DataLoss("token id ", bad, " in the unfinished work, but the vocabulary has ",
                      is_start_.size(), "; delete the unfinished work and start again");
    }
    tokens_.append(taken.data(), taken.size());
    if (flag) SetBits(sentence_flags_, filled_, filled_ + take);
    if (std::exchange(starts_document_, false)) SetBits(document_starts_, filled_, filled_ + 1);
    filled_ += take;
    ids.remove_prefix(taken.size());
    if (filled_ == index_.shard_tokens) RETURN_IF_ERROR(WriteShard());
  }
  return absl::OkStatus();
}

absl::Status ShardWriter::WriteShard() {
  ASSIGN_OR_RETURN(Hdf5ImageWriter image, Hdf5ImageWriter::Create());
  const uint64_t bits = BitmapBytes(filled_);
  RETURN_IF_ERROR(AddGuarded(image, kTokens, static_cast<uint32_t>(index_.token_bytes), {filled_},
                             tokens_.data()));
  for (const auto& [name, bitmap] : {std::pair{kSentenceFlags, &sentence_flags_},
                                     {kDocumentStarts, &document_starts_},
                                     {kWordStarts, &word_starts_}}) {
    RETURN_IF_ERROR(AddGuarded(image, name, 1, {bits}, bitmap->data()));
  }
  const std::pair<const char*, uint64_t> numbers[] = {
      {kAttrFormatVersion, kFormatVersion}, {kAttrShardIndex, shards_.size()},
      {kAttrFirstToken, index_.num_tokens}, {kAttrNumTokens, filled_},
      {kAttrChunkBytes, kChunkBytes},       {kAttrVocabSize, index_.vocab_size}};
  for (const auto& [name, value] : numbers) RETURN_IF_ERROR(image.AddAttribute(name, value));
  RETURN_IF_ERROR(image.AddAttribute(kAttrTokenizerDigest, index_.tokenizer_digest));
  RETURN_IF_ERROR(image.AddAttribute(kAttrCorpusDigest, index_.corpus_digest));
  return StoreShard(image);
}

// The metadata digest is over all bytes that no checksum guards.
absl::Status ShardWriter::StoreShard(Hdf5ImageWriter& image) {
  ShardRecord record = LocateArrays(image);
  std::vector<ByteRange> guarded;
  for (size_t i = 0; i < kNumShardArrays; ++i) {
    guarded.push_back(
        {.offset = record.arrays[i],
         .bytes = ShardArrayBytes(static_cast<ShardArray>(i), filled_, index_.token_bytes)});
  }
  ASSIGN_OR_RETURN(const std::string bytes, image.Finish());
  const std::string name = ShardFileName(static_cast<int64_t>(shards_.size()));
  RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(directory_, "/", name), bytes));
  record.bytes = bytes.size();
  record.digest = DigestOf(bytes);
  record.metadata_digest = DigestOutside(bytes, std::move(guarded));
  shards_.push_back(record);
  index_.num_tokens += std::exchange(filled_, 0);
  return absl::OkStatus();
}

absl::StatusOr<DatasetIndex> ShardWriter::Finish() {
  if (filled_ > 0) RETURN_IF_ERROR(WriteShard());
  if (num_unknown_ > 0) index_.counts["tokens_unknown"] = num_unknown_;
  ASSIGN_OR_RETURN(index_.shards,
                   StoreFile(directory_, kShardIndexFile, SerializeShardIndex(shards_)));
  return index_;
}

}  // namespace anyorder::data
