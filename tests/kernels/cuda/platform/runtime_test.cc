// What the emulation's runtime refuses and counts, where a GPU would refuse, be wrong, or be slow
// without a word.

#include "kernels/cuda/platform/runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "kernels/cuda/platform/launch.h"
#include "tests/emulated_gpu/runtime.h"

namespace anyorder::kernels::cuda {
namespace {

TEST(CheckChipTest, AChipWithoutCodeOrMemoryIsNamedAndTheOthersAreTaken) {
  const auto check = [](int chip, int kib) {
    DeviceProperties device = {
        .name = "NVIDIA L4", .chip = chip, .shared_bytes_per_block = int64_t{kib} * 1024};
    return CheckChip(device);
  };
  EXPECT_EQ(check(89, 99).message(),
            "NVIDIA L4 (sm_89, 99 KiB of shared memory a block) is not supported: this program has "
            "code for sm_80 (A100), sm_90 (H100, H200) and others of sm_8x with 163 KiB; choose "
            "another GPU, or train.device = \"cpu\"");
  EXPECT_TRUE(check(80, 163).ok());
  EXPECT_TRUE(check(87, 163).ok());
  EXPECT_TRUE(check(90, 227).ok());
  for (const int chip : {70, 75, 86, 89, 91, 100, 103, 120}) {
    // Those of compute capability 8 lack memory, all others lack code.
    const absl::Status status = check(chip, chip / 10 == 8 ? 99 : 227);
    EXPECT_EQ(ExitStatusFor(status), kExitUsage) << chip << ": launchers must not start it again";
  }
}

// Smaller numbers go first. GPUs have had 1, 2, 3 and 6 priorities.
TEST(PriorityTest, MessagesGoFirstAndCopiesLastWhereTheGpuTellsThemApart) {
  for (const int greatest : {0, -1, -2, -5}) {
    const int main = MainPriority(0, greatest);
    const int messages = PriorityOf(StreamPurpose::kMessages, 0, greatest);
    const int copies = PriorityOf(StreamPurpose::kCopies, 0, greatest);
    EXPECT_EQ(copies, 0);
    EXPECT_EQ(messages, greatest);
    EXPECT_EQ(messages < main, greatest < 0) << greatest;
    EXPECT_EQ(main < copies, greatest < -1) << greatest;
  }
}

TEST(RuntimeTest, OnlyTimedEventsHaveTimes) {
  const std::unique_ptr<Runtime> runtime = emulation::MakeEmulatedRuntime({});
  const EventView plain = runtime->MakeEvent();
  const EventView timed = runtime->MakeTimedEvent();
  for (const EventView event : {plain, timed}) runtime->Record(event, {});
  EXPECT_GE(runtime->MillisecondsBetween(timed, timed), 0);
  EXPECT_DEATH(runtime->MillisecondsBetween(plain, timed), "without times");
  runtime->DestroyEvent(plain);
  runtime->DestroyEvent(timed);
}

class EmulatedRuntimeTest : public ::testing::Test {
 protected:
  void Make(uint64_t seed) { runtime_ = emulation::MakeEmulatedRuntime({.schedule = {seed}}); }
  float* Allocate(int64_t bytes) {
    return static_cast<float*>(runtime_->AllocateDevice(bytes).value());
  }
  StreamView stream() const { return runtime_->main_stream(); }

  std::unique_ptr<Runtime> runtime_;
};
using EmulatedRuntimeDeathTest = EmulatedRuntimeTest;

struct PlaceParams {
  float* at;
};
void StoreKernel(PlaceParams p) {
  if (Thread() == 0) *p.at = 1.0f;
}

TEST_F(EmulatedRuntimeDeathTest, EndsAtWritesBesideABlockOfDeviceMemory) {
  Make(0);
  float* const data = Allocate(1000);
  for (const int64_t at : {-1, 250}) {
    const auto store = [&] {
      Launch(StoreKernel, {.threads = 32}, PlaceParams{data + at}, stream());
      runtime_->Synchronize(stream());
    };
    EXPECT_DEATH(store(), absl::StrCat("StoreKernel.*(an access at|wrote at byte ", 4 * at,
                                       " of a block of 1000 bytes)|SEGV on"));
  }
  runtime_->FreeDevice(data);
}

TEST_F(EmulatedRuntimeDeathTest, ACapturingThreadMayNotWaitNorAllocate) {
  Make(0);
  Runtime& runtime = *runtime_;
  const StreamView other = runtime.MakeStream(StreamPurpose::kCopies);
  const EventView event = runtime.MakeEvent();
  void* const data = Allocate(256);
  void* const pinned = runtime.AllocatePinned(256).value();
  runtime.Record(event, other);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"allocation of device memory", [&] { (void)runtime.AllocateDevice(256); }},
      {"work on the GPU", [&] { runtime.Synchronize(StreamView{}); }},
      {"mark of an event", [&] { runtime.Record(event, {}); }},
      {"a wait of the captured stream", [&] { runtime.Wait({}, event); }},
      {"begin of a graph", [&] { runtime.BeginCapture(other); }}};
  runtime.BeginCapture({});
  for (const auto& [what, call] : calls)
    EXPECT_DEATH(call(), std::string(what) + ".*: cudaErrorStreamCaptureUnsupported: ") << what;
  // Streams that are not captured, and other threads.
  runtime.Record(event, other);
  std::thread([&] {
    runtime.Synchronize(event);
    runtime.FreeDevice(runtime.AllocateDevice(256).value());
  }).join();
  GraphView graph;
  runtime.EndCapture({}, &graph);
  runtime.Synchronize(event);
  runtime.DestroyGraph(graph);
  runtime.FreeDevice(data);
  runtime.FreePinned(pinned);
  runtime.DestroyStream(other);
  runtime.DestroyEvent(event);
}

TEST_F(EmulatedRuntimeTest, CountsAndLogsGraphsThatCouldNotBeUpdated) {
  Make(0);
  float* const data = Allocate(256);
  GraphView graph;
  const auto capture = [&](const std::function<void()>& ask) {
    ::testing::internal::CaptureStderr();
    runtime_->BeginCapture({});
    ask();
    runtime_->EndCapture({}, &graph);
    return ::testing::internal::GetCapturedStderr();
  };
  const auto store = [&](int at) {
    Launch(StoreKernel, {.threads = 32}, PlaceParams{data + at}, stream());
  };
  const auto fill = [&] { runtime_->FillBytes(data, 0, 4, {}); };
  EXPECT_EQ(capture([&] { store(0), fill(); }), "");
  EXPECT_EQ(capture([&] { store(1), fill(); }), "") << "other parameters are an update";
  EXPECT_EQ(runtime_->num_reinstantiated_graphs(), 0);
  EXPECT_THAT(
      capture([&] { fill(), store(0); }),
      ::testing::ContainsRegex(
          "warning: a captured graph could not be updated and was instantiated again, which "
          "takes milliseconds; 1 time so far: node 0 was .*StoreKernel.* and is a fill"));
  EXPECT_THAT(capture([&] { fill(); }), ::testing::HasSubstr("2 times so far: 2 nodes became 1\n"));
  EXPECT_EQ(capture([&] { fill(), fill(); }), "") << "the third is counted alone";
  EXPECT_EQ(runtime_->num_reinstantiated_graphs(), 3);
  EXPECT_THAT(capture([&] { store(0), store(1); }), ::testing::HasSubstr("4 times so far"));
  runtime_->DestroyGraph(graph);
  runtime_->FreeDevice(data);
}

}  // namespace
}  // namespace anyorder::kernels::cuda
