// What eight elements at a time and one at a time must agree on: the bits that are stored.

#include "kernels/cuda/platform/vector8.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/operations/operations.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr int kElements = 16;

// The values as an element-wise kernel reads and writes them, `offset` elements behind aligned
// addresses.
std::vector<uint16_t> CopyAt(const std::vector<uint16_t>& bits, int offset) {
  alignas(16) BFloat16 x[2 * kElements];
  alignas(16) BFloat16 y[2 * kElements];
  for (int i = 0; i < kElements; ++i) x[offset + i].bits = bits[static_cast<size_t>(i)];
  DropoutArgs args;
  args.x = ConstTensorView(x + offset, {1, kElements});
  args.y = TensorView(y + offset, {1, kElements});
  DropoutApply(args, {});
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
