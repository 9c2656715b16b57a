// Sums of partial sums: complete for any number of parts.

#include "kernels/cuda/operations/partial_sums.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cuda/platform/launch.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr int64_t kColumns = 45;

struct Params {
  const float* partials;
  int64_t parts;
  float* sums;
};
void SumKernel(Params p) {
  const ShareOfSums share = SumParts(p.partials, p.parts, kColumns);
  if (share.is_whole) p.sums[share.column] = share.sum;
}

std::vector<float> Sums(const test::HostTensor& partials) {
  std::vector<float> sums(kColumns, std::numeric_limits<float>::quiet_NaN());
  emulation::SetSchedule({});
  Launch(SumKernel, ShapeOfSums(kColumns),
         Params{const_cast<test::HostTensor&>(partials).view().data<float>(), partials.shape()[0],
                sums.data()},
         {});
  return sums;
}

TEST(PartialSumsTest, AreCompleteForAnyNumberOfParts) {
  for (const int64_t parts : {1, 2, 15, 16, 17, 250, 256}) {
    const test::HostTensor partials = test::RandomTensor(DType::kFloat32, {parts, kColumns}, 1);
    const std::vector<float> sums = Sums(partials);
    for (int64_t c = 0; c < kColumns; ++c) {
      double exact = 0;
      double size = 0;
      for (int64_t part = 0; part < parts; ++part) {
        exact += partials.At(part * kColumns + c);
        size += std::fabs(partials.At(part * kColumns + c));
      }
      // Each number goes through fewer additions than there are parts and shares.
      const double bound = static_cast<double>(parts + kShares) * 0x1p-24 * size;
      EXPECT_NEAR(sums[c], exact, bound) << c << " of " << parts;
    }
  }
}

}  // namespace
}  // namespace anyorder::kernels::cuda
