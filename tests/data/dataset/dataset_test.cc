#include "data/dataset/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/hdf5_reader.h"

namespace anyorder::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// DataLoss whose message holds each of `parts`.
void ExpectDataLoss(const absl::Status& status, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  for (const std::string& part : parts) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
}

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
  // Damages the byte `at` of an array.
  void Damage(const std::string& file, const std::string& array, uint64_t at = 0) {
    FlipBit(Path(file), Hdf5Reader(Path(file)).Locate(array).offset + at);
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
  EXPECT_EQ(dataset->vocabulary().separator, 4);
  EXPECT_EQ(dataset->vocabulary().classifier, 3);
  for (int64_t begin = 0; begin <= 200; begin += 3) {
    for (int64_t end = begin; end <= 200; end += 7) {
      ASSERT_TRUE(ReadPart(*dataset, begin, end).value() == stream_.Part(begin, end))
          << begin << " to " << end;
    }
  }
}

TEST_F(DatasetTest, LargeVocabulariesHaveFourByteTokens) {
  const TestStream stream = TestStream::Random(200, 100000, 2);
  TestDataset{.vocab_size = 100000}.Write(directory_, stream);
  const auto dataset = Dataset::Open(directory_, {.verify = true}).value();
  EXPECT_EQ(ReadPart(*dataset, 0, 200)->tokens, stream.tokens);
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

TEST_F(DatasetTest, FlippedBitIsFoundWhenItsChunkIsFirstRead) {
  for (const char* name : {"tokens", "sentence_flags", "document_starts", "word_starts"}) {
    SetUp();
    Damage("shard-00001.h5", name);
    const auto dataset = Dataset::Open(directory_).value();
    EXPECT_TRUE(ReadPart(*dataset, 0, 64).ok());
    // Another token of the chunk than the damaged one, and twice: damage is never remembered as
    // checked.
    for (int i = 0; i < 2; ++i) {
      ExpectDataLoss(
          ReadPart(*dataset, 120, 121).status(),
          {Path("shard-00001.h5"), std::string("dataset '") + name + "' chunk 0", "CRC32C"});
    }
    ExpectDataLoss(OpenStatus(true), {"chunk 0"});
  }
}

TEST_F(DatasetTest, DamagedSecondChunkIsNamedAndTheFirstStaysReadable) {
  const TestStream stream = TestStream::Random(70000, 1000, 5);  // 140000 bytes: three chunks
  TestDataset{.shard_tokens = 1 << 17}.Write(directory_, stream);
  Damage("shard-00000.h5", "tokens", 65536);
  const auto dataset = Dataset::Open(directory_).value();
  std::vector<int32_t> tokens(70000);
  EXPECT_TRUE(dataset->ReadTokens(0, 32768, tokens.data()).ok());
  EXPECT_TRUE(dataset->ReadTokens(65536, 70000, tokens.data()).ok());
  ExpectDataLoss(dataset->ReadTokens(32767, 32769, tokens.data()), {"'tokens' chunk 1"});
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
      FlipBit(Path(file->file), at);
      const auto dataset = Dataset::Open(directory_);
      if (is_array[at]) {
        ASSERT_TRUE(dataset.ok()) << dataset.status();
        ExpectDataLoss((*dataset)->Verify(), {Path(file->file)});
      } else {
        ExpectDataLoss(dataset.status(), {Path(file->file), "metadata"});
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
  ExpectDataLoss(dataset->ReadTokens(60, 80, tokens.data()), {Path("shard-00001.h5"), "id 1000"});
}

TEST_F(DatasetTest, IndexThatSendsArraysOutsideTheirFilesIsRefused) {
  const auto sound = ReadDatasetIndex(directory_).value();
  for (const uint64_t offset : {sound.lanes.bytes, ~uint64_t{0}, sound.lanes.bytes - 3}) {
    for (const char* name : {"lanes/backward", "checksums/lanes/forward"}) {
      DatasetIndex index = sound;
      index.lanes.arrays[name] = offset;
      WriteFile(Path("dataset.json"), SerializeDatasetIndex(index));
      ExpectDataLoss(OpenStatus(), {Path("lanes.h5"), name});
    }
  }
  DatasetIndex index = sound;
  index.shards[1].arrays.erase("checksums/word_starts");
  WriteFile(Path("dataset.json"), SerializeDatasetIndex(index));
  ExpectDataLoss(OpenStatus(), {"'checksums/word_starts'"});
}

TEST_F(DatasetTest, DamagedIndexIsRefused) {
  const std::string intact = ReadFile(Path("dataset.json"));
  WriteFile(Path("dataset.json"), intact.substr(0, intact.size() / 2));
  ExpectDataLoss(OpenStatus(), {Path("dataset.json")});
  std::string changed = intact;
  changed.replace(changed.find("\"eod\": 7"), 8, "\"eod\": 6");
  WriteFile(Path("dataset.json"), changed);
  ExpectDataLoss(OpenStatus(), {"dataset_digest"});
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
  Damage("lanes.h5", "lanes/backward");
  const auto dataset = Dataset::Open(directory_).value();
  EXPECT_TRUE(dataset->ReadLaneRange(0, 1, false).ok());
  ExpectDataLoss(dataset->ReadLaneRange(0, 1, true).status(), {"lanes.h5", "lanes/backward"});
}

TEST_F(DatasetTest, TruncatedFilesAreRefused) {
  for (const char* file : {"shard-00000.h5", "shard-00003.h5", "lanes.h5"}) {
    const std::string bytes = ReadFile(Path(file));
    for (const size_t size : {bytes.size() - 1, bytes.size() / 2, size_t{0}}) {
      WriteFile(Path(file), bytes.substr(0, size));
      ExpectDataLoss(OpenStatus(), {Path(file), " bytes"});
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
    ExpectDataLoss(OpenStatus(), {Path("shard-00001.h5"), "of another dataset"});
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
  ExpectDataLoss(OpenStatus(), {"spiece.model"});
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
