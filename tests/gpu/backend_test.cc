// The suite of tests/kernels/backend_fixture.h on a device.

#include <gtest/gtest.h>

#include "tests/gpu/device.h"
#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

INSTANTIATE_TEST_SUITE_P(
    Device, BackendTest,
    ::testing::Values(BackendCase{"F32", DType::kFloat32, anyorder::testing::OpenDevice},
                      BackendCase{"BF16", DType::kBFloat16, anyorder::testing::OpenDevice}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace anyorder::kernels
