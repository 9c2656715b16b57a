// Flat operations on more elements than 32 bits count, in little memory: one piece is mapped again
// and again, and where element 2^31 is another one, with other values. (What a process is said to
// have resident counts a page each time that it is mapped.)

#include <sys/mman.h>

#include <bit>
#include <future>

#include "core/base/unique_fd.h"
#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

constexpr int64_t kPiece = int64_t{1} << 21;  // elements
constexpr int64_t kTailBegin = (int64_t{1} << 31) - kPiece;
constexpr int64_t kElements = (int64_t{1} << 31) + 7;

// Zeros, where nothing is drawn or written.
template <typename T>
class LongRange {
 public:
  LongRange() {
    ANYORDER_CHECK(data_ != MAP_FAILED);
    for (int64_t begin = 0; begin < kTailBegin; begin += kPiece) Map(piece_, begin, kPiece);
    Map(tail_, kTailBegin, 2 * kPiece);
  }
  ~LongRange() { ::munmap(data_, kBytes); }

  T& at(int64_t i) { return static_cast<T*>(data_)[i]; }
  TensorView view() { return TensorView(static_cast<T*>(data_), {kElements}); }

  // For each element whose memory is another: those between repeat the first.
  template <typename Body>
  static void ForPlaces(const Body& body) {
    for (int64_t i = 0; i < kPiece; ++i) body(i);
    for (int64_t i = kTailBegin; i < kElements; ++i) body(i);
  }
  // Whole numbers that every dtype has, and no zero.
  void Draw(uint64_t seed) {
    RandomStream random(seed, RandomPurpose::kPairs, 0, 0);
    ForPlaces([&](int64_t i) { at(i) = static_cast<T>(1 + random.Below(255)); });
  }
  // Of kElements, and zeros behind them.
  void ExpectElements(const std::function<float(int64_t)>& expected) {
    const auto value = [&](int64_t i) { return static_cast<float>(at(i)); };
    int64_t wrong = 0;
    ForPlaces([&](int64_t i) { wrong += value(i) != expected(i) ? 1 : 0; });
    for (int64_t i = kElements; i < kElements + 64; ++i) wrong += value(i) != 0 ? 1 : 0;
    EXPECT_EQ(wrong, 0);
  }

 private:
  static constexpr size_t kBytes = (kTailBegin + 2 * kPiece) * sizeof(T);

  void Map(const UniqueFd& fd, int64_t begin, int64_t elements) {
    const size_t bytes = elements * sizeof(T);
    ANYORDER_CHECK(::ftruncate(fd.get(), bytes) == 0);
    ANYORDER_CHECK(::mmap(&at(begin), bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd.get(), 0) == &at(begin));
  }

  const UniqueFd piece_{::memfd_create("piece", MFD_CLOEXEC)};
  const UniqueFd tail_{::memfd_create("tail", MFD_CLOEXEC)};
  void* const data_ =
      ::mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
};

class LongRangeTest : public ::testing::TestWithParam<bool> {
 protected:
  const std::unique_ptr<Backend> backend_ =
      GetParam() ? MakeReferenceBackend() : MakeCpuBackend({.num_threads = 2}).value();
};

INSTANTIATE_TEST_SUITE_P(Backends, LongRangeTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Reference" : "Cpu"; });

// Squares of whole numbers have the same sum in any order.
TEST_P(LongRangeTest, SumOfSquaresSumsEveryBlock) {
  LongRange<float> x;
  x.Draw(1);
  std::vector<double> sums(kElements / kNormBlockElements + 1, -1), expected(sums.size());
  backend_->SumOfSquares(x.view(), TensorView(sums.data(), {std::ssize(sums)}), {});
  x.ForPlaces([&](int64_t i) { expected[i / kNormBlockElements] += double{x.at(i)} * x.at(i); });
  for (int64_t b = kPiece / kNormBlockElements; b < kTailBegin / kNormBlockElements; ++b)
    expected[b] = expected[b - kPiece / kNormBlockElements];
  EXPECT_TRUE(sums == expected);
}

TEST_P(LongRangeTest, AddAddsEveryElement) {
  LongRange<float> a, b, y;
  a.Draw(1);
  b.Draw(2);
  backend_->Add(a.view(), b.view(), y.view(), {});
  y.ExpectElements([&](int64_t i) { return a.at(i) + b.at(i); });
}

TEST_P(LongRangeTest, CastRoundsEveryElement) {
  LongRange<float> x;
  x.Draw(1);
  LongRange<BFloat16> y;
  backend_->Cast(x.view(), y.view(), {});
  y.ExpectElements([&](int64_t i) { return x.at(i); });
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
  LongRange<int64_t> x;
  x.Draw(1);
  x.ForPlaces([&](int64_t i) { x.at(i) *= -0x01010101010101; });
  auto expected =
      std::async(std::launch::async, DigestOfWords, &x.at(0), kElements, uint64_t{0xffffff});
  DigestValue digest;
  const ConstTensorView bytes(x.view().raw(), DType::kUint8, {8 * kElements - 5});
  MakeReferenceBackend()->Digest(bytes, TensorView(&digest, DType::kInt64, {2}), {});
  EXPECT_EQ(digest, expected.get());
}

}  // namespace
}  // namespace anyorder::kernels
