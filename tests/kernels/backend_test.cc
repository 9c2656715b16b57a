// Which backends and dtypes the suite of backend_fixture.h runs on.

#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

std::unique_ptr<Backend> TwoThreads() {
  return MakeCpuBackend({.num_threads = 2}).value();
}

INSTANTIATE_TEST_SUITE_P(
    Backends,
    BackendTest,
    ::testing::Values(BackendCase{"CpuF32", DType::kFloat32, TwoThreads},
                      BackendCase{"CpuBF16", DType::kBFloat16, TwoThreads},
                      BackendCase{"ReferenceF32", DType::kFloat32, MakeReferenceBackend},
                      BackendCase{"ReferenceBF16", DType::kBFloat16, MakeReferenceBackend}),
    [](const auto& info) { return info.param.name; });

TEST_P(BackendTest, AllocatesZeroedAlignedMemory) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{100}, int64_t{5} << 20}) {
    const auto buffer = backend().Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    const auto* data = static_cast<const unsigned char*>((*buffer)->data());
    EXPECT_EQ((*buffer)->size_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    for (int64_t i = 0; i < bytes; ++i)
      ASSERT_EQ(data[i], 0);
  }
}

TEST_P(BackendTest, RefusesAbsurdAllocation) {
  EXPECT_EQ(backend().Allocate(-1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(backend().Allocate(int64_t{1} << 60).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(CpuBackendTest, RefusesImpossibleThreadCounts) {
  EXPECT_EQ(MakeCpuBackend({.num_threads = 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeCpuBackend({.num_threads = 1 << 20}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace anyorder::kernels
