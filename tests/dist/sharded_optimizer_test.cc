#include "dist/sharded_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "tests/dist/training_run.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder::dist {
namespace {

constexpr double kEpsilon = 0x1p-24;  // rounding of one fp32 operation, relative

// Of the host backends of this file.
absl::Span<float> SpanOf(TensorView view) {
  return absl::MakeSpan(view.data<float>(), view.num_elements());
}
std::vector<float> CopyOf(TensorView view) { return {SpanOf(view).begin(), SpanOf(view).end()}; }

// Runs body(optimizer, weights) on one rank, for each backend.
void WithOptimizer(const OptimizerConfig& config, const std::vector<DecaySegment>& segments,
                   const std::function<void(ShardedOptimizer&, WeightWindows&)>& body) {
  testing::RunThreadRanks(1, [&](Communicator& comm) {
    for (const auto& backend : HostBackends()) {
      SCOPED_TRACE(backend->name());
      const int64_t size = segments.back().end;
      const auto transport = MakeCommunicatorTransport(comm, *backend).value();
      const auto optimizer =
          ShardedOptimizer::Create(comm, *backend, *transport, size, segments, config);
      ASSERT_TRUE(optimizer.ok()) << optimizer.status();
      body(**optimizer, *MakeWeights(comm, *backend, *transport, size));
    }
  });
}

UpdateOutcome StepAndWait(ShardedOptimizer& optimizer, const std::vector<float>& gradient,
                          const StepInfo& info, WeightWindows& weights) {
  optimizer.Step(ConstTensorView(gradient.data(), {std::ssize(gradient)}), info, weights);
  return optimizer.AwaitOutcome();
}

// Spec: without bias correction the first step is (1 - b1) / sqrt(1 - b2) = 3.1623 learning rates,
// with it one. From zero weights, so that decay adds nothing.
TEST(ShardedOptimizerTest, FirstStepHasTheKnownLength) {
  const int64_t size = 1000;
  const std::vector<float> gradient = RandomValues(size, 1);
  for (const bool correct : {false, true}) {
    OptimizerConfig config = {.bias_correction = correct, .max_grad_norm = 0};
    const double length = correct ? 1.0 : 0.1 / std::sqrt(0.001);
    WithOptimizer(
        config, {{0, size, true}}, [&](ShardedOptimizer& optimizer, WeightWindows& weights) {
          const UpdateOutcome result = StepAndWait(optimizer, gradient, {0.5, 1.0}, weights);
          EXPECT_EQ(result.clip_factor, 1.0);
          for (int64_t i = 0; i < size; ++i) {
            const double expected = -0.5 * length * (gradient[i] > 0 ? 1 : -1);
            // epsilon shortens the step by epsilon / (sqrt(v) + epsilon); twenty roundings at most
            // besides.
            const double root_v = std::sqrt(0.001) * std::abs(gradient[i]);
            const double bound =
                std::abs(expected) * (config.adam_epsilon / root_v + 20 * kEpsilon);
            EXPECT_NEAR(SpanOf(optimizer.master())[i], expected, bound) << i;
          }
        });
  }
  EXPECT_NEAR(0.1 / std::sqrt(0.001), 3.1623, 5e-5);
}

// The form of the update: that of XLNet's release, TensorFlow's Adam, torch's AdamW.
struct Form {
  bool corrects = false;
  AdamForm adam = AdamForm::kTensorflow;
};
constexpr Form kForms[] = {{false}, {true}, {true, AdamForm::kTorch}};

// What the update at `t` (from 1) multiplies the first moment with, written as its source does.
double Gain(const Form& form, double v, double t, double epsilon) {
  const double first = 1 - std::pow(0.9, t);
  const double second = 1 - std::pow(0.999, t);
  if (!form.corrects) return 1 / (std::sqrt(v) + epsilon);
  if (form.adam == AdamForm::kTensorflow)
    return std::sqrt(second) / first / (std::sqrt(v) + epsilon);
  return 1 / first / (std::sqrt(v / second) + epsilon);
}

// Each step is compared with AdamW in double from the same fp32 state, so errors do not add up. An
// epsilon as large as the moments' roots tells the forms apart.
TEST(ShardedOptimizerTest, FollowsAdamWInDouble) {
  // One of them at three quarters of the learning rate.
  const std::vector<DecaySegment> segments = {
      {0, 300, true}, {300, 700, false}, {700, 900, true}, {900, 1000, true, 0.75}};
  for (const Form& form : kForms) {
    OptimizerConfig config = {.adam_epsilon = 0.01,
                              .weight_decay = 0.1,
                              .bias_correction = form.corrects,
                              .adam_form = form.adam,
                              .max_grad_norm = 2.0};
    WithOptimizer(config, segments, [&](ShardedOptimizer& optimizer, WeightWindows& weights) {
      const std::vector<float> start = RandomValues(1000, 2);
      std::copy(start.begin(), start.end(), SpanOf(optimizer.master()).begin());
      for (int64_t step = 0; step < 6; ++step) {
        const std::vector<float> old_w = CopyOf(optimizer.master());
        const std::vector<float> old_m = CopyOf(optimizer.first_moment());
        const std::vector<float> old_v = CopyOf(optimizer.second_moment());
        const std::vector<float> gradient = RandomValues(1000, 10 + step);
        const StepInfo info{0.01 * (1 + step), 0.25};
        const UpdateOutcome result = StepAndWait(optimizer, gradient, info, weights);

        double squares = 0;
        for (const float g : gradient) squares += static_cast<double>(g) * g;
        const double norm = 0.25 * std::sqrt(squares);
        EXPECT_NEAR(result.grad_norm, norm, norm * 1000 * 0x1p-53);
        const double clip = 2.0 / std::max(norm, 2.0);
        EXPECT_LT(clip, 1.0);
        EXPECT_NEAR(result.clip_factor, clip, clip * 1000 * 0x1p-53);
        for (int64_t i = 0; i < 1000; ++i) {
          const double g = clip * 0.25 * gradient[i];
          const double m = 0.9 * old_m[i] + 0.1 * g;
          const double v = 0.999 * old_v[i] + 0.001 * g * g;
          const double t = static_cast<double>(step + 1);
          const double decay = i >= 300 && i < 700 ? 0.0 : 0.1;
          const double m_gain = Gain(form, v, t, config.adam_epsilon);
          const double adam = m * m_gain;
          // Roundings in fp32, constants included: g 2, its term in m 3 more, in v 2 * 2 + 4; the
          // root halves v's. m's error is relative to its terms, since they may cancel.
          const double m_error = 6 * kEpsilon * (std::abs(0.9 * old_m[i]) + std::abs(0.1 * g));
          EXPECT_NEAR(SpanOf(optimizer.first_moment())[i], m, m_error);
          EXPECT_NEAR(SpanOf(optimizer.second_moment())[i], v, 9 * kEpsilon * v);
          const double update_error = m_error * m_gain + 12 * kEpsilon * std::abs(adam) +
                                      4 * kEpsilon * decay * std::abs(old_w[i]);
          const double rate = (i < 900 ? 1.0 : 0.75) * info.learning_rate;
          const double w = old_w[i] - rate * (adam + decay * old_w[i]);
          EXPECT_NEAR(SpanOf(optimizer.master())[i], w,
                      rate * update_error + kEpsilon * (std::abs(w) + std::abs(old_w[i])));
        }
      }
    });
  }
}

TEST(ShardedOptimizerTest, ComputeWeightsAreTheRoundedMasterWeights) {
  testing::RunThreadRanks(3, [](Communicator& comm) {
    const auto backend = kernels::MakeReferenceBackend();
    const auto transport = MakeCommunicatorTransport(comm, *backend).value();
    const int64_t size = 2 * Partition::kBlockElements + 9;
    const auto optimizer = PlainOptimizer(comm, *backend, *transport, size);
    const Range owned = optimizer->owned();
    const std::vector<float> all = RandomValues(size, 3);
    std::copy_n(all.begin() + owned.begin, owned.size(), SpanOf(optimizer->master()).begin());
    const auto made = MakeWeights(comm, *backend, *transport, size, DType::kBFloat16);
    const BFloat16* const weights = made->whole().data<BFloat16>();
    made->Set(optimizer->master());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(weights[i].bits, BFloat16(all[i]).bits) << i;

    const std::vector<float> gradient(all.begin() + owned.begin, all.begin() + owned.end);
    EXPECT_FALSE(StepAndWait(*optimizer, gradient, {0.1, 1.0}, *made).skipped);
    const std::vector<float> master =
        GatherState(comm, optimizer->partition(), SpanOf(optimizer->master()));
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(weights[i].bits, BFloat16(master[i]).bits) << i;
  });
}

// No targets at all, 1 / 0. Gradients that are not finite: device_steps_test.cc.
TEST(ShardedOptimizerTest, AStepWithoutTargetsIsSkippedEverywhere) {
  testing::RunThreadRanks(3, [](Communicator& comm) {
    const auto backend = kernels::MakeReferenceBackend();
    const auto transport = MakeCommunicatorTransport(comm, *backend).value();
    const int64_t size = 3 * Partition::kBlockElements;
    const auto optimizer = PlainOptimizer(comm, *backend, *transport, size);
    std::fill(SpanOf(optimizer->master()).begin(), SpanOf(optimizer->master()).end(), 1.0f);
    const auto made = MakeWeights(comm, *backend, *transport, size);
    const absl::Span<float> weights = SpanOf(made->whole());
    const std::vector<float> gradient(optimizer->owned().size(), 0.5f);
    made->Set(optimizer->master());
    const double no_targets = std::numeric_limits<double>::infinity();
    EXPECT_TRUE(StepAndWait(*optimizer, gradient, {0.1, no_targets}, *made).skipped);
    EXPECT_EQ(std::set<float>(weights.begin(), weights.end()), std::set<float>{1.0f});
    EXPECT_FALSE(StepAndWait(*optimizer, gradient, {0.1, 1.0}, *made).skipped);
    EXPECT_NE(weights[0], 1.0f);
  });
}

// Each update is compared with the formula in double from the same fp32 state, through the warm-up
// of the decay and beyond; every third step is skipped. Roundings in fp32: d and 1 - d one each, a
// product each, their sum.
TEST(ShardedOptimizerTest, TheAverageFollowsItsFormulaAndLeavesSkippedStepsOut) {
  OptimizerConfig config;
  config.ema_decay = 0.5;  // (1 + k) / (10 + k) from k = 8 on
  WithOptimizer(config, {{0, 700, true}, {700, 1000, false}},
                [&](ShardedOptimizer& optimizer, WeightWindows& weights) {
                  const std::vector<float> start = RandomValues(1000, 3);
                  std::copy(start.begin(), start.end(), SpanOf(optimizer.master()).begin());
                  optimizer.StartAverage();
                  EXPECT_EQ(CopyOf(optimizer.average()), start);
                  int updates = 0;
                  for (int64_t step = 0; step < 18; ++step) {
                    const std::vector<float> before = CopyOf(optimizer.average());
                    StepInfo info{0.1, 1.0};
                    info.skip_update = step % 3 == 2;
                    if (step % 6 == 5) info = {0.1, std::numeric_limits<double>::infinity()};
                    const UpdateOutcome outcome =
                        StepAndWait(optimizer, RandomValues(1000, 40 + step), info, weights);
                    EXPECT_EQ(outcome.skipped, step % 3 == 2);
                    optimizer.AwaitOutcome();  // asking twice is no second update
                    if (outcome.skipped) {
                      EXPECT_EQ(CopyOf(optimizer.average()), before);
                      continue;
                    }
                    const double k = ++updates;
                    const double d = std::min(0.5, (1 + k) / (10 + k));
                    for (int64_t i = 0; i < 1000; ++i) {
                      const double old_part = d * before[i];
                      const double new_part = (1 - d) * SpanOf(optimizer.master())[i];
                      EXPECT_NEAR(SpanOf(optimizer.average())[i], old_part + new_part,
                                  3 * kEpsilon * (std::abs(old_part) + std::abs(new_part)))
                          << "step " << step << ", element " << i;
                    }
                  }
                  EXPECT_EQ(updates, 12);
                  // What was gathered goes back to the weights' bits.
                  const std::vector<float> before = CopyOf(weights.whole());
                  weights.Set(optimizer.average());
                  EXPECT_EQ(CopyOf(weights.whole()), CopyOf(optimizer.average()));
                  weights.Set(optimizer.master());
                  EXPECT_EQ(CopyOf(weights.whole()), before);
                });
}

// More than the average is updated in at once.
TEST(ShardedOptimizerTest, AnAverageOfSeveralPiecesIsUpdatedWhole) {
  testing::RunThreadRanks(1, [](Communicator& comm) {
    const auto backend = kernels::MakeCpuBackend({}).value();
    const auto transport = MakeCommunicatorTransport(comm, *backend).value();
    const int64_t size = (int64_t{4} << 20) + 17;
    OptimizerConfig config;
    config.ema_decay = 0.9;
    const auto optimizer = PlainOptimizer(comm, *backend, *transport, size, config);
    std::fill(SpanOf(optimizer->master()).begin(), SpanOf(optimizer->master()).end(), 1.0f);
    StepAndWait(*optimizer, std::vector<float>(size, 0.5f), {0.25, 1.0},
                *MakeWeights(comm, *backend, *transport, size));
    // From zeros.
    const float expected = static_cast<float>(1.0 - 2.0 / 11) * SpanOf(optimizer->master())[0];
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(SpanOf(optimizer->average())[i], expected) << i;
  });
}

TEST(ShardedOptimizerTest, RefusesABrokenConfig) {
  testing::RunThreadRanks(1, [](Communicator& comm) {
    const auto backend = kernels::MakeReferenceBackend();
    const auto transport = MakeCommunicatorTransport(comm, *backend).value();
    OptimizerConfig config;
    config.adam_beta2 = 1.0;
    EXPECT_EQ(ShardedOptimizer::Create(comm, *backend, *transport, 4, {{0, 4, true}}, config)
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
  });
}

TEST(ShardedOptimizerDeathTest, SegmentsCoverTheParametersWithoutGaps) {
  const auto create = [](const std::vector<DecaySegment>& segments) {
    testing::RunThreadRanks(1, [&](Communicator& comm) {
      const auto backend = kernels::MakeReferenceBackend();
      const auto transport = MakeCommunicatorTransport(comm, *backend).value();
      (void)ShardedOptimizer::Create(comm, *backend, *transport, 10, segments, OptimizerConfig());
    });
  };
  EXPECT_DEATH(create({{0, 4, true}, {5, 10, true}}), "decay segment \\[5, 10\\) after 4");
  EXPECT_DEATH(create({{0, 9, true}}), "decay segments end at 9 of 10");
}

}  // namespace
}  // namespace anyorder::dist
