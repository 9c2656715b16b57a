// Gradients of a whole model on one backend beside the CPU's, tensor by tensor.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "tests/bench/gpu/counts.h"

namespace anyorder::testing {

// The network of the comparison: XLNet with heads of 64, which on a GPU takes the fused attention
// in bf16, memory, both directions and dropout. Sizes are those of `large` or, for emulated
// devices, of `small`.
struct ComparedNetwork {
  bench::XlnetSize size;
  int64_t lanes, samples;
};
inline constexpr ComparedNetwork kComparedNetwork{
    {"large", 2, 256, 4, 1024, 1000, 128, 96, 21}, 4, 4};
inline constexpr ComparedNetwork kSmallComparedNetwork{
    {"small", 1, 64, 1, 64, 40, 32, 16, 5}, 2, 3};

struct TensorDeviation {
  std::string name;        // of the parameter; "losses" and "memory" for the forward pass
  double relative_l2 = 0;  // distance to the CPU's fp32 result over its norm; samples together
  double bound = 0;
  bool passed() const { return relative_l2 <= bound; }  // false for what is not a number
};

// The same steps, on several neighbours of the same weights (each moved by less than bf16 tells
// apart, so that roundings are drawn anew), by the CPU in fp32, by the CPU in bf16 and by `device`
// in `dtype`.
//
// What bf16 may cost a tensor is measured, not guessed: e, the CPU's own deviation in bf16. Sums
// that cancel lose more, and may. A device that rounds the same values at the same places draws
// another error of this size; for a bf16 device the bound is 3 e (both are draws, and of some
// hundred elements). In fp32 each stored value is rounded 2^16 times finer, but a sum of n terms is
// rounded n times: 3 e n / 2^16, n being the longest sum.
//
// `seed` draws text, weights, memory and dropout.
std::vector<TensorDeviation> CompareWithCpu(kernels::Backend& device, DType dtype,
                                            const ComparedNetwork& network, uint64_t seed = 1);

// Prints a JSON line for each tensor; a GoogleTest failure for each beyond its bound.
void ExpectAgreesWithCpu(kernels::Backend& device, DType dtype, const ComparedNetwork& network,
                         uint64_t seed = 1);

}  // namespace anyorder::testing
