#include "core/train/plan/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>

#include "core/network/tensors/parameters.h"
#include "core/train/plan/fitting_settings.h"
#include "core/train/run/config_file.h"
#include "core/train/run/run_config.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/with_keys.h"

namespace anyorder {
namespace {

constexpr int64_t kNumPieces = 300;
constexpr int64_t kGiB = int64_t{1} << 30;

// That of tests/launcher/tiny.toml.
RunConfig Tiny() {
  RunConfig config;
  testing::SetKeys(
      "num_layers = 2, model_dim = 64, num_heads = 2, head_dim = 32, ffn_dim = 256, mem_len = 48, "
      "seq_len = 64, reuse_len = 32, num_predict = 10, perm_size = 32, global_batch_size = 8, "
      "micro_batch_size = 1",
      config.model, config.sampling, config.train);
  config.data.shards = "shards";
  config.Resolve();
  return config;
}

MemoryPlan Plan(const RunConfig& config, int64_t ranks = 1, bool is_gpu = true) {
  const absl::StatusOr<MemoryPlan> plan =
      PlanMemory(config, kNumPieces, {.ranks = ranks, .device = {.is_gpu = is_gpu}});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *plan;
}

double BytesOf(const char* kind, const MemoryPlan& plan) {
  for (const MemoryPlan::Kind& of : plan.kinds)
    if (of.name == kind) return of.device + of.host;
  return 0;
}

TEST(MemoryPlanTest, ACheckpointHasTheBytesThatItsFileHas) {
  EXPECT_EQ(Plan(Tiny()).checkpoint_bytes, 1730832);  // ckpt/PROTOCOL.md, "Space"
}

TEST(MemoryPlanTest, KindsAreWhatTheyAreMadeOf) {
  RunConfig config = Tiny();
  config.eval.every = 10;
  const auto parameters =
      static_cast<double>(ParameterLayout(config.model, kNumPieces).num_elements());
  const MemoryPlan one = Plan(config, 1, /*is_gpu=*/false);
  EXPECT_EQ(BytesOf("optimizer", one),
            12 * parameters + sizeof(kernels::NormControl) * 2 + 8 * std::ceil(parameters / 16384));
  EXPECT_GE(BytesOf("weights", one), 4 * parameters);
  EXPECT_GT(BytesOf("evaluation", one), 0);
  EXPECT_EQ(BytesOf("staged checkpoints", one), 2 * one.checkpoint_bytes);
  const MemoryPlan four = Plan(config, 4, /*is_gpu=*/false);
  EXPECT_EQ(BytesOf("recurrence memory", four), BytesOf("recurrence memory", one) / 4);
  EXPECT_EQ(four.checkpoint_bytes, one.checkpoint_bytes);
  config.optimizer.ema_decay = 0.9999;
  EXPECT_EQ(Plan(config).checkpoint_bytes, one.checkpoint_bytes + 4 * parameters);
}

TEST(MemoryPlanTest, ThePlanIsOfTheRankThatNeedsTheMost) {
  for (const int64_t ranks : {2, 3, 4, 6, 8}) {
    for (const char* setting : {"dist.leaves_per_exchange=0", "dist.leaves_per_exchange=1",
                                "dist.shard_weights=all", "dist.shard_weights=node"}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks ", setting));
      RunConfig config = Tiny();
      config.eval.every = 10;
      ASSERT_TRUE(ApplyOverride(setting, config).ok());
      const Cluster cluster{
          .ranks = ranks, .ranks_per_node = ranks % 2 == 0 ? 2 : 0, .device = {.is_gpu = true}};
      double most = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto planned = PlannedRank::Create(config, kNumPieces, cluster, rank);
        ASSERT_TRUE(planned.ok()) << planned.status();
        double bytes = static_cast<double>((*planned)->backend().reserved_bytes());
        for (const auto& taken : (*planned)->backend().allocations())
          if (taken.place == MemoryPlace::kDevice) bytes += static_cast<double>(taken.bytes);
        most = std::max(most, bytes);
      }
      EXPECT_EQ(PlanMemory(config, kNumPieces, cluster).value().device(), most);
    }
  }
}

// Exactly what it has is enough, and a byte less is not; what is advised then is allowed and fits.
TEST(MemoryPlanTest, WhatIsRecommendedIsAllowedAndFits) {
  RunConfig config = Tiny();
  config.model.num_layers = 9;
  config.train.global_batch_size = 64;
  config.train.micro_batch_size = 2;
  Cluster cluster{.ranks = 4, .ranks_per_node = 2, .device = {.is_gpu = true}};
  MachineRoom room{.host_bytes = kGiB, .devices = 2, .ranks = 2};
  room.device_bytes =
      static_cast<int64_t>(PlanMemory(config, kNumPieces, cluster).value().device());
  EXPECT_TRUE(CheckMemory(config, kNumPieces, cluster, room).ok());
  std::vector<std::string> advised;
  for (int64_t bytes = room.device_bytes - 1; bytes > 1 << 20; bytes -= bytes / 8) {
    room.device_bytes = bytes;
    const MemoryAdvice advice = AdviceFor(config, kNumPieces, cluster, room);
    EXPECT_THAT(CheckMemory(config, kNumPieces, cluster, room),
                Fails(absl::IsResourceExhausted, advice.Words()));
    for (const std::vector<std::string>& settings : {advice.settings, advice.batch}) {
      if (settings.empty()) continue;
      RunConfig followed = config;
      ASSERT_TRUE(ApplyOverrides(settings, "advice", followed).ok());
      EXPECT_TRUE(followed.ValidateWorldSize(4).ok());
      EXPECT_TRUE(CheckMemory(followed, kNumPieces, cluster, room).ok());
    }
    if (!advice.settings.empty()) advised.push_back(SettingOptions(advice.settings));
  }
  EXPECT_EQ(advised.front(), "--set train.recompute=elementwise");
  EXPECT_THAT(advised.back(), ::testing::HasSubstr("=host"));
}

TEST(MemoryPlanTest, WhatIsUnknownRefusesNothing) {
  RunConfig config = Tiny();
  config.train.micro_batch_size = config.train.global_batch_size = 4096;
  EXPECT_TRUE(CheckMemory(config, kNumPieces, {}, {.ranks = 1}).ok());
  EXPECT_TRUE(CheckMemory(config, kNumPieces, {}, {.host_bytes = 1}).ok());
  EXPECT_THAT(CheckMemory(config, kNumPieces, {}, {.host_bytes = 1, .ranks = 1}),
              Fails(absl::IsResourceExhausted, "no batch size is small enough"));
}

TEST(MemoryPlanTest, AGpuIsSharedByTheRanksThatItGets) {
  const RunConfig config = Tiny();
  MachineRoom room{.host_bytes = kGiB, .devices = 2, .ranks = 4};
  room.device_bytes = static_cast<int64_t>(2 * Plan(config, 4).device());
  EXPECT_TRUE(CheckMemory(config, kNumPieces, {.ranks = 4}, room).ok());
  room.devices = 1;
  EXPECT_THAT(CheckMemory(config, kNumPieces, {.ranks = 4}, room), Says("and 1 GPU of "));
}

TEST(MemoryPlanTest, SizesBeyondAllNumbersAreToldAndNotComputedFor) {
  RunConfig config = Tiny();
  config.model = {.num_layers = 1 << 16,
                  .model_dim = 1 << 20,
                  .num_heads = 1 << 16,
                  .head_dim = 1 << 12,
                  .ffn_dim = 1 << 22,
                  .mem_len = 1 << 24};
  config.train.global_batch_size = config.train.micro_batch_size = int64_t{1} << 60;
  EXPECT_THAT(CheckMemory(config, kNumPieces, {}, {.host_bytes = kGiB, .ranks = 1}),
              Fails(absl::IsResourceExhausted, "no batch size is small enough"));
  EXPECT_TRUE(Plan(config).is_bound);
  EXPECT_TRUE(std::isfinite(Plan(config).device()));
}

TEST(BatchThatFitsTest, IsTheLargestOfAllowedSizes) {
  RunConfig config = Tiny();
  config.train.global_batch_size = 2048;
  config.train.micro_batch_size = 8;
  const auto up_to = [&](int64_t most, int64_t ranks) {
    return SettingOptions(BatchThatFits(config, ranks, [most](const RunConfig& candidate) {
      return candidate.train.global_batch_size <= most;
    }));
  };
  EXPECT_EQ(up_to(100, 1), "--set train.global_batch_size=64");
  EXPECT_EQ(up_to(20, 4), "--set train.global_batch_size=16 --set train.micro_batch_size=4");
  EXPECT_EQ(up_to(4, 8), "");  // no microbatch for each rank
  config.sampling.bidirectional = true;
  EXPECT_EQ(up_to(1, 1), "");
}

TEST(SettingsThatFitTest, AreTheCheapestThatAreEnoughTogether) {
  RunConfig config = Tiny();
  config.train.global_batch_size = 64;
  const Cluster cluster{.ranks = 4, .ranks_per_node = 2, .device = {.is_gpu = true}};
  const auto words = [&](FitsFunction fits) {
    return SettingOptions(SettingsThatFit(config, cluster, fits));
  };
  // What was tried before is left out where it is not needed.
  EXPECT_EQ(
      words([](const RunConfig& c) { return c.dist.shard_weights == dist::WeightSharding::kAll; }),
      "--set dist.shard_weights=all");
  EXPECT_EQ(words([](const RunConfig& c) {
              return c.dist.leaves_per_exchange > 0 && c.dist.leaves_per_exchange <= 4;
            }),
            "--set dist.leaves_per_exchange=4");
  EXPECT_EQ(words([](const RunConfig& c) {
              return c.train.recompute == Recompute::kLayer &&
                     c.optimizer.state == MemoryPlace::kHost;
            }),
            "--set train.recompute=layer --set optimizer.state=host");
  EXPECT_EQ(words([](const RunConfig&) { return false; }), "");
  config.train.recompute = Recompute::kLayer;
  config.train.recompute_layers = 1;
  EXPECT_EQ(words([](const RunConfig& c) { return c.train.recompute_layers == 0; }),
            "--set train.recompute_layers=0");
}

}  // namespace
}  // namespace anyorder
