// Which backends and dtypes the suite of backend_fixture.h runs on.

#include <algorithm>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

std::unique_ptr<Backend> MakeEmulatedBackend(uint64_t seed, bool fuses_sums) {
  auto runtime = cuda::emulation::MakeEmulatedRuntime(
      {.schedule = {seed}, .memory_bytes = int64_t{16} << 30, .fuses_sums = fuses_sums});
  return cuda::MakeCudaBackend(std::move(runtime), {}).value();
}

std::vector<BackendCase> AllCases() {
  std::vector<BackendCase> cases;
  const auto add = [&](const std::string& name, std::function<std::unique_ptr<Backend>()> make) {
    cases.push_back({name + "F32", DType::kFloat32, make});
    cases.push_back({name + "BF16", DType::kBFloat16, make});
  };
  add("Cpu", [] { return MakeCpuBackend({.num_threads = 2}).value(); });
  std::vector<const cpu::VectorKernels*> variants = cpu::RunnableVectorVariants();
  variants.pop_back();  // the widest one is the plain Cpu case
  for (const cpu::VectorKernels* variant : variants) {
    add(std::string("Cpu_") + variant->name,
        [variant] { return cpu::MakeCpuBackendWith({.num_threads = 1}, *variant); });
  }
  // The GPU's kernels, with blocks and warps in order, and out of it; with a library that sums
  // operands along, and one that does not.
  add("CudaEmulated", [] { return MakeEmulatedBackend(0, /*fuses_sums=*/true); });
  add("CudaEmulatedShuffled", [] { return MakeEmulatedBackend(17, /*fuses_sums=*/false); });
  add("Reference", MakeReferenceBackend);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Backends, BackendTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(BackendTest, AllocatesZeroedAlignedMemory) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{100}, int64_t{5} << 20}) {
    const auto buffer = backend().Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ((*buffer)->size_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 64, 0u);
    std::vector<unsigned char> data(bytes, 1);
    backend().CopyToHost((*buffer)->data(), data.data(), bytes, {});
    backend().Synchronize({});
    EXPECT_EQ(std::count(data.begin(), data.end(), 0), bytes);
  }
}

TEST_P(BackendTest, RefusesAbsurdAllocation) {
  EXPECT_TRUE(absl::IsInvalidArgument(backend().Allocate(-1).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(backend().Allocate(int64_t{1} << 60).status()));
}

TEST(CpuBackendTest, RefusesImpossibleThreadCounts) {
  for (const int threads : {0, 1 << 20})
    EXPECT_TRUE(absl::IsInvalidArgument(MakeCpuBackend({.num_threads = threads}).status()));
}

}  // namespace
}  // namespace anyorder::kernels
