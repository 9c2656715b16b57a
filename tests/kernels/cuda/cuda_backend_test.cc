// What the CUDA backend promises beyond its operations: memory of its own, streams that wait for
// nobody unless told, copies, graphs, errors. The runtime is the emulation's, which is as late and
// as strict as a GPU may be.

#include "kernels/cuda/cuda_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/staging.h"
#include "tests/emulated_gpu/runtime.h"

namespace anyorder::kernels::cuda {
namespace {

using ::testing::Each;

class CudaBackendTest : public ::testing::Test {
 protected:
  void Make(const emulation::EmulatedDevice& device = {}) {
    backend_ = MakeCudaBackend(emulation::MakeEmulatedRuntime(device), {}).value();
  }
  std::unique_ptr<Buffer> Upload(const std::vector<float>& values) {
    std::unique_ptr<Buffer> buffer = backend_->Allocate(Bytes(values)).value();
    backend_->CopyToDevice(values.data(), buffer->data(), Bytes(values), {});
    return buffer;
  }
  static int64_t Bytes(const std::vector<float>& values) {
    return static_cast<int64_t>(values.size() * sizeof(float));
  }
  static TensorView View(const std::unique_ptr<Buffer>& buffer) {
    return TensorView(static_cast<float*>(buffer->data()),
                      {buffer->size_bytes() / static_cast<int64_t>(sizeof(float))});
  }
  std::vector<float> Download(const std::unique_ptr<Buffer>& buffer) {
    std::vector<float> values(View(buffer).num_elements(), -1.0f);
    backend_->CopyToHost(buffer->data(), values.data(), Bytes(values), {});
    backend_->Synchronize({});
    return values;
  }

  std::unique_ptr<Backend> backend_;
};
using CudaBackendDeathTest = CudaBackendTest;

TEST_F(CudaBackendDeathTest, HostCodeCannotTouchItsMemory) {
  Make();
  const std::unique_ptr<Buffer> buffer = Upload({1, 2, 3});
  backend_->Synchronize({});
  volatile const float* device = View(buffer).data<float>();
  EXPECT_DEATH((void)device[0], "");
  std::vector<float> host(3);
  EXPECT_DEATH(std::memcpy(View(buffer).data<float>(), host.data(), 12), "");
}

TEST_F(CudaBackendDeathTest, AKernelCannotTouchWhatLiesBehindABlock) {
  Make();
  const std::unique_ptr<Buffer> buffer = backend_->Allocate(4096).value();
  const TensorView longer(static_cast<float*>(buffer->data()), {2048});
  EXPECT_DEATH(
      {
        backend_->Cast(longer, longer, {});
        backend_->Synchronize({});
      },
      "");
}

TEST_F(CudaBackendTest, CopiesMoreThanItsRingHoldsBothWays) {
  for (const uint64_t seed : {0, 3}) {
    Make({.schedule = {seed}, .memory_bytes = int64_t{1} << 30});
    std::vector<float> values(3 * Staging::kChunkBytes / sizeof(float) * Staging::kChunks / 2 + 7);
    std::iota(values.begin(), values.end(), 0.0f);
    EXPECT_EQ(Download(Upload(values)), values);
  }
}

// The source may change as soon as CopyToDevice is back; later copies to one place win.
TEST_F(CudaBackendTest, CopyToDeviceHasReadItsSource) {
  Make();
  const std::unique_ptr<Buffer> buffer = backend_->Allocate(4).value();
  float value = 0;
  for (int i = 0; i < 200; ++i) {
    value = static_cast<float>(i);
    backend_->CopyToDevice(&value, buffer->data(), 4, {});
  }
  value = -1;
  EXPECT_EQ(Download(buffer), std::vector<float>{199});
}

TEST_F(CudaBackendTest, NothingRunsBeforeSomebodyWaits) {
  Make();
  const std::unique_ptr<Buffer> a = Upload(std::vector<float>(100, 2));
  backend_->Synchronize({});
  const std::unique_ptr<Buffer> staging = backend_->AllocateStaging(400).value();
  auto* host = static_cast<float*>(staging->data());
  backend_->CopyToHost(a->data(), host, 400, {});
  EXPECT_NE(host[0], 2) << "the emulation must be late, or it shows no missing wait";
  backend_->Synchronize({});
  EXPECT_EQ(host[0], 2);
}

// A side stream that adds to what the main stream makes, with and without the event between them.
TEST_F(CudaBackendTest, EventsOrderStreamsAndAMissingOneShows) {
  int wrong = 0;
  for (const bool waits : {true, false}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      Make({.schedule = {seed}, .memory_bytes = int64_t{1} << 30});
      const std::unique_ptr<Buffer> x = Upload(std::vector<float>(8, 1));
      backend_->Synchronize({});
      const std::unique_ptr<Stream> side = backend_->MakeStream(StreamPurpose::kMessages).value();
      const std::unique_ptr<Event> made = backend_->MakeEvent().value();
      EXPECT_TRUE(*made->IsReached()) << "without a mark";
      backend_->Add(View(x), View(x), View(x), {});
      made->Record({});
      if (waits) made->Wait(side->view());
      const std::unique_ptr<Buffer> staging = backend_->AllocateStaging(32).value();
      backend_->CopyToHost(x->data(), staging->data(), 32, side->view());
      backend_->Synchronize(side->view());
      const float seen = *static_cast<float*>(staging->data());
      if (waits) {
        EXPECT_EQ(seen, 2) << seed;
        EXPECT_TRUE(*made->IsReached());
      } else {
        wrong += seen != 2 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(wrong, 0);
}

TEST_F(CudaBackendTest, AskingAnEventOftenEnoughReachesIt) {
  Make();
  const std::unique_ptr<Buffer> x = Upload(std::vector<float>(8, 1));
  const std::unique_ptr<Event> event = backend_->MakeEvent().value();
  event->Record({});
  EXPECT_FALSE(*event->IsReached());
  while (!*event->IsReached()) {
  }
  event->Await();
}

TEST_F(CudaBackendTest, RegisteredMemoryIsCopiedToDirectly) {
  Make();
  const std::unique_ptr<Buffer> x = Upload(std::vector<float>(1024, 5));
  void* pages = std::aligned_alloc(4096, 4096);
  {
    const std::unique_ptr<HostRegistration> registration =
        backend_->RegisterHost(pages, 4096).value();
    backend_->CopyToHost(x->data(), pages, 4096, {});
    backend_->Synchronize({});
    EXPECT_EQ(static_cast<float*>(pages)[1023], 5);
    static_cast<float*>(pages)[0] = 6;
    backend_->CopyFromStaging(pages, x->data(), 4, {});
    backend_->Synchronize({});
  }
  std::free(pages);
  EXPECT_EQ(Download(x)[0], 6);
}

TEST_F(CudaBackendTest, SaysWhatIsFreeWhenMemoryIsOut) {
  Make({.schedule = {}, .memory_bytes = 1 << 20});
  const std::unique_ptr<Buffer> first = backend_->Allocate(700000).value();
  EXPECT_EQ(backend_->Allocate(500000).status(),
            absl::ResourceExhaustedError(
                "allocate 500000 bytes on emulated GPU: 348576 of its 1048576 are free; use a "
                "smaller train.micro_batch_size or model, or fewer ranks on a GPU"));
}

TEST_F(CudaBackendDeathTest, AnOperationWithoutRoomForItsScratchEndsWithOneLine) {
  Make({.schedule = {}, .memory_bytes = 1 << 20});
  const std::unique_ptr<Buffer> x = backend_->Allocate(1000000).value();
  const std::unique_ptr<Buffer> y = backend_->Allocate(4000).value();
  const std::unique_ptr<Buffer> rest = backend_->Allocate(43000).value();
  const TensorView rows(x->data(), DType::kFloat32, {250, 1000});
  EXPECT_EXIT(backend_->ColumnSum({rows, 0.0f, View(y)}, {}), ::testing::ExitedWithCode(kExitIo),
              "on emulated GPU: 1576 of its 1048576 are free");
}

// What was reserved is there; what is beyond it is not, and said before a step.
TEST_F(CudaBackendDeathTest, WhatIsReservedNeedsNoMemoryLater) {
  Make({.schedule = {}, .memory_bytes = 3 << 20});
  const std::unique_ptr<Buffer> x = backend_->Allocate(1000000).value();
  const std::unique_ptr<Buffer> y = backend_->Allocate(4000).value();
  OperationSizes sizes = {.rows = 250, .columns = 1000};
  ASSERT_TRUE(backend_->Reserve(sizes).ok());
  // Until nothing is left.
  std::vector<std::unique_ptr<Buffer>> rest;
  for (int64_t bytes = 1 << 20; bytes > 0; bytes /= 2) {
    absl::StatusOr<std::unique_ptr<Buffer>> block = backend_->Allocate(bytes);
    if (block.ok()) rest.push_back(*std::move(block));
  }
  const TensorView rows(x->data(), DType::kFloat32, {250, 1000});
  backend_->ColumnSum({rows, 0.0f, View(y)}, {});
  EXPECT_THAT(Download(y), Each(0));
  sizes.rows = 100'000;
  EXPECT_TRUE(absl::IsResourceExhausted(backend_->Reserve(sizes)));
}

// What a GPU says of a kernel that fails comes at its launch or at any call after it.
class KernelFaultDeathTest : public CudaBackendTest {
 protected:
  using Kind = emulation::KernelFault::Kind;

  // Two launches, of which the second fails, and then, unless that was the end, `call` with what it
  // may need.
  void Fail(Kind kind, int64_t calls_later, const std::function<void()>& call) {
    Make({.schedule = {},
          .memory_bytes = int64_t{1} << 20,
          .fault = {.kind = kind, .kernel = 1, .calls_later = calls_later}});
    x_ = Upload(std::vector<float>(8, 1));
    event_ = backend_->MakeEvent().value();
    event_->Record({});
    Launch();
    if (Download(x_)[0] != 1) return;
    Launch();
    call();
  }
  void Launch() { backend_->Cast(View(x_), View(x_), {}); }

  std::unique_ptr<Buffer> x_;
  std::unique_ptr<Event> event_;
};

TEST_F(KernelFaultDeathTest, ARefusedLaunchNamesItsKernel) {
  EXPECT_DEATH(Fail(Kind::kRefused, 0, [] {}),
               "check failed: .*launch of a kernel: cudaErrorInvalidConfiguration: invalid "
               "configuration argument; this thread's last launch is .*CastKernel");
}

TEST_F(KernelFaultDeathTest, ALateFaultEndsTheProgramAtWhateverIsCalledNext) {
  const std::string fault =
      ": cudaErrorIllegalAddress: .*this thread's last launch is .*CastKernel";
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"work on the GPU", [&] { backend_->Synchronize({}); }},
      {"work on the GPU", [&] { event_->Await(); }},
      {"launch of a kernel", [&] { Launch(); }},
      {"mark of an event", [&] { event_->Record({}); }},
      {"a stream's wait for an event", [&] { event_->Wait({}); }},
      {"allocation of device memory", [&] { (void)backend_->Allocate(4); }},
      {"freeing of device memory", [&] { x_.reset(); }},
      {"work on the GPU", [&] { backend_.reset(); }}};
  for (const auto& [what, call] : calls)
    EXPECT_DEATH(Fail(Kind::kIllegalAddress, 1, call), what + fault) << what;
}

TEST_F(KernelFaultDeathTest, AFaultThatShowsAtTheWaitLetsOtherCallsPass) {
  EXPECT_DEATH(Fail(Kind::kIllegalAddress, 1000,
                    [&] {
                      Launch();
                      event_->Record({});
                      if (!event_->IsReached().ok()) return;
                      backend_->Synchronize({});
                    }),
               "work on the GPU: cudaErrorIllegalAddress");
}

// Who asks first hears of it, and so does everybody after.
TEST_F(KernelFaultDeathTest, AFaultStays) {
  EXPECT_DEATH(Fail(Kind::kIllegalAddress, 1,
                    [&] {
                      for (int i = 0; i < 3; ++i)
                        std::fputs(event_->IsReached().status().ToString().c_str(), stderr);
                      event_->Await();
                    }),
               "(UNAVAILABLE: emulated GPU: cudaErrorIllegalAddress: an illegal memory access was "
               "encountered){3}.*work on the GPU: cudaErrorIllegalAddress");
}

TEST_F(KernelFaultDeathTest, ABrokenGpuEndsWithOneLineAndTheMachinesStatus) {
  EXPECT_EXIT(
      Fail(Kind::kHardware, 1, [&] { backend_->Synchronize({}); }),
      ::testing::ExitedWithCode(kExitIo),
      "warning: the GPU failed: work on the GPU: cudaErrorECCUncorrectable: .*last launch is "
      ".*; see nvidia-smi and dmesg\n$");
}

TEST_F(KernelFaultDeathTest, AGraphFailsAsItsKernelsDo) {
  EXPECT_DEATH(Fail(Kind::kIllegalAddress, 1000,
                    [&] {
                      for (int run = 0; run < 2; ++run) {
                        backend_->BeginGraph(1, {});
                        Launch();
                        backend_->EndGraph({});
                      }
                      backend_->Synchronize({});
                    }),
               "work on the GPU: cudaErrorIllegalAddress: .*this thread's last launch is a graph");
}

TEST_F(CudaBackendTest, MemoryComesBackAndOutlivesTheBackend) {
  Make({.schedule = {}, .memory_bytes = 1 << 20});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(backend_->Allocate(700000).ok()) << i;
  const std::unique_ptr<Buffer> last = backend_->Allocate(100).value();
  backend_.reset();
}

// A graph would hide which kernel fails.
TEST_F(CudaBackendTest, NothingIsCapturedWhereLaunchesWait) {
  ASSERT_EQ(::setenv("CUDA_LAUNCH_BLOCKING", "1", 1), 0);
  const std::unique_ptr<Backend> backend =
      MakeCudaBackend(emulation::MakeEmulatedRuntime({}), {}).value();
  ::unsetenv("CUDA_LAUNCH_BLOCKING");
  for (int run = 0; run < 3; ++run) {
    backend->BeginGraph(5, {});
    // Not allowed in a capture.
    EXPECT_TRUE(backend->Allocate(64).ok());
    backend->EndGraph({});
  }
}

TEST_F(CudaBackendTest, AForgottenGraphIsANewOne) {
  Make();
  const std::unique_ptr<Buffer> a = Upload({1});
  for (int run = 0; run < 6; ++run) {
    backend_->BeginGraph(3, {});
    backend_->Add(View(a), View(a), View(a), {});
    backend_->EndGraph({});
    // While it is still to run.
    if (run % 3 == 2) backend_->ForgetGraph(3);
  }
  backend_->ForgetGraph(4);
  EXPECT_EQ(Download(a)[0], 64);
}

TEST_F(CudaBackendDeathTest, GraphsRefuseWhatTheyCannotHold) {
  Make();
  const std::unique_ptr<Buffer> a = Upload(std::vector<float>(100, 1));
  backend_->BeginGraph(1, {});
  backend_->EndGraph({});
  backend_->BeginGraph(1, {});
  float value = 0;
  EXPECT_DEATH(backend_->CopyToDevice(&value, a->data(), 4, {}), "inside of a graph");
  EXPECT_DEATH(backend_->CopyToHost(a->data(), &value, 4, {}), "inside of a graph");
  // Memory of operations grows in the first, plain run; in a capture it would die with a code that
  // says nothing.
  float* const memory = View(a).data<float>();
  GemmArgs args = {.a = ConstTensorView(memory, {2, 4}),
                   .b = ConstTensorView(memory + 8, {4, 4}),
                   .bias = ConstTensorView(memory + 33, {4}),
                   .c = TensorView(memory + 64, {2, 4})};
  EXPECT_DEATH(backend_->Gemm(args, {}), "first time inside of a graph");
  backend_->EndGraph({});
}

// Products that libraries do not have: the kernel that has all must agree with the one that is
// used.
TEST_F(CudaBackendTest, ThePlainProductIsTheSameProduct) {
  Make();
  // Small integers: sums are exact, whatever their order.
  std::vector<float> numbers;
  for (int i = 0; i < 400; ++i) numbers.push_back(static_cast<float>(i * 7 % 11 - 5));
  for (int options = 0; options < 32; ++options) {
    const auto product = [&](float* memory) {
      GemmArgs args = {.transpose_a = (options & 1) != 0, .transpose_b = (options & 2) != 0};
      args.a = ConstTensorView(memory, args.transpose_a ? Shape{5, 7} : Shape{7, 5});
      args.b = ConstTensorView(memory + 100, args.transpose_b ? Shape{9, 5} : Shape{5, 9});
      // The emulated library refuses a bias at an odd address, as the real one would.
      if ((options & 4) != 0)
        args.bias = ConstTensorView(memory + ((options & 16) != 0 ? 201 : 200), {9});
      args.beta = (options & 8) != 0 ? 1.0f : 0.0f;
      args.c = TensorView(memory + 300, {7, 9});
      return args;
    };
    const std::unique_ptr<Buffer> device = Upload(numbers);
    backend_->Gemm(product(View(device).data<float>()), {});
    std::vector<float> plain = numbers;
    PlainGemm(product(plain.data()), {});
    EXPECT_EQ(Download(device), plain) << options;
  }
}

// dy of 300 rows whose sums in fp32, row by row, lose what a library keeps: so the results tell who
// made them.
class SumsTest : public CudaBackendTest {
 protected:
  static constexpr int64_t kRows = 300;
  static constexpr int64_t kColumns = 5;

  void MakeSums(bool fuses_sums) {
    Make({.schedule = {}, .memory_bytes = int64_t{1} << 30, .fuses_sums = fuses_sums});
    std::vector<float> dy(kRows * kColumns, 0.0f);
    for (int64_t column = 0; column < kColumns; ++column) {
      dy[column] = 1e9f;
      dy[kColumns + column] = static_cast<float>(column + 1);
      dy[2 * kColumns + column] = -1e9f;
    }
    dy_ = Upload(dy);
    x_ = Upload(std::vector<float>(kRows * 2, 0.5f));
    dweight_ = Upload(std::vector<float>(kColumns * 2, 7.0f));
    sums_ = Upload(std::vector<float>(16, 7.0f));
  }
  GemmArgs Product(bool of_a, int64_t place) {
    GemmArgs args;
    const ConstTensorView dy(View(dy_).raw(), DType::kFloat32, {kRows, kColumns});
    const ConstTensorView x(View(x_).raw(), DType::kFloat32, {kRows, 2});
    args.transpose_a = true;
    args.a = of_a ? dy : x;
    args.b = of_a ? x : dy;
    args.c = TensorView(View(dweight_).raw(), DType::kFloat32,
                        of_a ? Shape{kColumns, 2} : Shape{2, kColumns});
    (of_a ? args.a_sum : args.b_sum) = View(sums_).Slice(place, {kColumns});
    return args;
  }
  void ExpectSums(bool fused, int64_t place, const std::string& what) {
    std::vector<float> expected(16, 7.0f);
    for (int64_t column = 0; column < kColumns; ++column)
      expected[place + column] = fused ? static_cast<float>(column + 1) : 0;
    EXPECT_EQ(Download(sums_), expected) << what;
  }

  std::unique_ptr<Buffer> dy_, x_, dweight_, sums_;
};

TEST_F(SumsTest, AreTheLibrarysWhereItHasThemElseOurKernels) {
  for (const bool fuses_sums : {true, false}) {
    for (const bool of_a : {true, false}) {
      // An address that the library may write at, and one that it may not.
      for (const int64_t place : {0, 3}) {
        MakeSums(fuses_sums);
        backend_->Gemm(Product(of_a, place), {});
        ExpectSums(fuses_sums, place,
                   absl::StrCat(fuses_sums ? "fused" : "apart", of_a ? " a " : " b ", place));
      }
    }
  }
}

TEST_F(SumsTest, AreOurKernelsForAResultOfAnotherDtype) {
  MakeSums(/*fuses_sums=*/true);
  const std::unique_ptr<Buffer> narrow = backend_->Allocate(4 * kRows * kColumns).value();
  GemmArgs args = Product(/*of_a=*/true, 0);
  const auto cast = [&](const ConstTensorView& from, int64_t first) {
    const TensorView to = TensorView(narrow->data(), DType::kBFloat16, {2 * kRows * kColumns})
                              .Slice(first, from.shape());
    backend_->Cast(from, to, {});
    return to;
  };
  args.a = cast(args.a, 0);
  args.b = cast(args.b, kRows * kColumns);
  args.c = TensorView(View(dweight_).raw(), DType::kBFloat16, {kColumns, 2});
  backend_->Gemm(args, {});
  ExpectSums(/*fused=*/false, 0, "bf16");
}

TEST_F(SumsTest, GoIntoGraphs) {
  for (const bool fuses_sums : {true, false}) {
    MakeSums(fuses_sums);
    for (const bool of_a : {true, false, true, false}) {
      backend_->BeginGraph(of_a ? 1 : 2, {});
      backend_->Gemm(Product(of_a, 5), {});
      backend_->EndGraph({});
      ExpectSums(fuses_sums, 5, "in a graph");
    }
  }
}

}  // namespace
}  // namespace anyorder::kernels::cuda
