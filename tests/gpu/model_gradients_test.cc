// The whole model on a device: every tensor's gradient compared with the CPU's, as JSON lines for
// the report. SmallModelTest is for compute-sanitizer and for the emulation.

#include <gtest/gtest.h>

#include "tests/gpu/device.h"
#include "tests/gpu/gradient_comparison.h"

namespace anyorder::testing {
namespace {

TEST(SmallModelTest, Gradients) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat32})
    ExpectAgreesWithCpu(*OpenDevice(), dtype, kSmallComparedNetwork);
}

TEST(ModelTest, Gradients) {
  for (const auto& [dtype, seed] :
       {std::pair(DType::kBFloat16, 1), {DType::kBFloat16, 2}, {DType::kFloat32, 1}})
    ExpectAgreesWithCpu(*OpenDevice(), dtype, kComparedNetwork, seed);
}

}  // namespace
}  // namespace anyorder::testing
