// The whole model on a device: every tensor's gradient compared with the CPU's, as JSON lines for
// the report. The tests of SmallModelTest are for compute-sanitizer and for the emulation.

#include <gtest/gtest.h>

#include "tests/gpu/device.h"
#include "tests/gpu/gradient_comparison.h"

namespace anyorder::testing {
namespace {

TEST(SmallModelTest, GradientsInBf16) {
  ExpectAgreesWithCpu(*OpenDevice(), DType::kBFloat16, kSmallComparedNetwork);
}

TEST(SmallModelTest, GradientsInFp32) {
  ExpectAgreesWithCpu(*OpenDevice(), DType::kFloat32, kSmallComparedNetwork);
}

TEST(ModelTest, GradientsInBf16) {
  ExpectAgreesWithCpu(*OpenDevice(), DType::kBFloat16, kComparedNetwork);
}

TEST(ModelTest, GradientsInBf16WithAnotherSeed) {
  ExpectAgreesWithCpu(*OpenDevice(), DType::kBFloat16, kComparedNetwork, 2);
}

TEST(ModelTest, GradientsInFp32) {
  ExpectAgreesWithCpu(*OpenDevice(), DType::kFloat32, kComparedNetwork);
}

}  // namespace
}  // namespace anyorder::testing
