// Whole runs, evaluations and what errors do, in memory that is not the host's
// (tests/testing/fenced_backend.h): the same bits as without.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/train/plan/memory_plan.h"
#include "core/train/run/config_file.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/core/train/trainer_fixture.h"
#include "tests/emulated_gpu/runtime.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/with_keys.h"

namespace anyorder {

namespace {

using ::testing::HasSubstr;

class DeviceMemoryRunsTest : public TrainerTest {
 protected:
  DeviceMemoryRunsTest() {
    config_.train.steps = 6;
    testing::SetKeys("num_layers = 2, dropout = 0.125, attention_dropout = 0.125", config_.model);
  }

  void RemoveRuns() const {
    fs::remove_all(root_ + "/plain");
    fs::remove_all(root_ + "/fenced");
  }
  // A run of its own, host memory or not.
  std::vector<absl::Status> Run(bool is_fenced, int ranks, std::optional<Fault> fault = {}) {
    is_fenced_ = is_fenced;
    run_name_ = is_fenced ? "fenced" : "plain";
    return Train(ranks, fault);
  }
  // The same run twice, and all that it wrote that does not depend on time.
  void ExpectSameRun(int ranks, std::optional<Fault> fault = {}) {
    ExpectAllOk(Run(false, ranks, fault));
    const std::string digest = Digest(ranks, 6);
    const std::vector<std::string> plain = MetricsLines(ranks);
    ExpectAllOk(Run(true, ranks, fault));
    EXPECT_EQ(Digest(ranks, 6), digest);
    EXPECT_EQ(MetricsLines(ranks), plain);
  }
};

// Memory in rings whose states wrap (C = 56: they begin at slots 0, 16, 32, 48, 8), saved there,
// loaded by ranks that hold other lanes, and gone on with from slot 0.
TEST_F(DeviceMemoryRunsTest, MemoryIsSavedAndLoadedWhereverItsRingsStand) {
  config_.model.mem_len = 40;
  ExpectAllOk(Run(false, 1));
  const std::string end = Digest(1, 6);
  for (const bool is_fenced : {false, true}) {
    for (const int64_t stop : {2, 3, 4, 5}) {
      fs::remove_all(root_ + (is_fenced ? "/fenced" : "/plain"));
      Run(is_fenced, 1, Fault{Poison::kNone, 0, stop, /*stop=*/true});
      EXPECT_TRUE(fs::exists(ckpt::CheckpointPath(RunDir(1), stop)));
      ExpectAllOk(Run(is_fenced, 3));
      EXPECT_EQ(Digest(3, 6), end) << "stopped after step " << stop;
    }
  }
}

TEST_F(DeviceMemoryRunsTest, PermutationLanguageModelInBf16) {
  config_.objective.name = "permutation_lm";
  config_.model.dtype = ComputeType::kBFloat16;
  testing::SetKeys(
      "seq_len = 32, reuse_len = 16, num_predict = 10, perm_size = 16, bidirectional = true",
      config_.sampling);
  ExpectSameRun(2);
}

// Gradient, loss, and memory, whose lane restarts.
TEST_F(DeviceMemoryRunsTest, ValuesThatAreNotFiniteAreFoundWhereTheyCameFrom) {
  for (const Poison poison : {Poison::kGradient, Poison::kLoss, Poison::kStates}) {
    RemoveRuns();
    ExpectSameRun(2, Fault{poison, 1, 3});
    const std::string fenced = Events<ledger::Skipped>(2).at(0).detail;
    run_name_ = "plain";
    EXPECT_EQ(Events<ledger::Skipped>(2).at(0).detail, fenced);
    EXPECT_THAT(fenced, HasSubstr("rank 1"));
  }
}

TEST_F(DeviceMemoryRunsTest, FlippedBitOfTheWeightsIsFound) {
  const std::vector<absl::Status> plain = Run(false, 2, Fault{Poison::kWeights, 1, 4});
  const std::vector<absl::Status> fenced = Run(true, 2, Fault{Poison::kWeights, 1, 4});
  EXPECT_EQ(fenced, plain);
  EXPECT_THAT(fenced[0], Says("rank 1 on thread1: 1 of "));
}

// Also where a rank's part of the adapters begins and ends within one.
TEST_F(DeviceMemoryRunsTest, AdaptersAreTrainedBesideWeightsThatStay) {
  run_name_ = "other";
  ExpectAllOk(Train(1));
  const auto base = OpenCheckpoint(1, 6).value();
  config_.train.init_from = RunDir(1);
  config_.train.steps = 6;
  config_.lora.rank = 3;
  config_.lora.tensors = "mask_emb";
  config_.optimizer.weight_decay = 0;
  EvaluateHeldOut();
  for (const int ranks : {1, 3}) {
    RemoveRuns();
    ExpectSameRun(ranks);
  }
  const auto checkpoint = OpenCheckpoint(3, 6).value();
  const auto before = WeightReader::Open(base, WeightChoice::kRaw).value();
  const auto merged = WeightReader::Open(checkpoint, WeightChoice::kRaw).value();
  const ParameterLayout trained(config_.TrainedModel(), kVocabulary);
  for (const ParameterInfo& info : before.parameters()) {
    std::vector<float> old(static_cast<size_t>(info.shape.num_elements())), now(old.size());
    ASSERT_TRUE(before.Read(info.offset, info.end(), old.data()).ok());
    ASSERT_TRUE(merged.Read(info.offset, info.end(), now.data()).ok());
    const std::string adapter = std::string(absl::StripSuffix(info.name, ".weight")) + kAdapterA;
    // Causal text has no queries: mask_emb has no gradient, and weight decay is off.
    EXPECT_EQ(now == old, !trained.Contains(adapter)) << info.name;
  }
}

// As `anyorder eval` does it.
TEST_F(DeviceMemoryRunsTest, SavedWeightsAreEvaluatedAlike) {
  EvaluateHeldOut();
  ExpectAllOk(Run(false, 1));
  const EvaluatorOptions options{.lanes = 4, .batches = 3};
  const BackendPtr plain = *kernels::MakeCpuBackend({1});
  testing::FencedBackend fenced(*kernels::MakeCpuBackend({1}));
  const double loss = HeldOutLoss(*plain, WeightChoice::kAverage, options);
  EXPECT_GT(loss, 1.0);
  EXPECT_EQ(HeldOutLoss(fenced, WeightChoice::kAverage, options), loss);
}

// Lets nobody reserve: operations find out in a step.
class Unreserved final : public testing::ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  absl::Status Reserve(const kernels::OperationSizes&) override { return absl::OkStatus(); }
};

class DeviceShortageTest : public TrainerTest {
 protected:
  DeviceShortageTest() {
    testing::SetKeys("steps = 2, global_batch_size = 2, micro_batch_size = 2, seq_len = 32",
                     config_.train, config_.sampling);
  }
  absl::Status TrainWith(int64_t memory_bytes, bool reserves = true, int64_t taken = 0) {
    std::unique_ptr<kernels::Buffer> others;
    make_backend_ = [&, memory_bytes, reserves, taken]() -> absl::StatusOr<BackendPtr> {
      ASSIGN_OR_RETURN(BackendPtr backend,
                       kernels::cuda::MakeCudaBackend(
                           kernels::cuda::emulation::MakeEmulatedRuntime({{}, memory_bytes}), {}));
      if (taken > 0) others = backend->Allocate(taken).value();
      if (!reserves) backend = std::make_unique<Unreserved>(std::move(backend));
      return backend;
    };
    return TrainAnew(1)[0];
  }
  MemoryPlan Plan() const {
    const Cluster cluster{.device = {.is_gpu = true, .library_workspace_bytes = 0}};
    return PlanMemory(config_, kVocabulary, cluster).value();
  }
  int64_t PlannedMemory() const { return static_cast<int64_t>(Plan().device()); }
};

// With every setting of less memory, and an evaluation, with and without a network of its own.
TEST_F(DeviceShortageTest, ARunTrainsInExactlyTheMemoryThatIsPlanned) {
  EvaluateHeldOut();
  config_.eval.every = 1;
  for (const char* settings :
       {"", "train.recompute=elementwise", "train.recompute=layer", "checkpoint.staged_copies=1",
        "optimizer.state=host dist.partials=host", "eval.batch_size=3", "model.dtype=bf16",
        "optimizer.ema_decay=0.5"}) {
    SCOPED_TRACE(settings);
    const RunConfig before = config_;
    for (const auto setting : absl::StrSplit(settings, ' ', absl::SkipEmpty()))
      ASSERT_TRUE(ApplyOverride(setting, config_).ok());
    const int64_t planned = PlannedMemory();
    EXPECT_TRUE(TrainWith(planned).ok());
    const absl::Status status = TrainWith(planned - 1);
    EXPECT_EQ(ExitStatusFor(status), kExitIo);
    EXPECT_THAT(status, Says("each of a machine's ranks (1) needs at least ", "1 GPU of "));
    config_ = before;
  }
}

// What others have taken of it meanwhile only the allocations find.
TEST_F(DeviceShortageTest, MemoryThatOthersTookIsMissingInSetUp) {
  EXPECT_THAT(TrainWith(PlannedMemory(), true, /*taken=*/1000),
              Says("bytes on emulated GPU: ", " are free"));
}

using DeviceShortageDeathTest = DeviceShortageTest;

// Where something was not foreseen: one line, the same exit status, and no checkpoint of the step.
TEST_F(DeviceShortageDeathTest, AShortageInAStepEndsTheRankAndSavesNothing) {
  config_.checkpoint.every = 1;
  const MemoryPlan plan = Plan();
  const auto scratch = static_cast<int64_t>(plan.kinds.at(plan.kinds.size() - 2).device);
  EXPECT_EXIT((void)TrainWith(PlannedMemory(), false, scratch), ::testing::ExitedWithCode(kExitIo),
              "allocate [0-9]+ bytes on emulated GPU: [0-9]+ of its [0-9]+ are free; use a smaller "
              "train.micro_batch_size");
  EXPECT_FALSE(fs::exists(ckpt::CheckpointPath(RunDir(1), 1)));
}

}  // namespace

}  // namespace anyorder
