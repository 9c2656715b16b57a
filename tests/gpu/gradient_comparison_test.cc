// The comparison of gradients must pass what only rounds and notice what is wrong: here with the
// CPU as the device.

#include "tests/gpu/gradient_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/forwarding_backend.h"
#include "tests/testing/no_bias.h"

namespace anyorder::testing {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

std::unique_ptr<kernels::Backend> MakeCpu() {
  return kernels::MakeCpuBackend({.num_threads = 2}).value();
}

// Draws other dropout than it is asked for, in attention alone.
class OtherDropout final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void AttentionBackward(const kernels::AttentionBackwardArgs& args, StreamView stream) override {
    kernels::AttentionBackwardArgs changed = args;
    changed.in.dropout.site += 1;
    ForwardingBackend::AttentionBackward(changed, stream);
  }
};

std::vector<std::string> Beyond(kernels::Backend& device, DType dtype) {
  std::vector<std::string> names;
  for (const TensorDeviation& tensor : CompareWithCpu(device, dtype, kSmallComparedNetwork)) {
    if (!tensor.passed()) names.push_back(tensor.name);
  }
  return names;
}

TEST(GradientComparisonTest, TheReferencePasses) {
  const std::unique_ptr<kernels::Backend> reference = kernels::MakeReferenceBackend();
  EXPECT_THAT(Beyond(*reference, DType::kBFloat16), IsEmpty());
  EXPECT_THAT(Beyond(*reference, DType::kFloat32), IsEmpty());
}

TEST(GradientComparisonTest, RoundingToBf16IsTooMuchForFp32) {
  const std::unique_ptr<kernels::Backend> cpu = MakeCpu();
  double largest = 0;
  for (const TensorDeviation& tensor :
       CompareWithCpu(*cpu, DType::kBFloat16, kSmallComparedNetwork)) {
    EXPECT_DOUBLE_EQ(tensor.bound, 3 * tensor.relative_l2) << tensor.name;
    largest = std::max(largest, tensor.relative_l2);
  }
  EXPECT_GT(largest, 0.001);
  for (const TensorDeviation& tensor : CompareWithCpu(*cpu, DType::kFloat32, kSmallComparedNetwork))
    EXPECT_EQ(tensor.relative_l2, 0) << tensor.name;
}

TEST(GradientComparisonTest, OtherDropoutInOneGradientIsNoticed) {
  OtherDropout device(MakeCpu());
  const std::vector<std::string> beyond = Beyond(device, DType::kBFloat16);
  EXPECT_THAT(beyond, Contains("transformer.layer.0.rel_attn.v"));
  EXPECT_THAT(beyond, Not(Contains("losses")));
}

TEST(GradientComparisonTest, AMissingBiasIsNoticed) {
  NoBias device(MakeCpu());
  EXPECT_THAT(Beyond(device, DType::kFloat32), Contains("losses"));
  EXPECT_THAT(Beyond(device, DType::kBFloat16), Contains("losses"));
}

}  // namespace
}  // namespace anyorder::testing
