// What the start of a run costs in file calls, for each rank and for all: 10^12 tokens in 238,000
// shards, of which only the index exists.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"

#include "core/base/crc32c.h"
#include "core/base/digest.h"
#include "core/base/file_system.h"
#include "data/dataset/dataset.h"
#include "data/dataset/shard_format.h"
#include "data/dataset/shard_index.h"
#include "data/sampling/sampler.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/testing/fault_file_system.h"
#include "tests/testing/model_file_system.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::data {
namespace {

constexpr uint64_t kShards = 238'000;
constexpr uint64_t kShardTokens = 4 << 20;

// The bytes that every shard has: 64 bytes of zeros, its four arrays, their checksums. All tokens
// are 0, and a sentence has 64 of them.
class SyntheticShard final : public ReadableFile {
 public:
  static constexpr uint64_t kTokenBytes = 2 * kShardTokens;
  static constexpr uint64_t kBitBytes = kShardTokens / 8;
  static constexpr uint64_t kChecksumsAt = 64 + kTokenBytes + 3 * kBitBytes;

  SyntheticShard() {
    std::vector<char> chunk(kChunkBytes);
    for (size_t array = 0; array < kNumShardArrays; ++array) {
      Fill(ArrayAt(array), chunk.data(), chunk.size());
      const uint32_t sum = Crc32c(chunk.data(), kChunkBytes);
      const uint64_t chunks = NumChunks(array == kTokenIds ? kTokenBytes : kBitBytes);
      record_.arrays[array] = ArrayAt(array);
      record_.checksums[array] = kChecksumsAt + 4 * checksums_.size();
      checksums_.insert(checksums_.end(), chunks, sum);
    }
    record_.bytes = size();
    std::string metadata(64, '\0');
    metadata.append(reinterpret_cast<const char*>(checksums_.data()), 4 * checksums_.size());
    record_.metadata_digest = DigestOf(metadata);
  }

  const ShardRecord& record() const { return record_; }
  int64_t size() const override {
    return static_cast<int64_t>(kChecksumsAt + 4 * checksums_.size());
  }
  absl::Status ReadAt(int64_t offset, void* dst, int64_t bytes) const override {
    if (static_cast<uint64_t>(offset) < kChecksumsAt) {
      Fill(offset, static_cast<char*>(dst), bytes);
    } else {
      std::memcpy(dst, reinterpret_cast<const char*>(checksums_.data()) + (offset - kChecksumsAt),
                  bytes);
    }
    return absl::OkStatus();
  }

 private:
  static uint64_t ArrayAt(size_t array) {
    return array == 0 ? 64 : 64 + kTokenBytes + (array - 1) * kBitBytes;
  }
  static void Fill(uint64_t offset, char* dst, uint64_t bytes) {
    std::memset(dst, 0, bytes);
    for (uint64_t at = std::max(offset, 64 + kTokenBytes); at < offset + bytes; ++at)
      dst[at - offset] = (at / 8) % 2 == 0 ? '\0' : '\xff';
  }

  std::vector<uint32_t> checksums_;
  ShardRecord record_;
};

// Real files, but for the shards.
class SyntheticShards final : public ckpt::ModelFileSystem {
 public:
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    if (absl::StrContains(path, "shard-")) return std::make_unique<SyntheticShard>(shard_);
    return FileSystem::Posix()->OpenForRead(path);
  }
  const ShardRecord& record() const { return shard_.record(); }

 private:
  const SyntheticShard shard_;
};

class StartCostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto store = [&](const std::string& name, const std::string& bytes) {
      WriteFile(directory_ + "/" + name, bytes);
      return DatasetFile{.file = name, .bytes = bytes.size(), .digest = DigestOf(bytes).Hex()};
    };
    DatasetIndex index;
    index.num_tokens = kShards * kShardTokens;
    index.token_bytes = 2;
    index.shard_tokens = kShardTokens;
    index.chunk_bytes = kChunkBytes;
    index.vocab_size = 32000;
    index.vocab_ids = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    index.shards = store(kShardIndexFile,
                         SerializeShardIndex(std::vector<ShardRecord>(kShards, files_.record())));
    index.tokenizer = store(kTokenizerFile, "a tokenizer");
    index.tokenizer_digest = index.tokenizer.digest;
    WriteFile(directory_ + "/" + kIndexFile, SerializeDatasetIndex(index));
  }

  struct Cost {
    int64_t opens_of_dataset = 0;  // before the first token
    int64_t calls_of_dataset = 0;
    int64_t shard_opens = 0;
    int64_t calls = 0;
  };

  // Of the rank that reads lanes [begin, end) of `lanes`, up to its first `steps` samples.
  Cost MeasureRank(int64_t lanes, int64_t begin, int64_t end, int64_t steps) {
    Cost cost;
    ckpt::FaultFileSystem counting(&files_);
    counting.set_before_call([&](int64_t, ckpt::FaultyCall call, const std::string& path) {
      const bool is_shard = absl::StrContains(path, "shard-");
      ++cost.calls;
      if (call == ckpt::FaultyCall::kOpen) ++(is_shard ? cost.shard_opens : cost.opens_of_dataset);
    });
    const auto dataset = Dataset::Open(directory_, {.fs = &counting}).value();
    cost.calls_of_dataset = cost.calls;
    EXPECT_EQ(cost.shard_opens, 0);
    const auto sampler =
        Sampler::Create(*dataset, SamplingConfig{}, SampleKind::kPairs, 1, lanes).value();
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t lane = begin; lane < end; ++lane) EXPECT_TRUE(sampler->Sample(lane, step).ok());
    }
    return cost;
  }

  const TemporaryDirectory folder_;
  const std::string directory_ = folder_.path();
  SyntheticShards files_;
};

// Two steps are prepared before the first is computed. A sample of pairs reads where its lane is
// and, half the time, a second text from anywhere in the lane's stream.
// configs/unilmv2-base.toml reads one way with 7,680 lanes.
TEST_F(StartCostTest, ManyLanesFitIfTheTextIsLongEnough) {
  const auto dataset = Dataset::Open(directory_, {.fs = &files_}).value();
  SamplingConfig config;
  config.bidirectional = false;
  EXPECT_EQ(Sampler::MostLanes(*dataset, config, SampleKind::kMaskedPairs, 7680), 7680);
  EXPECT_TRUE(Sampler::Create(*dataset, config, SampleKind::kMaskedPairs, 1, 7680).ok());
  config.lane_cells = true;
  EXPECT_EQ(Sampler::MostLanes(*dataset, config, SampleKind::kMaskedPairs, 7680), 4096);
}

TEST_F(StartCostTest, EachRankOpensTheShardsOfItsLanesAndAllRanksNoMoreThanThereAreLanes) {
  constexpr int64_t kLanes = 2048;
  constexpr int64_t kSteps = 2;
  for (const int64_t ranks : {64, 256, 1024}) {
    const int64_t lanes = kLanes / ranks;
    Cost most;
    for (const int64_t rank : {int64_t{0}, ranks / 3, ranks - 1}) {
      const Cost cost = MeasureRank(kLanes, rank * lanes, (rank + 1) * lanes, kSteps);
      EXPECT_GE(cost.shard_opens, lanes);
      EXPECT_LE(cost.shard_opens, lanes * (1 + kSteps));
      // Tokenizer, index of shards.
      EXPECT_EQ(cost.opens_of_dataset, 2);
      EXPECT_LE(cost.calls_of_dataset, 2 + 40);  // reads of 1 MiB: 25 of them are the index
      // A shard: its record, four arrays of checksums, what lies between arrays; then the chunks.
      EXPECT_LE(cost.calls - cost.calls_of_dataset, 16 * lanes * (1 + kSteps));
      most.shard_opens = std::max(most.shard_opens, cost.shard_opens);
      most.calls = std::max(most.calls, cost.calls);
    }
    EXPECT_LE(most.shard_opens * ranks, kLanes * (1 + kSteps));  // not shards x ranks, 10^8
    std::printf("%4d ranks of %2d lanes: at most %3d shards opened and %4d file calls a rank\n",
                static_cast<int>(ranks), static_cast<int>(lanes),
                static_cast<int>(most.shard_opens), static_cast<int>(most.calls));
  }
}

}  // namespace
}  // namespace anyorder::data
