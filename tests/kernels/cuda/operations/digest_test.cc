// The digest of the reference: what it must tell apart. Others have its bits (flat_cases.cc).

#include "kernels/digest.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels::cuda {
namespace {

std::vector<uint64_t> RandomWords(int64_t count) {
  std::vector<uint64_t> words(count);
  const std::vector<int32_t> ids = test::RandomIds(2 * count, 1 << 30, 1);
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = static_cast<uint64_t>(ids[2 * i]) << 32 | static_cast<uint64_t>(ids[2 * i + 1]);
  return words;
}

std::pair<uint64_t, uint64_t> DigestOf(const std::vector<uint64_t>& words, int64_t bytes) {
  DigestValue value;
  MakeReferenceBackend()->Digest(ConstTensorView(words.data(), DType::kUint8, {bytes}),
                                 TensorView(&value, DType::kInt64, {2}), {});
  return {value.lo, value.hi};
}

// Both halves must notice every bit, and no two changes may look alike.
TEST(DigestTest, EveryFlippedBitShowsInBothHalves) {
  constexpr int64_t kBytes = 331;
  std::vector<uint64_t> words = RandomWords(kBytes / 8 + 1);
  const auto first = DigestOf(words, kBytes);
  std::set<std::pair<uint64_t, uint64_t>> seen = {first};
  for (int64_t bit = 0; bit < 8 * kBytes; ++bit) {
    words[bit / 64] ^= uint64_t{1} << bit % 64;
    const auto flipped = DigestOf(words, kBytes);
    EXPECT_NE(flipped.first, first.first) << bit;
    EXPECT_NE(flipped.second, first.second) << bit;
    EXPECT_TRUE(seen.insert(flipped).second) << bit;
    words[bit / 64] ^= uint64_t{1} << bit % 64;
  }
}

TEST(DigestTest, PlacesAndLengthsCount) {
  std::vector<uint64_t> words = RandomWords(40);
  const auto first = DigestOf(words, 320);
  for (size_t i = 1; i < words.size(); ++i) {
    std::swap(words[i - 1], words[i]);
    EXPECT_NE(DigestOf(words, 320), first) << i;
    std::swap(words[i - 1], words[i]);
  }
  // Zeros at the end, which fill up words anyway.
  const std::vector<uint64_t> zeros(4);
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (int64_t bytes = 0; bytes <= 32; ++bytes)
    EXPECT_TRUE(seen.insert(DigestOf(zeros, bytes)).second) << bytes;
}

}  // namespace
}  // namespace anyorder::kernels::cuda
