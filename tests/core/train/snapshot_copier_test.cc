// Saves beside the optimizer's updates, on a device that does everything as late as it may.

#include "core/train/snapshot_copier.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/dist/training_run.h"
#include "tests/testing/deferred_backend.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder {
namespace {

using dist::DeviceArray;
using dist::ToHost;
using testing::DeferredBackend;
using testing::Lag;

constexpr int64_t kSize = 3000;

// What a save taken between two updates has of the weights, and what they were then.
struct Saved {
  std::vector<float> copied;
  std::vector<float> expected;
  std::vector<float> after;  // the next update
};

Saved SaveBetweenUpdates(Lag lag, bool holds_back) {
  Saved saved;
  testing::RunThreadRanks(1, [&](dist::Communicator& comm) {
    DeferredBackend backend(kernels::MakeReferenceBackend(), lag);
    const auto optimizer =
        dist::ShardedOptimizer::Create(comm, backend, kSize, {{0, kSize, true}}, OptimizerConfig())
            .value();
    const auto copier = SnapshotCopier::Create(backend).value();
    const DeviceArray<float> weights(backend, kSize);
    const DeviceArray<float> gradient(backend, std::vector<float>(kSize, 0.5f));
    const auto update = [&] {
      if (holds_back) copier->HoldBackUpdates();
      optimizer->Step(gradient.view(), {0.1, 1.0}, weights.view());
    };
    update();
    std::vector<float> staging(kSize, -1.0f);
    copier->Prepare(staging.data(), kSize * 4);
    // The copy is asked for while the update may still be under way.
    copier->Begin();
    copier->Copy(optimizer->master().raw(), staging.data(), kSize * 4);
    copier->End();
    update();
    saved.after = ToHost<float>(backend, optimizer->master());
    while (!copier->IsDone().value()) {
    }
    saved.copied = staging;
    copier->Release(staging.data());
  });
  // The same update from the same start, by itself.
  testing::RunThreadRanks(1, [&](dist::Communicator& comm) {
    const auto backend = kernels::MakeReferenceBackend();
    const auto optimizer =
        dist::ShardedOptimizer::Create(comm, *backend, kSize, {{0, kSize, true}}, OptimizerConfig())
            .value();
    const DeviceArray<float> weights(*backend, kSize);
    const DeviceArray<float> gradient(*backend, std::vector<float>(kSize, 0.5f));
    optimizer->Step(gradient.view(), {0.1, 1.0}, weights.view());
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

// The host neither waits for the copy nor learns of its end before it is there.
TEST(SnapshotCopierTest, ACopyIsDoneWhenTheDeviceIsThroughAndNotBefore) {
  DeferredBackend backend(kernels::MakeReferenceBackend(), Lag::kRandom);
  const auto copier = SnapshotCopier::Create(backend).value();
  EXPECT_TRUE(copier->IsDone().value());
  const DeviceArray<float> values(backend, std::vector<float>(10, 2.0f));
  std::vector<float> staging(10);
  backend.StallSideStreams(true);
  copier->Begin();
  copier->Copy(values.view().raw(), staging.data(), 40);
  copier->End();
  EXPECT_FALSE(copier->IsDone().value());
  backend.FailEvents(absl::InternalError("the device is lost"));
  EXPECT_EQ(copier->IsDone().status().message(), "the device is lost");
  backend.FailEvents(absl::OkStatus());
  EXPECT_EQ(staging, std::vector<float>(10));
  backend.StallSideStreams(false);
  while (!copier->IsDone().value()) {
  }
  EXPECT_EQ(staging, std::vector<float>(10, 2.0f));
}

}  // namespace
}  // namespace anyorder
