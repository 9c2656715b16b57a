// What a plan says of a step is what a run's steps do: its operations and messages are counted.

#include "core/train/plan/planned_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "absl/strings/str_split.h"

#include "core/train/plan/memory_plan.h"
#include "core/train/plan/run_cost.h"
#include "core/train/run/config_file.h"
#include "kernels/operation_cost.h"
#include "tests/core/train/trainer_fixture.h"
#include "tests/testing/forwarding_backend.h"

namespace anyorder {
namespace {

// Of a rank.
struct Counts {
  kernels::OperationCost cost;
  int64_t sent_bytes = 0;
};
struct CountedRank {
  dist::Communicator* communicator = nullptr;
  int64_t taken_bytes = 0;
  Counts counts;
  std::vector<Counts> marks;  // before the loss of each microbatch
};

class CountedBackend final : public testing::ForwardingBackend {
 public:
  CountedBackend(BackendPtr inner, CountedRank* rank)
      : ForwardingBackend(std::move(inner)), rank_(*rank) {}
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override {
    rank_.taken_bytes += bytes;
    return ForwardingBackend::Allocate(bytes);
  }

 private:
  void Enqueue(const kernels::Operation& operation, StreamView stream) override {
    Counts& counts = rank_.counts;
    if (std::holds_alternative<const kernels::LinearCrossEntropyArgs*>(operation)) {
      counts.sent_bytes = rank_.communicator->bytes_sent();
      rank_.marks.push_back(counts);
    }
    counts.cost += kernels::CostOf(operation);
    ForwardingBackend::Enqueue(operation, stream);
  }
  CountedRank& rank_;
};

class PlannedRankTest : public TrainerTest {
 protected:
  PlannedRankTest() {
    min_slice_elements_ = dist::kMinSliceElements;
    make_backend_ = [] { return kernels::MakeCpuBackend({}); };
    config_.train.steps = 3;
  }

  std::vector<CountedRank> Count(int ranks) {
    std::vector<CountedRank> all(ranks);
    began_ = [&](dist::Communicator& communicator) {
      all[communicator.rank()].communicator = &communicator;
    };
    wrap_ = [&](BackendPtr backend, int rank) -> BackendPtr {
      return std::make_unique<CountedBackend>(std::move(backend), &all[rank]);
    };
    for (const absl::Status& end : TrainAnew(ranks)) EXPECT_TRUE(end.ok()) << end;
    return all;
  }
};

// From the first loss of the second step to that of the third.
TEST_F(PlannedRankTest, AStepAndASetUpAreThoseOfARun) {
  const std::string with_each[] = {"",
                                   "train.recompute=elementwise",
                                   "train.recompute=layer",
                                   "dist.leaves_per_exchange=1",
                                   "dist.shard_weights=all dist.leaves_per_exchange=1",
                                   "optimizer.ema_decay=0.5 dist.replica_check_interval=0",
                                   "model.mem_len=40 model.dtype=bf16"};
  const RunConfig plain = config_;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const std::string& settings : with_each) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks ", settings));
      config_ = plain;
      for (const auto setting : absl::StrSplit(settings, ' ', absl::SkipEmpty()))
        ASSERT_TRUE(ApplyOverride(setting, config_).ok());
      const std::vector<CountedRank> counted = Count(ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(absl::StrCat("rank ", rank));
        const auto planned =
            PlannedRank::Create(config_, kVocabulary, {.ranks = ranks}, rank).value();
        int64_t taken = 0;
        for (const auto& allocation : planned->backend().allocations())
          if (allocation.place == MemoryPlace::kDevice) taken += allocation.bytes;
        EXPECT_EQ(taken, counted[rank].taken_bytes);
        const PlannedStep step = planned->Step();
        const size_t leaves = LanesOf(ranks, rank).size();
        ASSERT_EQ(counted[rank].marks.size(), 3 * leaves);
        const Counts &before = counted[rank].marks[leaves],
                     &after = counted[rank].marks[2 * leaves];
        const kernels::OperationCost counted_cost = after.cost - before.cost;
        EXPECT_EQ(step.cost.flops, counted_cost.flops);
        EXPECT_EQ(step.cost.bytes, counted_cost.bytes);
        EXPECT_EQ(step.cost.flat_bytes, counted_cost.flat_bytes);
        EXPECT_EQ(step.sent.node, static_cast<double>(after.sent_bytes - before.sent_bytes));
        EXPECT_EQ(step.sent.net, 0);
      }
    }
  }
}

// A tenth more of everything takes a tenth longer; messages that hide behind the computation take
// nothing.
TEST_F(PlannedRankTest, StepsTakeWhatTheirPartsTake) {
  config_.dist.leaves_per_exchange = 1;
  Cluster cluster{.ranks = 4, .ranks_per_node = 2, .device = {.is_gpu = true}};
  cluster.device.flops_per_second = 1e9;
  cluster.device.bytes_per_second = 1e9;
  const StepCost alone = PlanStep(config_, kVocabulary, cluster).value();
  EXPECT_EQ(alone.exposed_seconds, 0);
  EXPECT_GE(alone.step.seconds, alone.step.cost.flops / 1e9 + alone.step.update_bytes / 1e9);
  EXPECT_GT(alone.step.sent.net, 0);
  cluster.node_bytes_per_second = cluster.net_bytes_per_second = 1e6;
  const StepCost slow = PlanStep(config_, kVocabulary, cluster).value();
  const double wire = std::max(slow.step.sent.node, slow.step.sent.net) / 1e6;
  EXPECT_GT(slow.exposed_seconds, 0);
  EXPECT_LT(slow.step.seconds, alone.step.seconds + 2 * wire);
  EXPECT_GE(slow.step.seconds, wire);
  cluster.node_bytes_per_second = cluster.net_bytes_per_second = 1e10;
  const StepCost quick = PlanStep(config_, kVocabulary, cluster).value();
  EXPECT_LT(quick.exposed_seconds, 0.05 * alone.step.seconds);
}

// Every other network, with heads that read other rows.
TEST_F(PlannedRankTest, EveryConfigurationIsPlanned) {
  const char* const source = std::getenv("ANYORDER_SOURCE");
  const std::string configs = absl::StrCat(source != nullptr ? source : ".", "/configs");
  for (const auto& entry : fs::recursive_directory_iterator(configs)) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path().string());
    RunConfig base = RunConfig::ForNewRun();
    base.data.shards = "-";
    const RunConfig config = LoadRunConfig(entry.path().string(), {}, base).value();
    Cluster cluster{.ranks = 2, .device = {.flops_per_second = 1e12}};
    EXPECT_GT(PlanMemory(config, 300'000, cluster).value().device(), 0);
    cluster.device.is_gpu = true;
    EXPECT_GT(PlanStep(config, 300'000, cluster).value().step.seconds, 0);
    EXPECT_GT(NeededFlops(config, 300'000).value(), 0);
  }
}

// Daly's own example is that of a small cost: the root of 2 * cost * mean, less the cost.
TEST(BestIntervalTest, IsYoungsWhereSavesAreQuick) {
  EXPECT_NEAR(BestInterval(1, 20'000), std::sqrt(2 * 20'000.0), 1);
  EXPECT_EQ(BestInterval(300, 100), 100);
  EXPECT_GT(BestInterval(60, 3600), 0);
}

}  // namespace
}  // namespace anyorder
