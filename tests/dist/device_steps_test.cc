// Optimizer steps whose norm decides what becomes of them, on devices that are late, cannot be
// touched by the host, or run the GPU's kernels: the decisions and bits of host memory, and no wait
// of the host before the update is asked for.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"

#include "dist/sharded_optimizer.h"
#include "tests/dist/training_run.h"
#include "tests/testing/emulated_gpu.h"
#include "tests/testing/fake_nccl.h"
#include "tests/testing/fenced_backend.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/patience.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

using testing::FakeWire;
using testing::FencedBackend;
using testing::Lag;
using testing::NcclRank;

constexpr double kGradScale = -0.25;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What the steps are like. Their gradients are random; a norm is about 0.25 size sqrt(kRunElements)
// = 57 size.
struct ScriptedStep {
  float size = 1;
  float planted = 0;  // element 20000 is this, if not 0
  double skip_above_norm = std::numeric_limits<double>::infinity();
  bool skip_update = false;
  bool skipped = false;  // what must become of it
};
const std::vector<ScriptedStep>& Script() {
  static const auto* const steps = new std::vector<ScriptedStep>{
      {0, kInfinity, kInfinity, false, true},  // before any update
      {1, 0, kInfinity, false, false},
      {0.001f, 0, kInfinity, false, false},  // not clipped
      {1, std::nanf(""), kInfinity, false, true},
      {1, 0, 40, false, true},  // above the bound
      {1, 0, 70, false, false},
      {1, 0, kInfinity, true, true},        // whatever its norm is
      {1, 1e30f, kInfinity, false, false},  // large, but finite
      {1, 1e30f, 70, false, true},
      {1, 0, kInfinity, false, false},
  };
  return *steps;
}

OptimizerConfig Config() { return {.bias_correction = true, .max_grad_norm = 2, .ema_decay = 0.3}; }

std::vector<float> GradientOf(size_t step, Range owned) {
  RandomStream random(3, RandomPurpose::kInit, static_cast<int64_t>(step), 0);
  std::vector<float> values(kRunElements);
  for (float& value : values) value = Script()[step].size * static_cast<float>(random.Normal());
  if (Script()[step].planted != 0) values[20000] = Script()[step].planted;
  return {values.begin() + owned.begin, values.begin() + owned.end};
}

struct Outcomes {
  std::vector<UpdateOutcome> steps;
  std::vector<uint64_t> digests;  // of weights, moments and average after each step
};

// On this rank. `looks`: the host reads the state after each step; otherwise after the last only,
// so that steps follow each other as in training.
Outcomes RunScript(Communicator& comm, kernels::Backend& backend, DeviceTransport* given,
                   bool looks, MemoryPlace place = MemoryPlace::kDevice) {
  const GivenTransport transport(given, comm, backend);
  OptimizerConfig config = Config();
  config.state = place;
  const auto optimizer = StartOptimizer(comm, backend, *transport, config);
  const Range owned = optimizer->owned();
  const auto weights = MakeWeights(comm, backend, *transport, kRunElements);
  weights->Set(optimizer->master());
  const DeviceArray<float> gradient(backend, owned.size());
  Outcomes run;
  for (size_t step = 0; step < Script().size(); ++step) {
    ToDevice(backend, GradientOf(step, owned), gradient.view());
    StepInfo info{0.01 * static_cast<double>(step + 1), kGradScale};
    info.skip_above_norm = Script()[step].skip_above_norm;
    info.skip_update = Script()[step].skip_update;
    optimizer->Step(gradient.view(), info, *weights);
    run.steps.push_back(optimizer->AwaitOutcome());
    if (looks || step + 1 == Script().size())
      run.digests.push_back(StateDigest<float>(comm, backend, *optimizer, *weights));
  }
  return run;
}

// NaN is NaN.
bool SameNumber(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void ExpectSame(const Outcomes& run, const Outcomes& expected) {
  EXPECT_EQ(run.digests.back(), expected.digests.back());
  for (size_t i = 0; i < Script().size(); ++i) {
    EXPECT_EQ(run.steps[i].skipped, expected.steps[i].skipped) << i;
    EXPECT_TRUE(SameNumber(run.steps[i].grad_norm, expected.steps[i].grad_norm)) << i;
    EXPECT_EQ(run.steps[i].clip_factor, expected.steps[i].clip_factor) << i;
  }
}

Outcomes OnHostMemory() {
  Outcomes run;
  testing::RunThreadRanks(1, [&](Communicator& comm) {
    run = RunScript(comm, *kernels::MakeReferenceBackend(), nullptr, /*looks=*/true);
  });
  return run;
}

// Of a run whose state was looked at after each step: what is skipped changes nothing.
void ExpectSkipsOfScript(const Outcomes& run) {
  for (size_t i = 0; i < Script().size(); ++i) {
    EXPECT_EQ(run.steps[i].skipped, Script()[i].skipped) << i;
    if (i > 0) {
      EXPECT_EQ(run.digests[i] == run.digests[i - 1], Script()[i].skipped) << i;
    }
  }
}

TEST(DeviceStepsTest, WhatIsSkippedChangesNothing) {
  const Outcomes run = OnHostMemory();
  ExpectSkipsOfScript(run);
  EXPECT_GT(run.steps[6].grad_norm, 40);  // known although nobody used it
  EXPECT_EQ(run.steps[2].clip_factor, 1);
  EXPECT_NEAR(run.steps[9].clip_factor * run.steps[9].grad_norm, 2, 1e-12);
}

TEST(DeviceStepsTest, RanksAndMemoryBehindAFenceDecideAlike) {
  const Outcomes expected = OnHostMemory();
  for (int ranks = 1; ranks <= 3; ++ranks) {
    for (const bool is_fenced : {false, true}) {
      SCOPED_TRACE(::testing::Message() << ranks << (is_fenced ? " ranks, fenced" : " ranks"));
      testing::RunThreadRanks(ranks, [&](Communicator& comm) {
        std::unique_ptr<kernels::Backend> backend = kernels::MakeReferenceBackend();
        if (is_fenced) backend = std::make_unique<FencedBackend>(std::move(backend));
        ExpectSame(RunScript(comm, *backend, nullptr, /*looks=*/ranks == 2), expected);
      });
    }
  }
}

TEST(DeviceStepsTest, LateDevicesOverNcclDecideAlike) {
  const Outcomes expected = OnHostMemory();
  for (const Lag lag : {Lag::kMain, Lag::kSide, Lag::kRandom}) {
    for (int ranks = 1; ranks <= 3; ++ranks) {
      FakeWire wire;
      testing::RunThreadRanks(ranks, [&](Communicator& comm) {
        NcclRank device(wire, comm, kernels::MakeReferenceBackend(), lag);
        ExpectSame(RunScript(comm, device.backend, device.transport.get(), /*looks=*/false,
                             ranks == 2 ? MemoryPlace::kHost : MemoryPlace::kDevice),
                   expected);
      });
    }
  }
}

// The kernels' own orders of addition: the same for any number of ranks, and what they decide is
// what the reference does.
TEST(DeviceStepsTest, TheGpusKernelsDecideAlike) {
  const Outcomes reference = OnHostMemory();
  Outcomes expected;
  for (int ranks = 1; ranks <= 3; ++ranks) {
    testing::RunThreadRanks(ranks, [&](Communicator& comm) {
      const auto backend = testing::MakeEmulatedGpu();
      const Outcomes run = RunScript(comm, *backend, nullptr, /*looks=*/ranks == 1,
                                     ranks == 1 ? MemoryPlace::kDevice : MemoryPlace::kHost);
      if (ranks == 1) expected = run;
      ExpectSame(run, expected);
    });
  }
  ExpectSkipsOfScript(expected);
  for (size_t i = 0; i < Script().size(); ++i) {
    const double norm = reference.steps[i].grad_norm;
    if (!std::isfinite(norm)) continue;
    // Sums of kRunElements positive numbers in fp64, in two orders.
    EXPECT_NEAR(expected.steps[i].grad_norm, norm, norm * kRunElements * 0x1p-52) << i;
  }
}

TEST(DeviceStepsTest, NoSettingOfMemoryChangesABitOfTheGpusKernels) {
  const uint64_t expected = RunDigestOfOneRank<BFloat16>(*testing::MakeEmulatedGpu());
  for (int ranks = 1; ranks <= 3; ++ranks) {
    testing::RunThreadRanks(ranks, [&](Communicator& comm) {
      const RunSettings settings{1, WeightSharding::kAll, MemoryPlace::kHost, MemoryPlace::kHost};
      EXPECT_EQ(RunDigest<BFloat16>(comm, *testing::MakeEmulatedGpu(), nullptr, settings), expected)
          << ranks;
    });
  }
}

bool Comes(absl::Notification& notification) {
  return notification.WaitForNotificationWithTimeout(kPatience);
}

// Its update runs when the test says so.
class HeldUpdate final : public testing::ForwardingBackend {
 public:
  explicit HeldUpdate(absl::Notification& go)
      : ForwardingBackend(kernels::MakeReferenceBackend()), go_(go) {}
  void AdamW(const kernels::AdamWArgs& args, StreamView stream) override {
    EXPECT_TRUE(Comes(go_)) << "the host waited for the update before it went on";
    ForwardingBackend::AdamW(args, stream);
  }

 private:
  absl::Notification& go_;
};

// Everything is asked for while the device has not even finished the gradient; the outcome is there
// while it is still at the update.
TEST(DeviceStepsTest, TheHostWaitsForNothingButTheNorm) {
  FakeWire wire;
  testing::RunThreadRanks(2, [&](Communicator& comm) {
    absl::Notification gradient_is_there;
    absl::Notification outcome_is_known;
    NcclRank device(wire, comm, std::make_unique<HeldUpdate>(outcome_is_known), Lag::kRandom);
    const auto optimizer = StartOptimizer(comm, device.backend, *device.transport, Config());
    const auto weights = MakeWeights(comm, device.backend, *device.transport, kRunElements);
    const DeviceArray<float> gradient(device.backend,
                                      std::vector<float>(optimizer->owned().size(), 0.5f));
    weights->Set(optimizer->master());
    device.backend.Run({}, [&] {
      EXPECT_TRUE(Comes(gradient_is_there)) << "the host waited in the middle of a step";
    });
    optimizer->Step(gradient.view(), {0.1, 1.0}, *weights);
    gradient_is_there.Notify();
    EXPECT_FALSE(optimizer->AwaitOutcome().skipped);
    outcome_is_known.Notify();
    EXPECT_NE(ToHost<float>(device.backend, weights->whole())[0], 0.0f);
  });
}

// As a resumed run does: bias correction goes on where the moments come from.
TEST(DeviceStepsTest, WhoeverLoadsTheMomentsSaysHowManyUpdatesMadeThem) {
  testing::RunThreadRanks(1, [](Communicator& comm) {
    FencedBackend backend(kernels::MakeReferenceBackend());
    const auto transport = MakeCommunicatorTransport(comm, backend).value();
    std::vector<std::vector<float>> ends;
    for (const bool resumes : {false, true}) {
      auto optimizer =
          ShardedOptimizer::Create(comm, backend, *transport, 100, {{0, 100, true}}, Config());
      const auto weights = MakeWeights(comm, backend, *transport, 100);
      const DeviceArray<float> good(backend, std::vector<float>(100, 0.5f));
      const DeviceArray<float> bad(backend, std::vector<float>(100, kInfinity));
      for (int step = 0; step < 6; ++step) {
        (*optimizer)->Step((step % 3 == 1 ? bad : good).view(), {0.1, 1.0}, *weights);
        if (!resumes || step != 4) continue;
        // Right after the second skipped step.
        EXPECT_TRUE((*optimizer)->AwaitOutcome().skipped);
        auto next =
            ShardedOptimizer::Create(comm, backend, *transport, 100, {{0, 100, true}}, Config());
        for (auto state : {&ShardedOptimizer::master, &ShardedOptimizer::first_moment,
                           &ShardedOptimizer::second_moment})
          ToDevice(backend, ToHost<float>(backend, (**optimizer.*state)()), (**next.*state)());
        (*next)->set_updates(3);
        optimizer = std::move(next);
      }
      ends.push_back(ToHost<float>(backend, weights->whole()));
    }
    EXPECT_EQ(ends[0], ends[1]);
  });
}

}  // namespace
}  // namespace anyorder::dist
