#include "core/train/state/memory_need.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <string>

#include "core/network/tensors/activations.h"
#include "core/network/tensors/parameters.h"
#include "core/network/transformer.h"
#include "core/objective/objective.h"
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

// Sets those of the two keys that an advice names.
RunConfig Follow(const std::string& advice, RunConfig config) {
  const auto take = [&advice](const char* key, int64_t& value) {
    std::smatch found;
    if (std::regex_search(advice, found, std::regex(std::string(key) + " = ([0-9]+)")))
      value = std::stoll(found[1]);
  };
  take("train.global_batch_size", config.train.global_batch_size);
  take("train.micro_batch_size", config.train.micro_batch_size);
  return config;
}

TEST(MemoryNeedTest, ACheckpointHasTheBytesThatItsFileHas) {
  EXPECT_EQ(CheckpointBytes(Tiny(), kNumPieces), 1730832);  // ckpt/PROTOCOL.md, "Space"
}

// Few layers are counted, many extrapolated: the sizes are those of the real things.
TEST(MemoryNeedTest, ManyLayersAndLanesNeedWhatTheyAllocate) {
  for (const char* objective : {"permutation_lm", "dae", "causal_lm", "gpt"}) {
    SCOPED_TRACE(objective);
    RunConfig config = Tiny();
    config.objective.name = objective;
    if (config.objective.name == "gpt") {
      config.model.mem_len = 0;
      config.sampling.bidirectional = false;
    }
    config.model.num_layers = 7;
    config.train.micro_batch_size = 8;
    const auto shape = MakeObjective(objective, config.model, config.sampling).value()->Shape(8);
    const auto backend = kernels::MakeCpuBackend({}).value();
    const auto network = Transformer::Create(config.model, kNumPieces, shape, *backend).value();
    const auto parameters = static_cast<double>(network->layout().num_elements());
    const MemoryNeed need = ComputeMemoryNeed(config, kNumPieces, 1);
    EXPECT_EQ(need.state, 16 * parameters);
    EXPECT_EQ(need.gradients, 4 * parameters);  // the only leaf is the sum
    const auto allocated = static_cast<double>(network->activation_bytes());
    EXPECT_LE(need.activations, allocated);
    EXPECT_GT(need.activations, 0.5 * allocated);  // the rest is workspace
  }
}

// With every number of layers that recompute, those that are extrapolated among them.
TEST(MemoryNeedTest, ActivationsAreThoseThatTheNetworkRetains) {
  RunConfig config = Tiny();
  config.model.num_layers = 9;
  const BatchShape shape = MakeObjective(config).value()->Shape(config.train.micro_batch_size);
  for (const Recompute recompute : {Recompute::kElementwise, Recompute::kLayer}) {
    config.train.recompute = recompute;
    for (int64_t layers = 0; layers <= 9; ++layers) {
      config.train.recompute_layers = layers;
      const int64_t bytes =
          Activations::LeastBytes({config.model, shape, kNumPieces, config.train.retention()});
      EXPECT_EQ(ComputeMemoryNeed(config, kNumPieces, 1).activations, static_cast<double>(bytes))
          << EnumName(recompute) << " " << layers;
    }
  }
}

TEST(MemoryNeedTest, RecomputationIsRecommendedWhereItIsEnough) {
  RunConfig config = Tiny();
  config.model.num_layers = 9;
  const double before = ComputeMemoryNeed(config, kNumPieces, 1).on_device();
  RunConfig remade = config;
  remade.train.recompute = Recompute::kLayer;
  const double after = ComputeMemoryNeed(remade, kNumPieces, 1).on_device();
  EXPECT_LT(after, before);
  MachineRoom room{.host_bytes = kGiB, .devices = 1, .ranks = 1};
  room.device_bytes = static_cast<int64_t>(after);
  EXPECT_THAT(CheckMemory(config, kNumPieces, 1, room),
              Fails(absl::IsResourceExhausted, "; set train.recompute = \"layer\""));
  EXPECT_TRUE(CheckMemory(remade, kNumPieces, 1, room).ok());
}

TEST(MemoryNeedTest, AnAverageOfTheWeightsIsFourBytesAParameter) {
  RunConfig config = Tiny();
  const MemoryNeed without = ComputeMemoryNeed(config, kNumPieces, 2);
  const double saved = CheckpointBytes(config, kNumPieces);
  const auto parameters =
      static_cast<double>(ParameterLayout(config.model, kNumPieces).num_elements());
  config.optimizer.ema_decay = 0.9999;
  EXPECT_EQ(CheckpointBytes(config, kNumPieces), saved + 4 * parameters);
  const MemoryNeed with = ComputeMemoryNeed(config, kNumPieces, 2);
  EXPECT_EQ(with.state, without.state + 2 * parameters);  // half of them each
  EXPECT_EQ(with.host, without.host + 4 * parameters);
}

TEST(MemoryNeedTest, RanksShareStateAndLanes) {
  RunConfig config = Tiny();
  const MemoryNeed one = ComputeMemoryNeed(config, kNumPieces, 1);
  const MemoryNeed four = ComputeMemoryNeed(config, kNumPieces, 4);
  EXPECT_EQ(four.host, one.host / 4);
  EXPECT_EQ(four.recurrence, one.recurrence / 4);
  EXPECT_LT(four.state, one.state);
  EXPECT_LT(four.gradients, one.gradients);
}

TEST(MemoryNeedTest, SizesBeyondAllNumbersAreToldAndNotComputedFor) {
  RunConfig config = Tiny();
  config.model = {.num_layers = 1 << 16,
                  .model_dim = 1 << 20,
                  .num_heads = 1 << 16,
                  .head_dim = 1 << 12,
                  .ffn_dim = 1 << 22,
                  .mem_len = 1 << 24};
  config.train.global_batch_size = config.train.micro_batch_size = int64_t{1} << 60;
  EXPECT_THAT(CheckMemory(config, kNumPieces, 1, {.host_bytes = kGiB, .ranks = 1}),
              Fails(absl::IsResourceExhausted, "no batch size is small enough"));
  EXPECT_TRUE(std::isfinite(ComputeMemoryNeed(config, kNumPieces, 1).on_device()));
}

TEST(MemoryNeedTest, WhatIsRecommendedIsAllowedAndFits) {
  RunConfig config = Tiny();
  config.train.global_batch_size = 4096;
  config.train.micro_batch_size = 1024;
  const MachineRoom host{.host_bytes = kGiB / 4, .ranks = 2};
  const absl::Status status = CheckMemory(config, kNumPieces, 2, host);
  ASSERT_THAT(status, Fails(absl::IsResourceExhausted, "; set train.global_batch_size = "));
  const RunConfig followed = Follow(std::string(status.message()), config);
  EXPECT_TRUE(followed.Validate().empty());
  EXPECT_TRUE(followed.ValidateWorldSize(2).ok());
  EXPECT_TRUE(CheckMemory(followed, kNumPieces, 2, host).ok());
  // Unknown memory, and a machine without ranks, refuse nothing.
  EXPECT_TRUE(CheckMemory(config, kNumPieces, 2, {.ranks = 2}).ok());
  EXPECT_TRUE(CheckMemory(config, kNumPieces, 2, {.host_bytes = 1}).ok());
}

TEST(MemoryNeedTest, AGpuIsSharedByTheRanksThatItGets) {
  const RunConfig config = Tiny();
  const MemoryNeed need = ComputeMemoryNeed(config, kNumPieces, 4);
  MachineRoom room{.host_bytes = kGiB, .devices = 2, .ranks = 4};
  room.device_bytes = static_cast<int64_t>(2 * need.on_device()) + 1;
  EXPECT_TRUE(CheckMemory(config, kNumPieces, 4, room).ok());
  room.devices = 1;
  EXPECT_THAT(CheckMemory(config, kNumPieces, 4, room), Says("and 1 GPU of "));
}

TEST(BatchThatFitsTest, IsTheLargestOfAllowedSizes) {
  RunConfig config = Tiny();
  config.train.global_batch_size = 2048;
  config.train.micro_batch_size = 8;
  const auto up_to = [&](int64_t most, int64_t ranks) {
    return BatchThatFits(config, ranks, [most](const RunConfig& candidate) {
      return candidate.train.global_batch_size <= most;
    });
  };
  EXPECT_EQ(up_to(100, 1), "set train.global_batch_size = 64");
  EXPECT_EQ(up_to(20, 4), "set train.global_batch_size = 16 and train.micro_batch_size = 4");
  EXPECT_EQ(up_to(4, 8), "");  // no microbatch for each rank
  config.sampling.bidirectional = true;
  EXPECT_EQ(up_to(1, 1), "");
}

}  // namespace
}  // namespace anyorder
