// Flat operations on more elements than 32 bits count, in little memory: one piece is mapped again
// and again, and where element 2^31 is two others. (What a process is said to have resident counts
// a page each time that it is mapped.)

#include <sys/mman.h>

#include <bit>
#include <future>

#include "core/base/unique_fd.h"
#include "kernels/digest.h"
#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

constexpr int64_t kPiece = int64_t{1} << 21;  // elements
constexpr int64_t kTailBegin = (int64_t{1} << 31) - kPiece;
constexpr int64_t kElements = (int64_t{1} << 31) + 7;

// For each element whose memory is another: those between repeat the first.
template <typename Body>
void ForPlaces(const Body& body) {
  for (int64_t i = 0; i < kPiece; ++i) body(i);
  for (int64_t i = kTailBegin; i < kElements; ++i) body(i);
}

// Zeros, mapped for good, and some behind them.
template <typename T>
T* LongRange() {
  constexpr int64_t kBytes = kPiece * sizeof(T);
  const UniqueFd memory(::memfd_create("pieces", MFD_CLOEXEC));
  void* const place = ::mmap(nullptr, kTailBegin * sizeof(T) + 2 * kBytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ANYORDER_CHECK(::ftruncate(memory.get(), 3 * kBytes) == 0 && place != MAP_FAILED);
  T* const data = static_cast<T*>(place);
  for (int64_t begin = 0; begin < kTailBegin + 2 * kPiece; begin += kPiece) {
    const int64_t piece = begin < kTailBegin ? 0 : 1 + (begin - kTailBegin) / kPiece;
    ANYORDER_CHECK(::mmap(data + begin, kBytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_FIXED | MAP_POPULATE, memory.get(),
                          piece * kBytes) == data + begin);
  }
  return data;
}

// Whole numbers that every dtype has, and no zero.
template <typename T>
T* Drawn(uint64_t seed) {
  T* const data = LongRange<T>();
  RandomStream random(seed, RandomPurpose::kPairs, 0, 0);
  ForPlaces([&](int64_t i) { data[i] = static_cast<T>(1 + random.Below(255)); });
  return data;
}

// And zeros behind them.
template <typename T>
void ExpectElements(const T* y, const std::function<float(int64_t)>& expected) {
  int64_t wrong = 0;
  ForPlaces([&](int64_t i) { wrong += static_cast<float>(y[i]) != expected(i) ? 1 : 0; });
  for (int64_t i = kElements; i < kElements + 64; ++i) wrong += static_cast<float>(y[i]) != 0;
  EXPECT_EQ(wrong, 0);
}

class LongRangeTest : public ::testing::TestWithParam<bool> {
 protected:
  const std::unique_ptr<Backend> backend_ =
      GetParam() ? MakeReferenceBackend() : MakeCpuBackend({.num_threads = 2}).value();
};

INSTANTIATE_TEST_SUITE_P(Backends, LongRangeTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Reference" : "Cpu"; });

// Squares of whole numbers have the same sum in any order.
TEST_P(LongRangeTest, SumOfSquaresSumsEveryBlock) {
  const float* const x = Drawn<float>(1);
  std::vector<double> sums(kElements / kNormBlockElements + 1, -1), expected(sums.size());
  backend_->SumOfSquares({x, {kElements}}, TensorView(sums.data(), {std::ssize(sums)}), {});
  ForPlaces([&](int64_t i) { expected[i / kNormBlockElements] += double{x[i]} * x[i]; });
  for (int64_t b = kPiece / kNormBlockElements; b < kTailBegin / kNormBlockElements; ++b)
    expected[b] = expected[b - kPiece / kNormBlockElements];
  EXPECT_TRUE(sums == expected);
}

TEST_P(LongRangeTest, AddAddsEveryElement) {
  const float *const a = Drawn<float>(1), *const b = Drawn<float>(2);
  float* const y = LongRange<float>();
  backend_->Add({a, {kElements}}, {b, {kElements}}, {y, {kElements}}, {});
  ExpectElements(y, [&](int64_t i) { return a[i] + b[i]; });
}

TEST_P(LongRangeTest, CastRoundsEveryElement) {
  const float* const x = Drawn<float>(1);
  BFloat16* const y = LongRange<BFloat16>();
  backend_->Cast({x, {kElements}}, {y, {kElements}}, {});
  ExpectElements(y, [&](int64_t i) { return x[i]; });
}

// After kernels/digest.h, in words of SplitMix64: `state` counts in its steps.
DigestValue DigestOfWords(const int64_t* words, int64_t count, uint64_t last_mask) {
  const auto mixed = [](uint64_t z) {
    z = (z ^ z >> 30) * 13787848793156543929u;
    z = (z ^ z >> 27) * 10723151780598845931u;
    return z ^ z >> 31;
  };
  DigestValue digest{mixed(8 * count - std::countl_zero(last_mask) / 8), 0};
  uint64_t state = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t word = words[i] & (i == count - 1 ? last_mask : ~uint64_t{0});
    const uint64_t a = mixed(word + (state += 11400714819323198485u));
    const uint64_t again = (a ^ a >> 32) * 15485907386658061715u;
    digest.lo += a;
    digest.hi += again ^ again >> 32;
  }
  return digest;
}

// All of host memory has one (kernels/host_memory.h).
TEST(LongDigestTest, ReadsEveryWordAndTheRest) {
  int64_t* const x = Drawn<int64_t>(1);
  ForPlaces([&](int64_t i) { x[i] *= -0x01010101010101; });
  auto expected = std::async(std::launch::async, DigestOfWords, x, kElements, uint64_t{0xffffff});
  DigestValue digest;
  MakeReferenceBackend()->Digest({x, DType::kUint8, {8 * kElements - 5}},
                                 {&digest, DType::kInt64, {2}}, {});
  EXPECT_EQ(digest, expected.get());
}

}  // namespace
}  // namespace anyorder::kernels
