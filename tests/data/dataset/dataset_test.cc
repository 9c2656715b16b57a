#include "data/dataset/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "data/dataset/dataset_index.h"
#include "data/sampling/lane_streams.h"
#include "data/sampling/sampler.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/hdf5_reader.h"

namespace anyorder::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

// Damages a dataset of four shards, the last one short: 64 + 64 + 64 + 8 tokens.
class DatasetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = MakeTestDirectory("dataset");
    stream_ = TestStream::Random(200, 1000, 1);
    TestDataset().Write(directory_, stream_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& file) const { return directory_ + "/" + file; }
  absl::Status OpenStatus(bool verify = false) const {
    return Dataset::Open(directory_, {.verify = verify}).status();
  }
  void FlipBitAt(const std::string& file, uint64_t offset) {
    std::string bytes = ReadFile(Path(file));
    bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
    WriteFile(Path(file), bytes);
  }
  // Flips one bit of the first byte of a dataset.
  void FlipBit(const std::string& file, const std::string& dataset) {
    FlipBitAt(file, Hdf5Reader(Path(file)).Locate(dataset).offset);
  }
  // Writes another dataset beside this one and takes `file` from it.
  void ReplaceFrom(const TestDataset& other, const std::string& file) {
    const std::string from = directory_ + "/other";
    std::filesystem::create_directories(from);
    other.Write(from, stream_);
    WriteFile(Path(file), ReadFile(from + "/" + file));
  }

  std::string directory_;
  TestStream stream_;
};

TEST_F(DatasetTest, AnyRangeReadsWhatWasWritten) {
  const auto dataset = Dataset::Open(directory_).value();
  EXPECT_EQ(dataset->num_tokens(), 200);
  EXPECT_EQ(dataset->separator_id(), 4);
  EXPECT_EQ(dataset->class_id(), 3);
  for (int64_t begin = 0; begin <= 200; begin += 3) {
    for (int64_t end = begin; end <= 200; end += 7) {
      const int64_t n = end - begin;
      std::vector<int32_t> tokens(n);
      std::vector<uint8_t> flags(n);
      std::vector<uint8_t> documents(n);
      std::vector<uint8_t> words(n);
      ASSERT_TRUE(dataset->ReadTokens(begin, end, tokens.data()).ok());
      ASSERT_TRUE(dataset->ReadSentenceFlags(begin, end, flags.data()).ok());
      ASSERT_TRUE(dataset->ReadDocumentStarts(begin, end, documents.data()).ok());
      ASSERT_TRUE(dataset->ReadWordStarts(begin, end, words.data()).ok());
      ASSERT_THAT(tokens, ElementsAreArray(stream_.tokens.data() + begin, n));
      ASSERT_THAT(flags, ElementsAreArray(stream_.sentence_flags.data() + begin, n));
      ASSERT_THAT(documents, ElementsAreArray(stream_.document_starts.data() + begin, n));
      ASSERT_THAT(words, ElementsAreArray(stream_.word_starts.data() + begin, n));
    }
  }
}

TEST_F(DatasetTest, LargeVocabulariesHaveFourByteTokens) {
  const TestStream stream = TestStream::Random(200, 100000, 2);
  TestDataset{.vocab_size = 100000}.Write(directory_, stream);
  const auto dataset = Dataset::Open(directory_, {.verify = true}).value();
  std::vector<int32_t> tokens(200);
  ASSERT_TRUE(dataset->ReadTokens(0, 200, tokens.data()).ok());
  EXPECT_THAT(tokens, ElementsAreArray(stream.tokens));
}

TEST_F(DatasetTest, LaneRangesCoverTheStreamInBothDirections) {
  const TestStream stream = TestStream::Random(4200, 1000, 3);
  TestDataset{.shard_tokens = 1024}.Write(directory_, stream);  // 64 cells of 65 or 66 tokens
  const auto dataset = Dataset::Open(directory_).value();
  for (const int64_t streams : {1, 2, 3, 5, 64}) {
    int64_t next = 0;
    for (int64_t s = 0; s < streams; ++s) {
      const auto forward = dataset->ReadLaneRange(s, streams, false);
      const auto backward = dataset->ReadLaneRange(s, streams, true);
      ASSERT_TRUE(forward.ok() && backward.ok());
      ASSERT_EQ(forward->begin, next);
      ASSERT_GT(forward->end, forward->begin);
      ASSERT_EQ(backward->begin, 4200 - forward->end);
      ASSERT_EQ(backward->end, 4200 - forward->begin);
      next = forward->end;
    }
    ASSERT_EQ(next, 4200);
  }
  // More streams than cells: some have none, and a sampler says so.
  const auto empty = dataset->ReadLaneRange(0, 65, false).value();
  EXPECT_EQ(empty.begin, empty.end);
}

TEST_F(DatasetTest, BackwardLaneOfASamplerReadsItsStreamFromTheEnd) {
  const TestStream stream = TestStream::Random(4096, 1000, 4);
  TestDataset{.shard_tokens = 1024}.Write(directory_, stream);
  const auto dataset = Dataset::Open(directory_).value();
  SamplingConfig config;
  config.seq_len = 128;
  config.reuse_len = 64;
  config.perm_size = 64;
  config.num_predict = 21;
  const auto sampler = Sampler::Create(*dataset, config, SampleKind::kPairs, 1, 4).value();
  const auto forward = sampler->Sample(1, 0);
  const auto backward = sampler->Sample(2, 0);
  ASSERT_TRUE(forward.ok() && backward.ok());
  for (int64_t i = 0; i < 64; ++i) {
    ASSERT_EQ(forward->tokens[i], stream.tokens[2048 + i]);
    ASSERT_EQ(backward->tokens[i], stream.tokens[2047 - i]);
  }
  EXPECT_EQ(forward->tokens[127], 3);
  EXPECT_EQ(forward->tokens[126], 4);
}

TEST_F(DatasetTest, FlippedBitIsFoundWhenItsChunkIsFirstRead) {
  for (const char* name : {"tokens", "sentence_flags", "document_starts", "word_starts"}) {
    SetUp();
    FlipBit("shard-00001.h5", name);
    const auto dataset = Dataset::Open(directory_).value();
    const auto read = [&](int64_t begin, int64_t end) {
      std::vector<int32_t> tokens(end - begin);
      std::vector<uint8_t> bits(end - begin);
      absl::Status status = dataset->ReadTokens(begin, end, tokens.data());
      status.Update(dataset->ReadSentenceFlags(begin, end, bits.data()));
      status.Update(dataset->ReadDocumentStarts(begin, end, bits.data()));
      status.Update(dataset->ReadWordStarts(begin, end, bits.data()));
      return status;
    };
    EXPECT_TRUE(read(0, 64).ok());
    // Another token of the chunk than the damaged one, and twice: damage is never remembered as
    // checked.
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = read(120, 121);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << name;
      EXPECT_THAT(
          std::string(status.message()),
          AllOf(HasSubstr(Path("shard-00001.h5")),
                HasSubstr(std::string("dataset '") + name + "' chunk 0"), HasSubstr("CRC32C")));
    }
    EXPECT_THAT(std::string(OpenStatus(true).message()), HasSubstr("chunk 0"));
  }
}

TEST_F(DatasetTest, DamagedSecondChunkIsNamedAndTheFirstStaysReadable) {
  const TestStream stream = TestStream::Random(70000, 1000, 5);  // 140000 bytes: three chunks
  TestDataset{.shard_tokens = 1 << 17}.Write(directory_, stream);
  const auto extent = Hdf5Reader(Path("shard-00000.h5")).Locate("tokens");
  std::string bytes = ReadFile(Path("shard-00000.h5"));
  bytes[extent.offset + 65536] = static_cast<char>(bytes[extent.offset + 65536] ^ 0x80);
  WriteFile(Path("shard-00000.h5"), bytes);
  const auto dataset = Dataset::Open(directory_).value();
  std::vector<int32_t> tokens(70000);
  EXPECT_TRUE(dataset->ReadTokens(0, 32768, tokens.data()).ok());
  EXPECT_TRUE(dataset->ReadTokens(65536, 70000, tokens.data()).ok());
  EXPECT_THAT(std::string(dataset->ReadTokens(32767, 32769, tokens.data()).message()),
              HasSubstr("'tokens' chunk 1"));
}

TEST_F(DatasetTest, IndexSaysWhereHdf5SaysThatArraysLie) {
  const auto index = ReadDatasetIndex(directory_).value();
  for (const DatasetFile* file : {&index.shards[0], &index.shards[3], &index.lanes}) {
    const Hdf5Reader reader(Path(file->file));
    ASSERT_EQ(file->arrays.size(), file == &index.lanes ? 4u : 8u);
    for (const auto& [name, offset] : file->arrays)
      EXPECT_EQ(offset, reader.Locate(name).offset) << file->file << " " << name;
  }
}

// Every byte of a file is guarded by the metadata's digest or by a chunk's checksum. A step of 1
// passes, too, in a minute.
TEST_F(DatasetTest, FlippedBitAnywhereIsFoundWithoutReadingWholeFiles) {
  const auto index = ReadDatasetIndex(directory_).value();
  for (const DatasetFile* file : {&index.shards[3], &index.lanes}) {
    std::vector<bool> is_array(file->bytes);
    const Hdf5Reader reader(Path(file->file));
    for (const auto& [name, offset] : file->arrays) {
      if (name.find("checksums/") == 0) continue;
      std::fill_n(is_array.begin() + offset, reader.Locate(name).bytes, true);
    }
    const std::string sound = ReadFile(Path(file->file));
    for (uint64_t at = 0; at < file->bytes; at += 41) {
      FlipBitAt(file->file, at);
      const auto dataset = Dataset::Open(directory_);
      if (is_array[at]) {
        ASSERT_TRUE(dataset.ok()) << dataset.status();
        ASSERT_EQ((*dataset)->Verify().code(), absl::StatusCode::kDataLoss) << at;
      } else {
        ASSERT_EQ(dataset.status().code(), absl::StatusCode::kDataLoss) << at;
        ASSERT_THAT(std::string(dataset.status().message()),
                    AllOf(HasSubstr(Path(file->file)), HasSubstr("metadata")));
      }
      WriteFile(Path(file->file), sound);
    }
  }
}

// What only somebody who makes a dataset on purpose can write: all digests and checksums fit.
TEST_F(DatasetTest, IdsOutsideTheVocabularyAreRefused) {
  stream_.tokens[70] = 1000;
  TestDataset().Write(directory_, stream_);
  const auto dataset = Dataset::Open(directory_, {.verify = true}).value();
  std::vector<int32_t> tokens(200);
  EXPECT_TRUE(dataset->ReadTokens(0, 70, tokens.data()).ok());
  const absl::Status status = dataset->ReadTokens(60, 80, tokens.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(Path("shard-00001.h5")), HasSubstr("id 1000")));
}

TEST_F(DatasetTest, IndexThatSendsArraysOutsideTheirFilesIsRefused) {
  const auto sound = ReadDatasetIndex(directory_).value();
  for (const uint64_t offset : {sound.lanes.bytes, ~uint64_t{0}, sound.lanes.bytes - 3}) {
    for (const char* name : {"lanes/backward", "checksums/lanes/forward"}) {
      DatasetIndex index = sound;
      index.lanes.arrays[name] = offset;
      WriteFile(Path("dataset.json"), SerializeDatasetIndex(index));
      const absl::Status status = OpenStatus();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << name << " " << offset;
      EXPECT_THAT(std::string(status.message()), HasSubstr(Path("lanes.h5")));
    }
  }
  DatasetIndex index = sound;
  index.shards[1].arrays.erase("checksums/word_starts");
  WriteFile(Path("dataset.json"), SerializeDatasetIndex(index));
  EXPECT_THAT(std::string(OpenStatus().message()), HasSubstr("'checksums/word_starts'"));
}

TEST_F(DatasetTest, OlderFormatIsRefusedWithTheCommandThatMendsIt) {
  std::string index = ReadFile(Path("dataset.json"));
  const size_t at = index.find("\"format_version\": 2");
  ASSERT_NE(at, std::string::npos);
  index[at + 18] = '1';
  WriteFile(Path("dataset.json"), index);
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("format version 1"), HasSubstr("anyorder-prep --input"),
                    HasSubstr("--vocab '" + Path("spiece.model"))));
}

TEST_F(DatasetTest, DamagedLaneTableIsReported) {
  FlipBit("lanes.h5", "lanes/backward");
  const auto dataset = Dataset::Open(directory_).value();
  EXPECT_TRUE(dataset->ReadLaneRange(0, 1, false).ok());
  EXPECT_THAT(std::string(dataset->ReadLaneRange(0, 1, true).status().message()),
              AllOf(HasSubstr("lanes.h5"), HasSubstr("lanes/backward")));
}

TEST_F(DatasetTest, TruncatedFilesAreRefused) {
  for (const char* file : {"shard-00000.h5", "shard-00003.h5", "lanes.h5"}) {
    const std::string bytes = ReadFile(Path(file));
    for (const size_t size : {bytes.size() - 1, bytes.size() / 2, size_t{0}}) {
      WriteFile(Path(file), bytes.substr(0, size));
      const absl::Status status = OpenStatus();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << file << " " << size;
      EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(Path(file)), HasSubstr(" bytes")));
    }
    WriteFile(Path(file), bytes);
  }
  EXPECT_TRUE(OpenStatus(true).ok());
}

TEST_F(DatasetTest, MissingFilesAreNamed) {
  for (const char* file : {"shard-00002.h5", "lanes.h5", "spiece.model", "dataset.json"}) {
    const std::string bytes = ReadFile(Path(file));
    std::filesystem::remove(Path(file));
    const absl::Status status = OpenStatus();
    // A part that is gone is bad data; no dataset.json means that there is no dataset at all.
    EXPECT_EQ(status.code(), std::string(file) == "dataset.json" ? absl::StatusCode::kNotFound
                                                                 : absl::StatusCode::kDataLoss)
        << file;
    EXPECT_THAT(std::string(status.message()), HasSubstr(Path(file)));
    WriteFile(Path(file), bytes);
  }
}

TEST_F(DatasetTest, ShardsOfOtherDatasetsAndInAnotherOrderAreRefused) {
  const std::string sound = ReadFile(Path("shard-00001.h5"));
  const auto expect_refused = [&] {
    const absl::Status status = OpenStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(Path("shard-00001.h5")), HasSubstr("of another dataset")));
    WriteFile(Path("shard-00001.h5"), sound);
  };
  ReplaceFrom({.tokenizer = "b tokenizer"}, "shard-00001.h5");
  expect_refused();
  ReplaceFrom({.corpus_digest = "ffffffffffffffffffffffffffffffff"}, "shard-00001.h5");
  expect_refused();
  WriteFile(Path("shard-00001.h5"), ReadFile(Path("shard-00000.h5")));
  expect_refused();
  EXPECT_TRUE(OpenStatus().ok());
}

TEST_F(DatasetTest, AnotherTokenizerModelIsRefused) {
  WriteFile(Path("spiece.model"), "b tokenizer");
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("spiece.model"));
}

TEST_F(DatasetTest, ThreadsThatTouchTheSameChunksFirstReadTheSame) {
  const TestStream stream = TestStream::Random(300000, 1000, 6);
  TestDataset{.shard_tokens = 1 << 16}.Write(directory_, stream);
  const auto dataset = Dataset::Open(directory_).value();
  std::vector<int> failures(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<int32_t> tokens(1000);
      for (int64_t begin = 0; begin + 1000 <= 300000; begin += 1000) {
        const bool ok = dataset->ReadTokens(begin, begin + 1000, tokens.data()).ok();
        if (!ok || !std::equal(tokens.begin(), tokens.end(), stream.tokens.begin() + begin))
          ++failures[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, std::vector<int>(4));
}

}  // namespace
}  // namespace anyorder::data
