// The choice of a device on a machine without a GPU, where most tests run; with one, tests/gpu
// looks at it.

#include "kernels/backends/make_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/status.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cuda/platform/runtime.h"

namespace anyorder::kernels {
namespace {

TEST(MakeBackendTest, CpuIsTheCpu) {
  BackendOptions options;
  options.device = DeviceChoice::kCpu;
  EXPECT_TRUE(MakeBackend(options).value()->is_host_memory());
}

TEST(MakeBackendTest, WithoutAGpuAutoIsTheCpuAndCudaSaysWhy) {
  if (cuda::CountDevices().ok()) GTEST_SKIP() << "this machine has a GPU";
  BackendOptions options;
  EXPECT_TRUE(MakeBackend(options).value()->is_host_memory());
  options.device = DeviceChoice::kCuda;
  const absl::Status status = MakeBackend(options).status();
  EXPECT_EQ(ExitStatusFor(status), kExitUsage);
  EXPECT_EQ(CheckDevice(DeviceChoice::kCuda), status);
  EXPECT_TRUE(CheckDevice(DeviceChoice::kAuto).ok() && CheckDevice(DeviceChoice::kCpu).ok());
  const std::string message(status.message());
  EXPECT_THAT(message, ::testing::HasSubstr("train.device = \"cpu\""));
  EXPECT_THAT(message, ::testing::AnyOf(::testing::HasSubstr("driver"),
                                        ::testing::HasSubstr("without CUDA")));
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(MakeBackendTest, TheFirstProcessSaysThatBf16IsSlow) {
  const auto log_of = [](DType dtype, int local_rank) {
    BackendOptions options;
    options.device = DeviceChoice::kCpu;
    options.dtype = dtype;
    options.local_rank = local_rank;
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(MakeBackend(options).ok());
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(log_of(DType::kBFloat16, 0).find("no instructions for bf16") == std::string::npos,
            cpu::MultipliesBFloat16());
  EXPECT_EQ(log_of(DType::kBFloat16, 1), "");
  EXPECT_EQ(log_of(DType::kFloat32, 0), "");
}

TEST(MakeBackendTest, AutoTakesTheCpuForAGpuThatWillNotDoAndForNothingElse) {
  EXPECT_TRUE(IsWithoutUsableGpu(absl::InvalidArgumentError("an old chip")));
  EXPECT_TRUE(IsWithoutUsableGpu(absl::UnavailableError("it does not answer")));
  EXPECT_TRUE(IsWithoutUsableGpu(absl::NotFoundError("no cuBLASLt")));
  EXPECT_FALSE(IsWithoutUsableGpu(absl::OkStatus()));
  EXPECT_FALSE(IsWithoutUsableGpu(absl::DataLossError("the table is damaged")));
  EXPECT_FALSE(IsWithoutUsableGpu(absl::ResourceExhaustedError("no device memory")));
}

}  // namespace
}  // namespace anyorder::kernels
