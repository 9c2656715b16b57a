#include "tests/data/dataset/dataset_files.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>

#include "core/base/check.h"
#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/philox.h"
#include "data/dataset/dataset_index.h"
#include "data/dataset/shard_format.h"
#include "data/prep/hdf5_file.h"

namespace anyorder::data {

namespace {

void AddGuarded(Hdf5ImageWriter& image, const std::string& name, uint32_t element_bytes,
                const std::vector<uint64_t>& shape, const std::string& bytes) {
  ANYORDER_CHECK_OK(image.AddDataset(name, element_bytes, shape, bytes.data()));
  std::vector<uint32_t> sums;
  for (size_t at = 0; at < bytes.size(); at += kChunkBytes)
    sums.push_back(Crc32c(bytes.data() + at, std::min<size_t>(kChunkBytes, bytes.size() - at)));
  ANYORDER_CHECK_OK(image.AddDataset("checksums/" + name, 4, {sums.size()}, sums.data()));
}

template <typename Value>
std::string LittleEndian(const std::vector<Value>& values, size_t bytes_each) {
  std::string bytes;
  for (const uint64_t value : values) {
    for (size_t i = 0; i < bytes_each; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  }
  return bytes;
}

std::string Packed(const std::vector<uint8_t>& bits) {
  std::string bytes((bits.size() + 7) / 8, '\0');
  for (size_t i = 0; i < bits.size(); ++i)
    bytes[i / 8] = static_cast<char>(bytes[i / 8] | (bits[i] << (i % 8)));
  return bytes;
}

std::string ImageBytes(Hdf5ImageWriter& image) {
  auto bytes = image.Finish();
  ANYORDER_CHECK_OK(bytes.status());
  return *std::move(bytes);
}

DatasetFile Store(const std::string& directory, const std::string& file, const std::string& bytes) {
  WriteFile(directory + "/" + file, bytes);
  return {.file = file, .bytes = bytes.size(), .digest = DigestOf(bytes).Hex()};
}

std::string Canonical(const std::string& bytes) {
  const Digest128 digest = DigestOf(bytes);
  std::string little = LittleEndian<uint64_t>({digest.lo, digest.hi}, 8);
  return {little.rbegin(), little.rend()};
}

// The record of shards.idx for the shard `bytes`. `guarded`: its arrays and the bytes of each.
std::string Record(const std::string& bytes, const std::map<std::string, uint64_t>& offsets,
                   const std::map<std::string, uint64_t>& guarded) {
  std::vector<bool> is_guarded(bytes.size());
  for (const auto& [name, size] : guarded)
    std::fill_n(is_guarded.begin() + offsets.at(name), size, true);
  std::string metadata;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!is_guarded[i]) metadata.push_back(bytes[i]);
  }
  std::vector<uint64_t> places;
  for (const std::string group : {"", "checksums/"}) {
    for (const char* name : {"tokens", "sentence_flags", "document_starts", "word_starts"})
      places.push_back(offsets.at(group + name));
  }
  return LittleEndian<uint64_t>({bytes.size()}, 8) + Canonical(bytes) + Canonical(metadata) +
         LittleEndian(places, 8);
}

}  // namespace

TestStream TestStream::Random(int64_t num_tokens, uint64_t vocab_size, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kPrep, 0, 0);
  TestStream stream;
  uint8_t flag = 1;
  for (int64_t i = 0; i < num_tokens; ++i) {
    stream.tokens.push_back(static_cast<int32_t>(random.Below64(vocab_size)));
    if (random.Below(10) == 0) flag ^= 1;
    stream.sentence_flags.push_back(flag);
    stream.document_starts.push_back(i == 0 || random.Below(50) == 0);
    stream.word_starts.push_back(random.Below(2) == 0);
  }
  return stream;
}

TestStream TestStream::Part(int64_t begin, int64_t end) const {
  const auto part = [&](const auto& values) {
    return std::decay_t<decltype(values)>(values.begin() + begin, values.begin() + end);
  };
  return {part(tokens), part(sentence_flags), part(document_starts), part(word_starts)};
}

absl::StatusOr<TestStream> ReadPart(const Dataset& dataset, int64_t begin, int64_t end) {
  const std::vector<uint8_t> bits(end - begin);
  TestStream part = {std::vector<int32_t>(end - begin), bits, bits, bits};
  absl::Status status = dataset.ReadTokens(begin, end, part.tokens.data());
  status.Update(dataset.ReadSentenceFlags(begin, end, part.sentence_flags.data()));
  status.Update(dataset.ReadDocumentStarts(begin, end, part.document_starts.data()));
  status.Update(dataset.ReadWordStarts(begin, end, part.word_starts.data()));
  if (!status.ok()) return status;
  return part;
}

TestStream ReadStream(const std::string& directory) {
  const auto dataset = Dataset::Open(directory, {.verify = true}).value();
  return ReadPart(*dataset, 0, dataset->num_tokens()).value();
}

void TestDataset::Write(const std::string& directory, const TestStream& stream) const {
  const uint64_t num_tokens = stream.tokens.size();
  DatasetIndex index;
  index.num_tokens = num_tokens;
  index.num_documents = index.num_sentences = 1;
  index.token_bytes = TokenBytes(vocab_size);
  index.shard_tokens = shard_tokens;
  index.chunk_bytes = kChunkBytes;
  index.vocab_size = vocab_size;
  index.vocab_ids = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  index.tokenizer_digest = DigestOf(tokenizer).Hex();
  index.corpus_digest = corpus_digest;
  index.tokenizer = {
      .file = kTokenizerFile, .bytes = tokenizer.size(), .digest = index.tokenizer_digest};
  WriteFile(directory + "/" + kTokenizerFile, tokenizer);

  const auto begin_file = [&] {
    auto image = Hdf5ImageWriter::Create();
    ANYORDER_CHECK_OK(image.status());
    ANYORDER_CHECK_OK(image->AddAttribute(kAttrFormatVersion, kFormatVersion));
    ANYORDER_CHECK_OK(image->AddAttribute(kAttrTokenizerDigest, index.tokenizer_digest));
    ANYORDER_CHECK_OK(image->AddAttribute(kAttrCorpusDigest, corpus_digest));
    return std::move(image).value();
  };
  std::string records;
  uint64_t num_shards = 0;
  for (uint64_t begin = 0; begin < num_tokens; begin += shard_tokens, ++num_shards) {
    const uint64_t end = std::min(num_tokens, begin + shard_tokens);
    const TestStream part = stream.Part(begin, end);
    Hdf5ImageWriter image = begin_file();
    ANYORDER_CHECK_OK(image.AddAttribute(kAttrShardIndex, num_shards));
    ANYORDER_CHECK_OK(image.AddAttribute(kAttrFirstToken, begin));
    ANYORDER_CHECK_OK(image.AddAttribute(kAttrNumTokens, end - begin));
    ANYORDER_CHECK_OK(image.AddAttribute(kAttrChunkBytes, kChunkBytes));
    ANYORDER_CHECK_OK(image.AddAttribute(kAttrVocabSize, vocab_size));
    AddGuarded(image, kTokens, static_cast<uint32_t>(index.token_bytes), {end - begin},
               LittleEndian(part.tokens, index.token_bytes));
    std::map<std::string, uint64_t> guarded = {{kTokens, (end - begin) * index.token_bytes}};
    for (const auto& [name, bits] : {std::pair{kSentenceFlags, &part.sentence_flags},
                                     {kDocumentStarts, &part.document_starts},
                                     {kWordStarts, &part.word_starts}}) {
      const std::string bytes = Packed(*bits);
      AddGuarded(image, name, 1, {bytes.size()}, bytes);
      guarded[name] = bytes.size();
    }
    const std::string bytes = ImageBytes(image);
    WriteFile(directory + "/" + ShardFileName(static_cast<int64_t>(num_shards)), bytes);
    records += Record(bytes, image.offsets(), guarded);
  }
  const std::string header = "ANYOSHRD" + LittleEndian<uint64_t>({3, 104, num_shards}, 8);
  index.shards = Store(directory, "shards.idx", header + records);
  WriteFile(directory + "/" + kIndexFile, SerializeDatasetIndex(index));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  ANYORDER_CHECK(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  ANYORDER_CHECK(file.good()) << path;
}

void FlipBit(const std::string& path, uint64_t offset) {
  std::string bytes = ReadFile(path);
  ASSERT_LT(offset, bytes.size());
  bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
  WriteFile(path, bytes);
}

}  // namespace anyorder::data
