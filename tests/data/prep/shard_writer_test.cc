// What preparation writes, the trainer's side reads: ShardWriter against Dataset and Sampler.

#include "data/prep/shard_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "core/base/digest.h"
#include "data/dataset/dataset.h"
#include "data/dataset/shard_format.h"
#include "data/prep/hdf5_file.h"
#include "data/sampling/sampler.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/hdf5_reader.h"
#include "tests/data/sampling/memory_text.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::data {

namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using Sentence = std::vector<uint16_t>;
using Document = std::vector<Sentence>;

constexpr int32_t kEod = 7;
constexpr char kCorpusDigest[] = "0123456789abcdef0123456789abcdef";
constexpr char kTokenizer[] = "a tokenizer";

class ShardWriterTest : public ::testing::Test {
 protected:
  // Even ids start words.
  std::unique_ptr<Dataset> WriteAndOpen(const std::vector<Document>& documents) {
    DatasetIndex start;
    start.token_bytes = 2;
    start.shard_tokens = 64;
    start.chunk_bytes = kChunkBytes;
    start.vocab_size = 1000;
    start.vocab_ids = {0, 1, 2, 3, 4, 5, 6, kEod, 8};
    start.tokenizer_digest = DigestOf(kTokenizer).Hex();
    start.corpus_digest = kCorpusDigest;
    start.tokenizer = {
        .file = kTokenizerFile, .bytes = std::strlen(kTokenizer), .digest = start.tokenizer_digest};
    std::vector<bool> is_start_piece;
    for (int id = 0; id < 1000; ++id) is_start_piece.push_back(id % 2 == 0);
    ShardWriter writer(directory_, start, is_start_piece);
    uint64_t num_tokens = 0;
    for (const Document& document : documents) {
      for (const Sentence& ids : document) {
        const auto* bytes = reinterpret_cast<const char*>(ids.data());
        EXPECT_TRUE(writer.AddSentence({bytes, 2 * ids.size()}).ok());
        num_tokens += ids.size();
      }
      EXPECT_TRUE(writer.EndDocument().ok());
      ++num_tokens;
    }
    DatasetIndex index = writer.Finish().value();
    EXPECT_EQ(index.num_tokens, num_tokens);
    index.num_documents = documents.size();
    index.num_sentences = 1;
    WriteFile(directory_ + "/" + kTokenizerFile, kTokenizer);
    WriteFile(directory_ + "/" + kIndexFile, SerializeDatasetIndex(index));
    return Dataset::Open(directory_, {.verify = true}).value();
  }

  const TemporaryDirectory folder_;
  const std::string directory_ = folder_.path();
};

// Conformance item 2 of the published flags: lines a, b, (blank), c.
TEST_F(ShardWriterTest, FlagsFlipAfterEachSentenceAndTheDocumentEndKeepsTheLast) {
  const auto dataset = WriteAndOpen({{{100}, {101}}, {{102}}});
  ASSERT_EQ(dataset->num_tokens(), 5);
  const TestStream stream = ReadPart(*dataset, 0, 5).value();
  EXPECT_THAT(stream.tokens, ElementsAre(100, 101, kEod, 102, kEod));
  EXPECT_THAT(stream.sentence_flags, ElementsAre(1, 0, 0, 1, 1));
  EXPECT_THAT(stream.document_starts, ElementsAre(1, 0, 0, 1, 0));
  EXPECT_THAT(stream.word_starts, ElementsAre(1, 0, 0, 1, 0));
}

TEST_F(ShardWriterTest, SentencesLongerThanAShardAndSamplesAcrossShardsAreWhole) {
  std::vector<Document> corpus;
  std::vector<int32_t> expected;
  uint16_t next = 20;
  for (int d = 0; d < 6; ++d) {
    Document& document = corpus.emplace_back();
    for (const int size : {3, 150, 64, 1}) {
      Sentence& sentence = document.emplace_back();
      for (int i = 0; i < size; ++i) {
        sentence.push_back(next);
        expected.push_back(next);
        next = next == 999 ? 20 : next + 1;
      }
    }
    expected.push_back(kEod);
  }
  const auto dataset = WriteAndOpen(corpus);
  EXPECT_EQ(ReadPart(*dataset, 0, dataset->num_tokens())->tokens, expected);
  EXPECT_THAT(ReadPart(*dataset, 3, 153)->sentence_flags, Each(0));

  const auto sampler =
      Sampler::Create(*dataset, PairConfig(128, 21, 64), SampleKind::kPairs, 1, 4).value();
  for (int64_t step = 0; step < sampler->steps_per_epoch(); ++step) {
    const auto sample = sampler->Sample(0, step).value();
    EXPECT_THAT(std::vector<int32_t>(sample.tokens.begin(), sample.tokens.begin() + 64),
                ElementsAreArray(expected.data() + 64 * step, 64));
  }
}

struct Image {
  std::string bytes;
  std::map<std::string, uint64_t> offsets;
};

Image MakeImage() {
  auto writer = Hdf5ImageWriter::Create();
  const uint16_t tokens[5] = {1, 2, 3, 65535, 9};
  const uint8_t odd[3] = {7, 8, 9};
  const uint64_t table[4] = {0, 10, 10, 1ull << 40};
  EXPECT_TRUE(writer->AddDataset("odd", 1, {3}, odd).ok());
  EXPECT_TRUE(writer->AddDataset("tokens", 2, {5}, tokens).ok());
  EXPECT_TRUE(writer->AddDataset("deep/er/table", 8, {2, 2}, table).ok());
  EXPECT_TRUE(writer->AddAttribute("count", 5).ok());
  EXPECT_TRUE(writer->AddAttribute("digest", "0123abcd").ok());
  return {.bytes = writer->Finish().value(), .offsets = writer->offsets()};
}

TEST(Hdf5FileTest, BytesAtTheOffsetsAreTheValuesWrittenAndHdf5Agrees) {
  const Image image = MakeImage();
  const TemporaryDirectory folder;
  WriteFile(folder.path() + "/image", image.bytes);
  const Hdf5Reader reader(folder.path() + "/image");
  ASSERT_EQ(image.offsets.size(), 3u);
  for (const auto& [name, offset] : image.offsets) {
    EXPECT_EQ(offset, reader.Locate(name).offset) << name;
    EXPECT_EQ(offset % 64, 0u) << name;
  }
  EXPECT_EQ(reader.Locate("tokens").bytes, 10u);
  EXPECT_EQ(reader.Locate("tokens").element_bytes, 2u);
  uint16_t value = 0;
  std::memcpy(&value, image.bytes.data() + image.offsets.at("tokens") + 6, 2);
  EXPECT_EQ(value, 65535);
  EXPECT_EQ(reader.Locate("deep/er/table").shape, (std::vector<uint64_t>{2, 2}));
  uint64_t last = 0;
  std::memcpy(&last, image.bytes.data() + image.offsets.at("deep/er/table") + 24, 8);
  EXPECT_EQ(last, 1ull << 40);
  EXPECT_EQ(reader.IntegerAttribute("count"), 5u);
  EXPECT_EQ(reader.StringAttribute("digest"), "0123abcd");
}

TEST(Hdf5FileTest, SameCallsGiveSameBytesAtAnotherTime) {
  const std::string first = MakeImage().bytes;
  sleep(1);  // HDF5 stores whole seconds
  EXPECT_EQ(first, MakeImage().bytes);
}

}  // namespace

}  // namespace anyorder::data
