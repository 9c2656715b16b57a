#include "data/dataset/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include <filesystem>
#include <map>
#include <thread>

#include "core/base/status.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/data/dataset/hdf5_reader.h"
#include "tests/testing/fault_file_system.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::data {
namespace {

template <typename... Parts>
void ExpectDataLoss(const absl::Status& status, const Parts&... parts) {
  EXPECT_THAT(status, Fails(absl::IsDataLoss, parts...));
}

// Damages a dataset of four shards, the last one short: 64 + 64 + 64 + 8 tokens.
class DatasetTest : public ::testing::Test {
 protected:
  void SetUp() override { TestDataset().Write(directory_, stream_); }

  std::string Path(const std::string& file) const { return directory_ + "/" + file; }
  absl::Status OpenStatus(bool verify = false) const {
    return Dataset::Open(directory_, {.verify = verify}).status();
  }
  // What opening finds, then opening each shard.
  absl::Status ShardStatus() const {
    const auto dataset = Dataset::Open(directory_);
    return dataset.ok() ? (*dataset)->CheckShards() : dataset.status();
  }
  ShardIndex Shards() const {
    return ShardIndex::Open(*FileSystem::Posix(), directory_, *ReadDatasetIndex(directory_))
        .value();
  }
  // Changes the record of a shard; all digests fit.
  void ChangeRecord(uint64_t changed, const std::function<void(ShardRecord&)>& change) {
    DatasetIndex index = ReadDatasetIndex(directory_).value();
    std::vector<ShardRecord> records;
    const ShardIndex shards = Shards();
    for (uint64_t shard = 0; shard < shards.num_shards(); ++shard) {
      ShardRecord record = shards.Read(shard).value();
      if (shard == changed) change(record);
      records.push_back(record);
    }
    WriteFile(Path("shards.idx"), SerializeShardIndex(records));
    index.shards.digest = DigestOf(SerializeShardIndex(records)).Hex();
    Store(index);
  }
  void Store(const DatasetIndex& index) {
    WriteFile(Path("dataset.json"), SerializeDatasetIndex(index));
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

  const TemporaryDirectory folder_;
  const std::string directory_ = folder_.path();
  TestStream stream_ = TestStream::Random(200, 1000, 1);
};

TEST_F(DatasetTest, AnyRangeReadsWhatWasWritten) {
  const auto dataset = Dataset::Open(directory_).value();
  EXPECT_EQ(dataset->num_tokens(), 200);
  EXPECT_EQ(dataset->vocabulary().separator, 4);
  EXPECT_EQ(dataset->vocabulary().classifier, 3);
  EXPECT_EQ(dataset->vocabulary().end_of_document, 7);
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

TEST_F(DatasetTest, FlippedBitIsFoundWhenItsChunkIsFirstRead) {
  for (const char* name : {"tokens", "sentence_flags", "document_starts", "word_starts"}) {
    SetUp();
    Damage("shard-00001.h5", name);
    const auto dataset = Dataset::Open(directory_).value();
    EXPECT_TRUE(ReadPart(*dataset, 0, 64).ok());
    // Another token of the chunk than the damaged one, and twice: damage is never remembered as
    // checked.
    for (int i = 0; i < 2; ++i)
      ExpectDataLoss(ReadPart(*dataset, 120, 121).status(), Path("shard-00001.h5"),
                     std::string("dataset '") + name + "' chunk 0", "CRC32C");
    ExpectDataLoss(OpenStatus(true), "chunk 0");
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
  ExpectDataLoss(dataset->ReadTokens(32767, 32769, tokens.data()), "'tokens' chunk 1");
}

// Every byte of a shard is guarded by its metadata's digest or by a chunk's checksum, every byte of
// other files by their digest. A step of 1 passes, too, in a minute.
TEST_F(DatasetTest, FlippedBitAnywhereIsFoundWithoutReadingWholeShards) {
  const ShardRecord record = Shards().Read(3).value();
  std::vector<bool> is_array(record.bytes);
  const Hdf5Reader reader(Path("shard-00003.h5"));
  for (size_t i = 0; i < kNumShardArrays; ++i)
    std::fill_n(is_array.begin() + record.arrays[i], reader.Locate(kShardArrayNames[i]).bytes,
                true);
  for (const std::string file : {"shard-00003.h5", "shards.idx"}) {
    const std::string sound = ReadFile(Path(file));
    for (uint64_t at = 0; at < sound.size(); at += 41) {
      FlipBit(Path(file), at);
      const auto dataset = Dataset::Open(directory_);
      if (file != "shard-00003.h5") {
        ExpectDataLoss(dataset.status(), Path(file), "is damaged");
      } else {
        const std::string reason = is_array[at] ? "CRC32C" : "metadata";
        ExpectDataLoss(ReadPart(**dataset, 192, 200).status(), Path(file), reason);
      }
      WriteFile(Path(file), sound);
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
  ExpectDataLoss(dataset->ReadTokens(60, 80, tokens.data()), Path("shard-00001.h5"), "id 1000");
}

TEST_F(DatasetTest, IndexThatSendsArraysOutsideTheirFilesIsRefused) {
  const uint64_t bytes = Shards().Read(1)->bytes;
  for (const uint64_t offset : {bytes, ~uint64_t{0}, bytes - 3}) {
    ChangeRecord(1, [&](ShardRecord& record) { record.arrays[kTokenIds] = offset; });
    ExpectDataLoss(ShardStatus(), Path("shard-00001.h5"), "'tokens'");
    SetUp();
    ChangeRecord(1, [&](ShardRecord& record) { record.checksums[kWordBits] = offset; });
    ExpectDataLoss(ShardStatus(), Path("shard-00001.h5"), "checksums of 'word_starts'");
    SetUp();
  }
}

TEST_F(DatasetTest, ShardIndexThatIsNotOneRecordAShardIsRefused) {
  DatasetIndex index = ReadDatasetIndex(directory_).value();
  const std::string sound = ReadFile(Path("shards.idx"));
  ASSERT_EQ(sound.size(), 32u + 4 * 104);
  std::string other_header = sound;
  other_header[24] = 3;  // shards
  for (const std::string& bytes :
       {sound + sound.substr(32, 104), sound.substr(0, sound.size() - 1), other_header}) {
    WriteFile(Path("shards.idx"), bytes);
    index.shards.bytes = bytes.size();
    index.shards.digest = DigestOf(bytes).Hex();
    Store(index);
    ExpectDataLoss(OpenStatus(), Path("shards.idx"), "4 shards");
  }
}

TEST_F(DatasetTest, DamagedIndexIsRefused) {
  const std::string intact = ReadFile(Path("dataset.json"));
  WriteFile(Path("dataset.json"), intact.substr(0, intact.size() / 2));
  ExpectDataLoss(OpenStatus(), Path("dataset.json"));
  std::string changed = intact;
  changed.replace(changed.find("\"eod\": 7"), 8, "\"eod\": 6");
  WriteFile(Path("dataset.json"), changed);
  ExpectDataLoss(OpenStatus(), "dataset_digest");
}

TEST_F(DatasetTest, OlderFormatIsRefusedWithTheCommandThatMendsIt) {
  std::string index = ReadFile(Path("dataset.json"));
  const size_t at = index.find("\"format_version\": 4");
  ASSERT_NE(at, std::string::npos);
  index[at + 18] = '2';
  WriteFile(Path("dataset.json"), index);
  EXPECT_THAT(OpenStatus(), Fails(absl::IsFailedPrecondition, "format version 2",
                                  "anyorder-prep --input", "--vocab '" + Path("spiece.model")));
}

TEST_F(DatasetTest, TruncatedFilesAreRefused) {
  for (const char* file : {"shard-00000.h5", "shard-00003.h5", "shards.idx"}) {
    const std::string bytes = ReadFile(Path(file));
    for (const size_t size : {bytes.size() - 1, bytes.size() / 2, size_t{0}}) {
      WriteFile(Path(file), bytes.substr(0, size));
      ExpectDataLoss(ShardStatus(), Path(file), " bytes");
    }
    WriteFile(Path(file), bytes);
  }
  EXPECT_TRUE(OpenStatus(true).ok());
}

TEST_F(DatasetTest, MissingFilesAreNamed) {
  for (const char* file : {"shard-00002.h5", "spiece.model", "shards.idx", "dataset.json"}) {
    const std::string bytes = ReadFile(Path(file));
    std::filesystem::remove(Path(file));
    // A part that is gone is bad data; no dataset.json means that there is no dataset at all.
    const bool is_index = std::string(file) == "dataset.json";
    EXPECT_THAT(ShardStatus(), Fails(is_index ? absl::IsNotFound : absl::IsDataLoss, Path(file)));
    WriteFile(Path(file), bytes);
  }
}

TEST_F(DatasetTest, OfManyShardsSomeAreCheckedFromBeginToEnd) {
  std::filesystem::remove(Path("shard-00001.h5"));
  const auto dataset = Dataset::Open(directory_).value();
  EXPECT_TRUE(dataset->CheckShards(2).ok());  // 0 and 2
  ExpectDataLoss(dataset->CheckShards(4), Path("shard-00001.h5"), "is missing");
}

TEST_F(DatasetTest, ShardsOfOtherDatasetsAndInAnotherOrderAreRefused) {
  const std::string sound = ReadFile(Path("shard-00001.h5"));
  const auto expect_refused = [&] {
    ExpectDataLoss(ShardStatus(), Path("shard-00001.h5"), "of another dataset");
    const auto dataset = Dataset::Open(directory_).value();
    EXPECT_TRUE(ReadPart(*dataset, 0, 64).ok());
    ExpectDataLoss(ReadPart(*dataset, 0, 65).status(), "of another dataset");
    WriteFile(Path("shard-00001.h5"), sound);
  };
  ReplaceFrom({.tokenizer = "b tokenizer"}, "shard-00001.h5");
  expect_refused();
  ReplaceFrom({.corpus_digest = "ffffffffffffffffffffffffffffffff"}, "shard-00001.h5");
  expect_refused();
  WriteFile(Path("shard-00001.h5"), ReadFile(Path("shard-00000.h5")));
  expect_refused();
  EXPECT_TRUE(ShardStatus().ok());
}

TEST_F(DatasetTest, SpecialIdsMayBeAbsentButThatOfDocuments) {
  DatasetIndex index = ReadDatasetIndex(directory_).value();
  for (const auto& [field, member] : kVocabIdFields)
    if (member != &VocabIds::eod) index.vocab_ids.*member = -1;
  Store(index);
  EXPECT_EQ(ReadFile(Path("dataset.json")).find("\"mask\""), std::string::npos);
  const auto dataset = Dataset::Open(directory_).value();
  EXPECT_EQ(dataset->index().vocab_ids, index.vocab_ids);
  EXPECT_EQ(dataset->vocabulary().mask, -1);
  index.vocab_ids.unk = 0;
  index.vocab_ids.eod = -1;
  Store(index);
  ExpectDataLoss(OpenStatus(), "missing or ill-typed: vocab_ids.eod");
  index.vocab_ids.eod = 1000;
  Store(index);
  ExpectDataLoss(OpenStatus(), "vocab_ids.eod is outside the vocabulary");
}

TEST_F(DatasetTest, TheTokenizersDigestIsOfItsFileAndOfWhatWasDeclared) {
  DatasetIndex index = ReadDatasetIndex(directory_).value();
  index.declared = "mask=999";
  Store(index);
  ExpectDataLoss(OpenStatus(), "tokenizer_digest", "is not that of 'spiece.model'");
  index.tokenizer_digest = DigestOf(index.tokenizer.digest + " mask=999").Hex();
  Store(index);
  EXPECT_TRUE(OpenStatus().ok()) << OpenStatus();
  EXPECT_EQ(ReadDatasetIndex(directory_)->declared, "mask=999");
  WriteFile(Path("spiece.model"), "b tokenizer");
  ExpectDataLoss(OpenStatus(), "spiece.model");
}

// Datasets of format version 3 list a file that is no longer read.
TEST_F(DatasetTest, LaneTablesOfAnEarlierVersionAreNotRead) {
  nlohmann::json index = nlohmann::json::parse(ReadFile(Path("dataset.json")));
  index["format_version"] = 3;
  index["lanes"] = {{"file", "lanes.h5"}, {"bytes", 1}, {"digest", "0"}, {"num_cells", 1}};
  index.erase("dataset_digest");
  const std::string digest = DigestOf(index.dump()).Hex();
  index["dataset_digest"] = digest;
  WriteFile(Path("dataset.json"), index.dump(2));
  const auto dataset = Dataset::Open(directory_, {.verify = true}).value();
  EXPECT_EQ(dataset->index().dataset_digest, digest);  // which the runs that use it know
  EXPECT_EQ(ReadPart(*dataset, 0, 200)->tokens, stream_.tokens);
}

// Once, copying it ended the process with SIGSEGV.
TEST_F(DatasetTest, IndexThatIsNestedDeeplyIsDamaged) {
  WriteFile(Path("dataset.json"),
            R"({"format":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}");
  ExpectDataLoss(OpenStatus(), Path("dataset.json"), "nested deeper than 64 levels");
}

// A mapped shard ended the process with SIGBUS here.
TEST_F(DatasetTest, ShardThatIsCutWhileItIsReadIsAnError) {
  const TestStream stream = TestStream::Random(70000, 1000, 5);
  TestDataset{.shard_tokens = 1 << 17}.Write(directory_, stream);
  const auto dataset = Dataset::Open(directory_).value();
  std::vector<int32_t> tokens(70000);
  ASSERT_TRUE(dataset->ReadTokens(0, 10, tokens.data()).ok());
  std::filesystem::resize_file(Path("shard-00000.h5"), 50000);
  const absl::Status status = dataset->ReadTokens(40000, 40010, tokens.data());
  ExpectDataLoss(status, Path("shard-00000.h5"), "was cut while in use", "ends before byte");
  EXPECT_EQ(ExitStatusFor(status), kExitData);
}

TEST_F(DatasetTest, DiskErrorsNameFileAndBytesAndAreNotRemembered) {
  ckpt::FaultFileSystem disk;
  const auto dataset = Dataset::Open(directory_, {.fs = &disk}).value();
  ASSERT_TRUE(ReadPart(*dataset, 0, 1).ok());
  for (const int error : {EIO, ESTALE}) {
    for (const int64_t token : {100, 170}) {
      disk.Break(ckpt::FaultyCall::kRead, ShardFileName(token / 64), error, 1);
      const absl::Status status = ReadPart(*dataset, token, token + 1).status();
      EXPECT_EQ(ExitStatusFor(status), kExitIo) << status;
      EXPECT_THAT(status, Says(Path(ShardFileName(token / 64)), "at bytes ", "start again"));
    }
  }
  EXPECT_TRUE(ReadPart(*dataset, 0, 200).value() == stream_);
}

// With fewer descriptors than shards, and fewer kept than are in turn.
TEST_F(DatasetTest, ShardsAreOpenedWhenTheyAreReadAndFewStayOpen) {
  constexpr int64_t kShards = 80;
  const TestStream stream = TestStream::Random(kShards * 64, 1000, 7);
  TestDataset().Write(directory_, stream);
  std::map<std::string, int> opens;  // of shards
  ckpt::FaultFileSystem disk;
  disk.set_before_call([&](int64_t, ckpt::FaultyCall call, const std::string& path) {
    if (call == ckpt::FaultyCall::kOpen && path.find("shard-") != std::string::npos) ++opens[path];
  });
  const auto num_descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto others = num_descriptors();
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(others) + 40;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  for (const size_t most : {4, 1000}) {
    opens.clear();
    const auto dataset =
        Dataset::Open(directory_, {.fs = &disk, .max_open_shards = most, .max_chunks = 4}).value();
    EXPECT_TRUE(opens.empty());
    EXPECT_TRUE(ReadPart(*dataset, 0, 64).ok());
    EXPECT_EQ(opens.size(), 1u);
    EXPECT_TRUE(ReadPart(*dataset, 0, kShards * 64).value() == stream);
    // The index, and the shards that may stay: a quarter of the limit, whatever the options say.
    EXPECT_LE(num_descriptors(), others + 1 + std::min<int64_t>(most, low.rlim_cur / 4));
    EXPECT_EQ(opens.size(), static_cast<size_t>(kShards));
    // Once for each of the four arrays that ReadPart reads one after another.
    for (const auto& [path, count] : opens) EXPECT_LE(count, 4) << path;
    EXPECT_TRUE(dataset->Verify().ok());
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(DatasetTest, WhatIsReadIsSaidWhileItIsRead) {
  ckpt::FaultFileSystem disk;
  const auto dataset = Dataset::Open(directory_, {.fs = &disk}).value();
  std::vector<std::string> said;
  disk.set_before_call([&](int64_t, ckpt::FaultyCall, const std::string&) {
    said.push_back(dataset->CurrentRead());
  });
  EXPECT_EQ(dataset->CurrentRead(), "");
  std::vector<int32_t> tokens(1);
  ASSERT_TRUE(dataset->ReadTokens(64, 65, tokens.data()).ok());
  ASSERT_GE(said.size(), 3u);
  EXPECT_EQ(said.front(), "opening '" + Path("shard-00001.h5") + "'");
  EXPECT_EQ(said.back(), "reading '" + Path("shard-00001.h5") + "', tokens chunk 0");
  EXPECT_EQ(dataset->CurrentRead(), "");
}

TEST_F(DatasetTest, ThreadsThatReadTheSameChunksReadTheSame) {
  const TestStream stream = TestStream::Random(300000, 1000, 6);
  TestDataset{.shard_tokens = 1 << 16}.Write(directory_, stream);
  for (const size_t kept : {1, 2, 100}) {
    const auto dataset =
        Dataset::Open(directory_, {.max_open_shards = kept, .max_chunks = kept}).value();
    std::vector<int> failures(4);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::vector<int32_t> tokens(1000);
        for (int64_t i = 0; i < 300; ++i) {
          const int64_t begin = (i * (t + 1) % 300) * 1000;  // each in an order of its own
          const bool ok = dataset->ReadTokens(begin, begin + 1000, tokens.data()).ok();
          if (!ok || !std::equal(tokens.begin(), tokens.end(), stream.tokens.begin() + begin))
            ++failures[t];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, std::vector<int>(4));
  }
}

}  // namespace
}  // namespace anyorder::data
