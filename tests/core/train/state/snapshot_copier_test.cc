// Saves during the optimizer's updates, on a device that does everything as late as it may, and
// their memory, pinned or not.

#include "core/train/state/snapshot_copier.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/network/tensors/memory_ring.h"
#include "tests/dist/training_run.h"
#include "tests/testing/deferred_backend.h"
#include "tests/testing/emulated_gpu.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder {
namespace {

using dist::DeviceArray;
using dist::ToHost;
using testing::DeferredBackend;
using testing::Lag;

constexpr int64_t kCopied = 3000;

// What a save taken between two updates has, and what there was then.
struct Saved {
  std::vector<float> copied;
  std::vector<float> expected;
  std::vector<float> after;  // the next update
};

void BeginCopy(SnapshotCopier& copier, ConstTensorView from, float* to) {
  copier.Begin();
  copier.Copy(from.raw(), to, from.num_bytes());
  copier.End();
}

void WaitFor(SnapshotCopier& copier) {
  while (!copier.IsDone().value()) {
  }
}

Saved SaveBetweenUpdates(Lag lag, bool holds_back) {
  Saved saved;
  testing::RunThreadRanks(1, [&](dist::Communicator& comm) {
    DeferredBackend backend(kernels::MakeReferenceBackend(), lag);
    const auto transport = dist::MakeCommunicatorTransport(comm, backend).value();
    const auto optimizer = dist::PlainOptimizer(comm, backend, *transport, kCopied);
    const auto copier = SnapshotCopier::Create(backend).value();
    const auto weights = dist::MakeWeights(comm, backend, *transport, kCopied);
    const DeviceArray<float> gradient(backend, std::vector<float>(kCopied, 0.5f));
    dist::StepInfo info{0.1, 1.0};
    if (holds_back) info.before_update = [&] { copier->MakeUpdatesWait(); };
    const auto update = [&] { optimizer->Step(gradient.view(), info, *weights); };
    update();
    std::vector<float> staging(kCopied, -1.0f);
    copier->Prepare(staging.data(), kCopied * 4);
    // A copy that nobody waits for reads when the next update is through, on any machine.
    backend.StallSideStreams(!holds_back);
    // The copy is asked for while the update may still be under way.
    BeginCopy(*copier, optimizer->master(), staging.data());
    update();
    saved.after = ToHost<float>(backend, optimizer->master());
    backend.StallSideStreams(false);
    WaitFor(*copier);
    saved.copied = staging;
    copier->Release(staging.data());
  });
  // The same update from the same start, by itself.
  testing::RunThreadRanks(1, [&](dist::Communicator& comm) {
    const auto backend = kernels::MakeReferenceBackend();
    const auto transport = dist::MakeCommunicatorTransport(comm, *backend).value();
    const auto optimizer = dist::PlainOptimizer(comm, *backend, *transport, kCopied);
    const auto weights = dist::MakeWeights(comm, *backend, *transport, kCopied);
    const DeviceArray<float> gradient(*backend, std::vector<float>(kCopied, 0.5f));
    optimizer->Step(gradient.view(), {0.1, 1.0}, *weights);
    saved.expected = ToHost<float>(*backend, optimizer->master());
  });
  return saved;
}

TEST(SnapshotCopierTest, ASaveHasTheStateOfItsStep) {
  for (const Lag lag : {Lag::kMain, Lag::kSide, Lag::kRandom}) {
    const Saved saved = SaveBetweenUpdates(lag, /*holds_back=*/true);
    EXPECT_EQ(saved.copied, saved.expected);
    EXPECT_NE(saved.after, saved.expected);
  }
}

// Guards the test above: without the wait a late copy reads what the next update has written.
TEST(SnapshotCopierTest, UpdatesThatDoNotWaitTearTheSave) {
  const Saved saved = SaveBetweenUpdates(Lag::kSide, /*holds_back=*/false);
  EXPECT_NE(saved.copied, saved.expected);
}

// One lane's memory after `steps` steps that write 1, 2, ... into its rings as the network does,
// the last save's copy being asked for after step 3 and the side stream stalled until the step
// after that is queued.
Saved SaveMemory(Lag lag) {
  DeferredBackend backend(kernels::MakeReferenceBackend(), lag);
  const auto copier = SnapshotCopier::Create(backend).value();
  ModelConfig model = {.num_layers = 1, .model_dim = 64, .dtype = ComputeType::kFloat32};
  BatchShape shape = {.memory_rows = 5, .advance = 3};
  MemoryRing ring = MemoryRing::Create(model, shape, 1, backend).value();
  const DeviceArray<float> fresh(backend, shape.advance * 64);
  float next = 1;
  const auto step = [&] {
    std::vector<float> rows;
    for (int64_t row = 0; row < shape.advance; ++row, ++next) rows.insert(rows.end(), 64, next);
    backend.CopyToDevice(rows.data(), fresh.view().raw(), fresh.view().num_bytes(), {});
    const RingView view = ring.View(0, 1);
    int64_t from = 0;
    for (const SlotRun& run : view.Runs(shape.memory_rows, shape.advance)) {
      kernels::CopyRowsArgs copy = {.source = fresh.view(),
                                    .source_begin = from,
                                    .destination = view.slots,
                                    .destination_begin = run.begin * 64,
                                    .rows = run.rows == 0 ? 0 : 1,
                                    .columns = run.rows * 64};
      backend.CopyRows(copy, {});
      from += run.rows * 64;
    }
    // The network reads its losses.
    backend.Synchronize({});
  };
  const auto update = [&] {
    copier->MakeUpdatesWait();
    ring.Advance();
  };
  for (int i = 0; i < 3; ++i) {
    step();
    update();
  }
  Saved saved;
  std::vector<float> staging(5 * 64, -1.0f);
  copier->Prepare(staging.data(), 5 * 64 * 4);
  backend.StallSideStreams(true);
  copier->Begin();
  float* to = staging.data();
  for (const TensorView& piece : ring.States(0)) {
    copier->Copy(piece.raw(), to, piece.num_bytes());
    to += piece.num_elements();
  }
  copier->End();
  for (float row = 5; row < 10; ++row) saved.expected.insert(saved.expected.end(), 64, row);
  step();
  backend.StallSideStreams(false);
  update();
  step();
  WaitFor(*copier);
  saved.copied = staging;
  copier->Release(staging.data());
  return saved;
}

TEST(SnapshotCopierTest, ASaveHasTheMemoryOfItsStep) {
  for (const Lag lag : {Lag::kMain, Lag::kSide, Lag::kRandom}) {
    const Saved saved = SaveMemory(lag);
    EXPECT_EQ(saved.copied, saved.expected);
  }
}

// The host neither waits for the copy nor learns of its end before it is there.
TEST(SnapshotCopierTest, ACopyIsDoneWhenTheDeviceIsThroughAndNotBefore) {
  DeferredBackend backend(kernels::MakeReferenceBackend(), Lag::kRandom);
  const auto copier = SnapshotCopier::Create(backend).value();
  EXPECT_TRUE(copier->IsDone().value());
  const DeviceArray<float> values(backend, std::vector<float>(10, 2.0f));
  std::vector<float> staging(10);
  backend.StallSideStreams(true);
  BeginCopy(*copier, values.view(), staging.data());
  EXPECT_FALSE(copier->IsDone().value());
  backend.FailEvents(absl::InternalError("the device is lost"));
  EXPECT_EQ(copier->IsDone().status().message(), "the device is lost");
  backend.FailEvents(absl::OkStatus());
  EXPECT_EQ(staging, std::vector<float>(10));
  backend.StallSideStreams(false);
  WaitFor(*copier);
  EXPECT_EQ(staging, std::vector<float>(10, 2.0f));
}

// The emulated GPU, which refuses to pin memory or tells what is pinned. One registration at a
// time.
class PinningBackend final : public testing::ForwardingBackend {
 public:
  explicit PinningBackend(bool refuses)
      : ForwardingBackend(testing::MakeEmulatedGpu()), refuses_(refuses) {}
  absl::StatusOr<std::unique_ptr<kernels::HostRegistration>> RegisterHost(void* data,
                                                                          int64_t bytes) override {
    if (refuses_) return absl::ResourceExhaustedError("no more memory may be locked");
    auto inner = ForwardingBackend::RegisterHost(data, bytes);
    auto registration = std::make_unique<Registration>(*std::move(inner), pinned_);
    pinned_ = registration.get();
    return registration;
  }
  kernels::HostRegistration* pinned() const { return pinned_; }

 private:
  class Registration final : public kernels::HostRegistration {
   public:
    Registration(std::unique_ptr<kernels::HostRegistration> inner,
                 kernels::HostRegistration*& pinned)
        : inner_(std::move(inner)), pinned_(pinned) {}
    ~Registration() override { pinned_ = nullptr; }

   private:
    const std::unique_ptr<kernels::HostRegistration> inner_;
    kernels::HostRegistration*& pinned_;
  };

  const bool refuses_;
  kernels::HostRegistration* pinned_ = nullptr;
};

// Several chunks of the ring that copies into other memory go through.
constexpr int64_t kChunked = 160'000;

TEST(SnapshotCopierTest, ACopyThatIsDoneIsInItsMemoryThoughThatIsNotPinned) {
  for (const bool refuses : {true, false}) {
    SCOPED_TRACE(refuses);
    PinningBackend backend(refuses);
    const auto copier = SnapshotCopier::Create(backend).value();
    const DeviceArray<float> values(backend, std::vector<float>(kChunked, 2.0f));
    std::vector<float> staging(kChunked, -1.0f);
    copier->Prepare(staging.data(), kChunked * 4);
    EXPECT_EQ(backend.pinned() == nullptr, refuses);
    BeginCopy(*copier, values.view(), staging.data());
    EXPECT_FALSE(copier->IsDone().value());
    WaitFor(*copier);
    EXPECT_TRUE(staging == std::vector<float>(kChunked, 2.0f));
    copier->Release(staging.data());
  }
}

TEST(SnapshotCopierTest, ALongCopyIsMadeOfPiecesThatMeet) {
  DeferredBackend backend(kernels::MakeReferenceBackend(), Lag::kRandom);
  const auto copier = SnapshotCopier::Create(backend).value();
  std::vector<float> expected((int64_t{72} << 20) / 4 + 5);
  std::iota(expected.begin(), expected.end(), 0.0f);
  const DeviceArray<float> values(backend, expected);
  std::vector<float> staging(expected.size(), -1.0f);
  BeginCopy(*copier, values.view(), staging.data());
  WaitFor(*copier);
  EXPECT_TRUE(staging == expected);
}

TEST(SnapshotCopierTest, MemoryStaysPinnedForACopyThatIsStillUnderWay) {
  for (const bool is_done : {false, true}) {
    SCOPED_TRACE(is_done);
    PinningBackend backend(/*refuses=*/false);
    const DeviceArray<float> values(backend, std::vector<float>(kChunked, 2.0f));
    std::vector<float> staging(kChunked);
    auto copier = SnapshotCopier::Create(backend).value();
    copier->Prepare(staging.data(), kChunked * 4);
    BeginCopy(*copier, values.view(), staging.data());
    if (is_done) WaitFor(*copier);
    copier.reset();
    EXPECT_EQ(backend.pinned() != nullptr, !is_done);
    delete backend.pinned();
  }
}

}  // namespace
}  // namespace anyorder
