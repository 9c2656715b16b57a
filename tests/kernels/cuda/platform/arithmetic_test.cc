// Arithmetic that must have the same bits on every machine and in every form of a kernel.

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/vector8.h"

namespace anyorder::kernels::cuda {
namespace {

TEST(ArithmeticTest, MultipliesAndAddsInOneRounding) {
  const float x = 1.0f + 0x1p-12f;
  EXPECT_EQ(MultiplyAdd(x, x, -1.0f), 0x1p-11f + 0x1p-24f);
  EXPECT_EQ(x * x - 1.0f, 0x1p-11f);
}

// Both ways to divide, at the border between them and far beyond.
TEST(DivisionTest, IsTheLanguagesOnBothSidesOf32Bits) {
  constexpr int64_t kBorder = int64_t{0xffffffff};
  for (const int64_t limit : {int64_t{1}, int64_t{1000}, kBorder, kBorder + 1, int64_t{1} << 45}) {
    for (const int64_t divisor : {int64_t{1}, int64_t{3}, int64_t{127}, int64_t{4096}, limit}) {
      for (const int64_t index : {int64_t{0}, limit / 3, limit / 2, limit - 1}) {
        const Quotient got = Divide(index, divisor, limit);
        EXPECT_EQ(got.quotient, index / divisor) << index << " by " << divisor;
        EXPECT_EQ(got.remainder, index % divisor) << index << " by " << divisor;
      }
    }
  }
}

constexpr int kElements = 16;

// The values as an element-wise kernel reads and writes them, `offset` elements behind aligned
// addresses.
std::vector<uint16_t> CopyAt(const std::vector<uint16_t>& bits, int offset) {
  alignas(16) BFloat16 x[2 * kElements];
  alignas(16) BFloat16 y[2 * kElements];
  for (int i = 0; i < kElements; ++i) x[offset + i].bits = bits[i];
  DropoutArgs args = {.x = ConstTensorView(x + offset, {1, kElements}),
                      .y = TensorView(y + offset, {1, kElements})};
  Run(args, {});
  std::vector<uint16_t> copy;
  for (int i = 0; i < kElements; ++i) copy.push_back(y[offset + i].bits);
  return copy;
}

TEST(Vector8Test, AlignedAndUnalignedElementsHaveTheSameBitsNaNsToo) {
  std::vector<uint16_t> bits(kElements, 0x3f81);
  bits[1] = 0x7f80;  // infinity
  // NaNs: the smallest, with a sign and a payload, the largest.
  bits[3] = 0x7f81;
  bits[4] = 0xffc5;
  bits[15] = 0xffff;
  const std::vector<uint16_t> aligned = CopyAt(bits, 0);
  EXPECT_EQ(aligned, CopyAt(bits, 1));
  EXPECT_EQ(aligned[0], 0x3f81);
  EXPECT_EQ(aligned[1], 0x7f80);
  for (const size_t i : {3, 4, 15})
    EXPECT_EQ(aligned[i], 0x7fff) << "the instruction's NaN, element " << i;
}

}  // namespace
}  // namespace anyorder::kernels::cuda
