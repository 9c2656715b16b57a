// Which backends and dtypes the suite of backend_fixture.h runs on.

#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/backend_fixture.h"
#include "tests/kernels/cuda/emulated_backend.h"

namespace anyorder::kernels {
namespace {

std::vector<BackendCase> AllCases() {
  std::vector<BackendCase> cases;
  const auto add = [&](const std::string& name, std::function<std::unique_ptr<Backend>()> make) {
    cases.push_back({name + "F32", DType::kFloat32, make});
    cases.push_back({name + "BF16", DType::kBFloat16, make});
  };
  add("Cpu", [] { return MakeCpuBackend({.num_threads = 2}).value(); });
  const cpu::VectorVariants runnable = cpu::RunnableVectorVariants();
  for (const cpu::VectorKernels* variant : runnable.variant) {
    // The widest one is the plain Cpu case.
    if (variant == nullptr || variant == &cpu::SelectVectorKernels()) continue;
    add(std::string("Cpu_") + variant->name,
        [variant] { return cpu::MakeCpuBackendWith({.num_threads = 1}, *variant); });
  }
  // The GPU's kernels, with blocks and warps in order, and out of it.
  add("CudaEmulated", [] { return cuda::MakeEmulatedBackend({}); });
  add("CudaEmulatedShuffled", [] { return cuda::MakeEmulatedBackend({.seed = 17}); });
  add("Reference", MakeReferenceBackend);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Backends,
                         BackendTest,
                         ::testing::ValuesIn(AllCases()),
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
