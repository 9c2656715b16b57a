// Checksums and the copy that takes them.
#include "ckpt/chunk_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ckpt/rank_file.h"
#include "core/base/crc32c.h"

namespace anyorder::ckpt {
namespace {

TEST(ChunkSumsTest, ChunksDoNotDependOnHowBytesArrive) {
  std::string source(3 * kCrcChunkBytes + 17, '\0');
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<char>(i * i >> 5);
  std::string copy(source.size(), '\0');
  ChunkedCrc32c crc;
  const int64_t pieces[] = {1, 4096, kCrcChunkBytes, 2 * kCrcChunkBytes + 17 - 4097};
  int64_t at = 0;
  for (const int64_t bytes : pieces) {
    crc.Append(copy.data() + at, source.data() + at, bytes);
    at += bytes;
  }
  ASSERT_EQ(at, static_cast<int64_t>(source.size()));
  EXPECT_EQ(copy, source);
  const std::vector<uint32_t> crcs = crc.Finish();
  ASSERT_EQ(crcs.size(), 4u);
  for (size_t i = 0; i < crcs.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(i) * kCrcChunkBytes;
    EXPECT_EQ(crcs[i],
              Crc32c(source.data() + begin, std::min<int64_t>(kCrcChunkBytes, at - begin)));
  }
  EXPECT_EQ(*CrcsFromHex(CrcsToHex(crcs)), crcs);
  EXPECT_FALSE(CrcsFromHex("0123456g").ok());
  EXPECT_FALSE(CrcsFromHex("0123456").ok());
}

// Sizes and addresses around those at which the copy changes its way; the bytes beside the copy
// must stay as they were.
TEST(ChunkSumsTest, CopiesAnyBytesToAnyAddressAndNothingBeside) {
  std::mt19937 random(2026);
  std::vector<uint8_t> source(64 << 10);
  for (uint8_t& byte : source) byte = static_cast<uint8_t>(random());
  std::vector<int64_t> sizes = {0, 1, 15, 16, 17, 63, 64, 4095, 4096, 4097};
  for (int64_t around = 8192; around <= 20480; around += 4096)
    for (const int64_t more : {-17, -1, 0, 1, 17}) sizes.push_back(around + more);
  constexpr uint8_t kUntouched = 0xa5;
  for (const int64_t bytes : sizes) {
    for (int trial = 0; trial < 12; ++trial) {
      const int64_t to = 64 + (trial < 4 ? trial * 16 : static_cast<int64_t>(random() % 64));
      const auto from = static_cast<int64_t>(random() % 64);
      const auto before = static_cast<uint32_t>(random());
      std::vector<uint8_t> target(64 + 64 + bytes + 64, kUntouched);
      EXPECT_EQ(CopyWithCrc32c(target.data() + to, source.data() + from, bytes, before),
                Crc32c(source.data() + from, bytes, before));
      std::vector<uint8_t> expected(target.size(), kUntouched);
      std::copy_n(source.begin() + from, bytes, expected.begin() + to);
      ASSERT_EQ(target, expected) << bytes << " bytes, from " << from << " to " << to;
    }
  }
}

// Pieces that end inside chunks, several ranges, a last chunk that is short.
TEST(CopyRankFileTest, ThreadsThatShareACopyMakeTheSameFile) {
  constexpr int64_t kElements = 3'300'007;
  std::vector<float> values(kElements);
  for (int64_t i = 0; i < kElements; ++i) values[i] = static_cast<float>(i % 9973);
  TensorRange pieces{"master", DType::kFloat32, {kElements}, 0, kElements};
  for (const auto& [begin, end] :
       {std::pair<int64_t, int64_t>{0, 5}, {5, 700'001}, {700'001, kElements}})
    pieces.pieces.push_back({&values[begin], end - begin});
  const std::vector<TensorRange> ranges = {
      pieces, {"adam_m", DType::kFloat32, {kElements}, 100, 2'000'101, &values[7]}};
  const RankFilePlan plan = PlanRankFile({"test", 1, 1, 1, 1, 1}, 0, ranges).value();
  std::vector<uint8_t> expected(plan.layout.file_bytes);
  const std::vector<uint32_t> sums = CopyRankFile(plan, ranges, expected.data());
  ASSERT_EQ(static_cast<int64_t>(sums.size()), NumCrcChunks(plan.layout.file_bytes));
  for (size_t i = 0; i < sums.size(); ++i) {
    const int64_t begin = static_cast<int64_t>(i) * kCrcChunkBytes;
    const int64_t bytes = std::min(kCrcChunkBytes, plan.layout.file_bytes - begin);
    EXPECT_EQ(sums[i], Crc32c(&expected[begin], bytes)) << i;
  }
  EXPECT_EQ(std::memcmp(&expected[plan.layout.offsets[1]], &values[7], 2'000'001 * 4), 0);
  for (const int num_threads : {2, 3, 16}) {
    std::vector<uint8_t> copy(plan.layout.file_bytes);
    EXPECT_EQ(CopyRankFile(plan, ranges, copy.data(), num_threads), sums);
    EXPECT_TRUE(copy == expected);
  }
  // A file that is nowhere in memory is made of the same blocks, whatever their sizes.
  const StagedFile streamed = StreamRankFile(plan, ranges, /*rank=*/3);
  EXPECT_EQ(streamed.rank, 3);
  EXPECT_EQ(streamed.data, nullptr);
  EXPECT_EQ(streamed.bytes, plan.layout.file_bytes);
  // So is one whose tensors are read when it is made.
  std::vector<TensorRange> unread = ranges;
  for (TensorRange& range : unread) {
    range.read = [&, first = &range == &unread[0] ? 0 : 7 - range.begin](int64_t begin, int64_t end,
                                                                         void* out) {
      std::copy_n(&values[begin + first], end - begin, static_cast<float*>(out));
      return absl::OkStatus();
    };
  }
  for (const StagedFile& file : {streamed, StreamRankFile(plan, unread, /*rank=*/3)}) {
    for (const int64_t chunks : {1, 3, 8, 100}) {
      std::vector<uint8_t> copy(plan.layout.file_bytes);
      std::vector<uint32_t> of_blocks;
      for (int64_t begin = 0; begin < file.bytes; begin += chunks * kCrcChunkBytes) {
        const int64_t end = std::min(begin + chunks * kCrcChunkBytes, file.bytes);
        const std::vector<uint32_t> crcs = file.make_block(begin, end, &copy[begin]).value();
        of_blocks.insert(of_blocks.end(), crcs.begin(), crcs.end());
      }
      EXPECT_TRUE(copy == expected) << chunks;
      EXPECT_EQ(of_blocks, sums) << chunks;
    }
  }
}

}  // namespace
}  // namespace anyorder::ckpt
