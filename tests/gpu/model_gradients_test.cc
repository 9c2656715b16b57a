// The whole model on a device: every tensor's gradient beside the CPU's, as JSON lines for the report, and the same bits each time. The
// tests of SmallModelTest are for compute-sanitizer and for the emulation.

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "tests/gpu/device.h"
#include "tests/gpu/gradient_comparison.h"

namespace anyorder::testing {
namespace {

void ExpectWithin(DType dtype, const ComparedNetwork& network) {
  const std::unique_ptr<kernels::Backend> device = OpenDevice();
  for (const TensorDeviation& tensor : CompareWithCpu(*device, dtype, network)) {
    std::printf("{\"tensor\": \"%s, %s\", \"relative_l2\": %.3g, \"bound\": %.3g}\n",
                tensor.name.c_str(),
                std::string(Name(dtype)).c_str(),
                tensor.relative_l2,
                tensor.bound);
    EXPECT_TRUE(tensor.passed()) << tensor.name << ": " << tensor.relative_l2 << " is beyond "
                                 << tensor.bound;
  }
}

TEST(SmallModelTest, GradientsInBf16) {
  ExpectWithin(DType::kBFloat16, kSmallComparedNetwork);
}

TEST(SmallModelTest, GradientsInFp32) {
  ExpectWithin(DType::kFloat32, kSmallComparedNetwork);
}

TEST(ModelTest, GradientsInBf16) {
  ExpectWithin(DType::kBFloat16, kComparedNetwork);
}

TEST(ModelTest, GradientsInFp32) {
  ExpectWithin(DType::kFloat32, kComparedNetwork);
}

}  // namespace
}  // namespace anyorder::testing
