// Whole runs of the step loop on ranks that are threads, with a fault on one rank: all ranks must
// act alike.

#include "core/train/trainer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ckpt/commit.h"
#include "ckpt/layout.h"
#include "tests/core/train/trainer_fixture.h"
#include "tests/testing/with_keys.h"

namespace anyorder {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// Imports have no moments, or, of earlier versions, zeros.
TEST_F(TrainerTest, ARunOfImportedWeightsStartsWithMomentsOfZero) {
  config_.train.steps = 3;
  const ParameterLayout layout(config_.model, kVocabulary);
  const int64_t elements = layout.num_elements();
  std::vector<float> master(elements), zeros(elements);
  InitializeParameters(layout, config_.model, /*seed=*/5, 0, elements, master.data());
  const TrainMetadata metadata = {
      .world_size = 1,
      .tokenizer_digest = data::Dataset::Open(shards_).value()->index().tokenizer_digest,
      .config_text = config_.ToText()};
  std::vector<ckpt::TensorRange> ranges;
  for (const char* name : {"master", "adam_m", "adam_v"})
    ranges.push_back({name, DType::kFloat32, {elements}, 0, elements, zeros.data()});
  ranges[0].data = master.data();
  std::string end;
  for (const int ranks : {1, 3}) {
    for (const size_t num_tensors : {3, 1}) {
      fs::remove_all(RunDir(ranks));
      fs::create_directories(RunDir(ranks));
      const std::vector<ckpt::TensorRange> saved(ranges.begin(), ranges.begin() + num_tensors);
      ASSERT_EQ(ckpt::SaveDirectly(RunDir(ranks), {"test", 0, 0, 0, 1, 1}, saved,
                                   SerializeMetadata(metadata, layout)),
                absl::OkStatus());
      ExpectAllOk(Train(ranks));
      if (end.empty()) end = Digest(ranks, 3);
      EXPECT_EQ(Digest(ranks, 3), end) << ranks << " ranks, " << num_tensors;
    }
  }
}

// Three starts of a run of five steps: two steps, then one that is not finite, then the rest. The
// checkpoints of steps 2 and 3 hold the same weights and moments; memory went on with the text.
TEST_F(TrainerTest, StepThatIsNotFiniteOnOneRankIsSkippedByAll) {
  config_.train.steps = 5;
  for (const Poison poison : {Poison::kLoss, Poison::kGradient}) {
    const std::string name = poison == Poison::kLoss ? "loss" : "gradient";
    SCOPED_TRACE(name);
    std::string end;
    ForEachRank(1, 3, [&](int ranks, int rank) {
      ExpectAllOk(TrainAnew(ranks, Fault{Poison::kNone, rank, 2, true}));
      ExpectAllOk(Train(ranks, Fault{poison, rank, 1, true}));
      for (const char* tensor : {"master", "adam_m", "adam_v"})
        EXPECT_EQ(Tensor(ranks, 3, tensor), Tensor(ranks, 2, tensor)) << tensor;
      EXPECT_NE(Tensor(ranks, 3, "memory"), Tensor(ranks, 2, "memory"));
      EXPECT_EQ(Saved(ranks, 2)->skipped_steps, 0);
      EXPECT_EQ(Saved(ranks, 3)->skipped_steps, 1);
      ExpectAllOk(Train(ranks));
      EXPECT_EQ(Saved(ranks, 5)->skipped_steps, 1);
      EXPECT_NE(Digest(ranks, 5), Digest(ranks, 3));
      ExpectOneSkippedStep(ranks, 3, 5);
      const ledger::Skipped skipped = Events<ledger::Skipped>(ranks)[0];
      EXPECT_EQ(skipped.reason, "nonfinite");
      EXPECT_EQ(skipped.rank, rank);
      EXPECT_EQ(skipped.lanes, kLanes);
      const int64_t lane = LanesOf(ranks, rank).back();
      EXPECT_EQ(skipped.detail,
                absl::StrCat("rank ", rank, " on thread", rank, ": ", name, " of lane ", lane));
      // Neither whose fault it was nor how many ranks there are makes a difference.
      if (end.empty()) end = Digest(ranks, 5);
      EXPECT_EQ(Digest(ranks, 5), end);
    });
  }
}

TEST_F(TrainerTest, DamagedDataOfOneRankStopsAllRanksWithItsMessage) {
  config_.train.steps = 50;
  const std::string whole = data::ReadFile(shards_ + "/shard-00000.h5");
  ForEachRank(1, 3, [&](int ranks, int rank) {
    data::WriteFile(shards_ + "/shard-00000.h5", whole);
    // Lane i reads from i / lanes of the stream on; a checksum covers 32768 tokens, less than a
    // lane's part.
    DamageToken(kTokens / kLanes * LanesOf(ranks, rank).back() + 40);
    // The others compute layers whose weights this rank has a part of.
    config_.dist.shard_weights =
        rank % 2 == 0 ? dist::WeightSharding::kAll : dist::WeightSharding::kNone;
    ExpectAllEnd(TrainAnew(ranks), kExitData, "shard-00000.h5");
    const std::vector<ledger::Stop> stops = Events<ledger::Stop>(ranks);
    ASSERT_EQ(stops.size(), 1u);
    EXPECT_EQ(stops[0].exit_status, kExitData);
    EXPECT_EQ(stops[0].step, 0);  // at once, not when the run is over
  });
}

// Gives a stop signal, or out of memory, in one of its allocations.
class FaultyAllocation final : public testing::ForwardingBackend {
 public:
  FaultyAllocation(BackendPtr inner, int allocation, bool stops)
      : ForwardingBackend(std::move(inner)), left_(allocation), stops_(stops) {}
  absl::StatusOr<std::unique_ptr<kernels::Buffer>> Allocate(int64_t bytes) override {
    if (left_-- > 0) return ForwardingBackend::Allocate(bytes);
    if (!stops_) return absl::ResourceExhaustedError("no memory left");
    ::kill(::getpid(), SIGUSR1);
    while (StopSignal() == 0) std::this_thread::yield();
    return ForwardingBackend::Allocate(bytes);
  }

 private:
  int left_;
  const bool stops_;
};

TEST_F(TrainerTest, AStopSignalInSetUpEndsAllRanksBeforeTheyTrain) {
  ForEachRank(2, 3, [&](int ranks, int rank) {
    wrap_ = [rank](BackendPtr inner, int mine) -> BackendPtr {
      if (mine != rank) return inner;
      return std::make_unique<FaultyAllocation>(std::move(inner), 3, /*stops=*/true);
    };
    ExpectAllEnd(TrainAnew(ranks), kExitRequeue, "asked to stop in phase");
    EXPECT_TRUE(Metrics(ranks).empty());
    EXPECT_TRUE(Events<ledger::Commit>(ranks).empty());
    ASSERT_EQ(Events<ledger::Stop>(ranks).size(), 1u);
    EXPECT_EQ(Events<ledger::Stop>(ranks)[0].exit_status, kExitRequeue);
  });
  wrap_ = nullptr;
  config_.train.steps = 2;
  ExpectAllOk(Train(3));
}

TEST_F(TrainerTest, AStopSignalInALongFirstStepDoesNotWaitForItsEnd) {
  config_.train.steps = 6;
  first_step_patience_ = absl::ZeroDuration();
  // Rank 0 is asked in its second of four microbatches, and computes no other.
  const Fault stop_in_second{Poison::kNone, 0, 2, true};
  wrap_ = [&](BackendPtr inner, int rank) -> BackendPtr {
    if (rank != 0) return inner;
    return std::make_unique<FaultyBackend>(std::move(inner), stop_in_second, /*microbatches=*/1,
                                           &faulty_rank_calls_);
  };
  ExpectAllEnd(TrainAnew(2), kExitRequeue);
  EXPECT_EQ(faulty_rank_calls_, 2);
  wrap_ = nullptr;
  EXPECT_TRUE(Metrics(2).empty());
  EXPECT_EQ(Events<ledger::Stop>(2).back().exit_status, kExitRequeue);
  // Later steps are finished and saved.
  ExpectAllOk(Train(2, Fault{Poison::kNone, 0, 2, true}));
  EXPECT_EQ(Saved(2, 2)->step, 2);
  EXPECT_EQ(Events<ledger::Stop>(2).back().exit_status, kExitRequeue);
}

TEST_F(TrainerTest, MemoryThatIsMissingBeforeAnyStartHasTrainedEndsTheRun) {
  config_.train.steps = 2;
  wrap_ = [](BackendPtr inner, int rank) {
    return std::make_unique<FaultyAllocation>(std::move(inner), rank == 1 ? 3 : 1'000'000, false);
  };
  const auto last_stop = [&] {
    ExpectAllEnd(Train(2), kExitIo);
    return Events<ledger::Stop>(2).back();
  };
  EXPECT_EQ(last_stop().may_restart, 0);
  EXPECT_THAT(last_stop().detail, HasSubstr("no memory left"));
  // Once it was enough, something else holds the memory now, and may give it back.
  const auto faulty = std::exchange(wrap_, nullptr);
  ExpectAllOk(Train(2));
  wrap_ = faulty;
  EXPECT_EQ(last_stop().may_restart, -1);
}

TEST_F(TrainerTest, SetUpThatIsLongSaysHowFarItIs) {
  config_.train.steps = 2;
  silence_ = absl::ZeroDuration();
  ::testing::internal::CaptureStderr();
  ExpectAllOk(TrainAnew(2, Fault{Poison::kNone, 0, 1, true}));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("set-up of the network: 0 MiB of memory set up, 0"));
  EXPECT_THAT(said, HasSubstr("initialising the weights: "));
  EXPECT_THAT(said, HasSubstr(" parameters, 0"));
  EXPECT_THAT(said, HasSubstr("step 1: 4 of 4 microbatches of the first step, "));
  ::testing::internal::CaptureStderr();
  ExpectAllOk(Train(2));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("loading the checkpoint of step 1: "));
  silence_ = absl::InfiniteDuration();
  ::testing::internal::CaptureStderr();
  ExpectAllOk(TrainAnew(2));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::Not(HasSubstr("initialising the weights")));
}

// A stop in the evaluation after the last step leaves the run unfinished: the next start evaluates,
// and only then it has a best step.
TEST_F(TrainerTest, TheLastEvaluationIsMadeUpForWhenAStopCutsItOff) {
  config_.train.steps = 2;
  config_.checkpoint.every = 1;
  config_.checkpoint.keep_best = true;
  EvaluateHeldOut();
  ExpectAllOk(TrainAnew(1));
  const std::vector<StepMetrics> whole = Metrics(1);
  for (const int ranks : {2, 3}) {
    ExpectAllOk(TrainAnew(ranks, Fault{Poison::kNone, 0, 3, /*stop=*/true}));
    ASSERT_EQ(Metrics(ranks).size(), 2u);
    EXPECT_FALSE(Metrics(ranks)[1].held_out);
    EXPECT_EQ(Events<ledger::Stop>(ranks).back().exit_status, kExitRequeue);
    ExpectAllOk(Train(ranks));
    const std::vector<StepMetrics> after = Metrics(ranks);
    ASSERT_EQ(after.size(), 2u);
    ASSERT_TRUE(after[1].held_out);
    EXPECT_EQ(after[1].held_out->loss, whole[1].held_out->loss);
    EXPECT_EQ(Events<ledger::Stop>(ranks).back().exit_status, kExitDone);
    EXPECT_EQ(Digest(ranks, 2), Digest(1, 2));
  }
}

// Nothing is learned, so that no evaluation is better than the first, after step 2: two more end
// the run, on any number of ranks and however often it is stopped. The first one's checkpoint
// stays.
TEST_F(TrainerTest, EvaluationsThatDoNotImproveFinishTheRunEarly) {
  config_.train.steps = 20;
  config_.optimizer.learning_rate = 1e-30;
  EvaluateHeldOut();
  config_.eval.patience = 2;
  config_.checkpoint.every = 1;
  config_.checkpoint.keep_best = true;
  for (int ranks = 1; ranks <= 4; ++ranks) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks");
    // A fault counts each of the four batches of an evaluation as a step, on a rank that has as
    // many microbatches in both.
    const int rank = ranks == 3 ? 1 : 0;
    const auto stop_in = [&](int64_t batch) {
      Train(ranks, Fault{Poison::kNone, rank, batch, true});
    };
    if (ranks == 2) stop_in(2 + 4 + 2 + 4 + 1);  // step 5
    if (ranks == 3) {
      stop_in(2 + 4 + 2);  // step 4, whose evaluation the next start makes up for
      EXPECT_FALSE(Metrics(ranks)[3].held_out);
      EXPECT_EQ(Saved(ranks, 4)->best_evaluation.last_step, 2);
      stop_in(4 + 1);  // step 5
    }
    // After the evaluation of step 4, of which no checkpoint tells: the run dies of its save.
    if (ranks == 4) {
      stop_in(2 + 4 + 1);  // step 3
      config_.checkpoint.max_failed_saves = 1;
      disk_.Break(ckpt::FaultyCall::kWrite, "rank-", ENOSPC, std::numeric_limits<int>::max());
      EXPECT_FALSE(Train(ranks)[0].ok());
      EXPECT_TRUE(Metrics(ranks)[3].held_out);
      EXPECT_FALSE(OpenCheckpoint(ranks, 4).ok());
      disk_.Heal();
    }
    ExpectAllOk(Train(ranks));
    EXPECT_EQ(Metrics(ranks).size(), 6u);
    for (const StepMetrics& step : Metrics(ranks))
      EXPECT_EQ(step.held_out.has_value(), step.step % 2 == 0) << step.step;
    const ledger::Stop end = Events<ledger::Stop>(ranks).back();
    EXPECT_TRUE(end.is_early());
    EXPECT_EQ(end.exit_status, 0);
    EXPECT_THAT(end.detail, HasSubstr("after step 2 in 2 evaluations"));
    EXPECT_EQ(Digest(ranks, 6), Digest(1, 6));
    EXPECT_EQ(ckpt::StepToKeep(ckpt::ListCheckpoints(RunDir(ranks)).value()), 2);
    EXPECT_EQ(Saved(ranks, 6)->best_evaluation.num_later, 2);
  }
  // Another start has nothing to do, unless more patience is asked for.
  ExpectAllOk(Train(1));
  EXPECT_EQ(Metrics(1).size(), 6u);
  config_.eval.patience = 3;
  ExpectAllOk(Train(1));
  EXPECT_EQ(Metrics(1).size(), 8u);
}

TEST_F(TrainerTest, WeightsOfANodeNeedSeveralRanksOnIt) {
  config_.dist.shard_weights = dist::WeightSharding::kNode;
  nodes_of_ranks_ = {0, 1};
  num_nodes_ = 2;
  ExpectAllEnd(Train(2), kExitUsage, "no node has several ranks", "set it to \"all\" or \"none\"");
}

TEST_F(TrainerTest, TheHostsMemoryIsForDevicesOnly) {
  config_.dist.partials = MemoryPlace::kHost;
  ExpectAllEnd(Train(2), kExitUsage, "but the CPU computes", "set both to \"device\"");
  // A machine that pins little.
  class Unpinned final : public testing::ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    absl::StatusOr<std::unique_ptr<kernels::Buffer>> AllocateStaging(int64_t bytes) override {
      if (bytes > 1000) return absl::ResourceExhaustedError("locked memory (ulimit -l)");
      return ForwardingBackend::AllocateStaging(bytes);
    }
  };
  is_fenced_ = true;
  wrap_ = [](BackendPtr backend, int) { return std::make_unique<Unpinned>(std::move(backend)); };
  const absl::Status unpinned = Train(1)[0];
  EXPECT_EQ(ExitStatusFor(unpinned), kExitIo);
  // And no advice.
  EXPECT_THAT(std::string(unpinned.message()), EndsWith("locked memory (ulimit -l)"));
  config_.train.device = kernels::DeviceChoice::kCpu;
  EXPECT_FALSE(config_.Validate().empty());
}

// They may differ from start to start, as may the number of ranks. The loss of held-out text is
// measured without a trace, too.
TEST_F(TrainerTest, NoSettingOfMemoryTrafficOrEvaluationChangesABit) {
  config_.train.steps = 6;
  config_.checkpoint.every = 1;
  config_.model.num_layers = 4;
  config_.model.dropout = config_.model.attention_dropout = 0.1;
  config_.optimizer.ema_decay = 0.9;
  config_.optimizer.layer_decay = 0.75;
  run_name_ = "plain";
  ExpectAllOk(Train(1));
  const std::string digest = Digest(1, 6);
  const std::vector<StepMetrics> without = Metrics(1);
  EvaluateHeldOut();
  config_.eval.batch_size = 2;  // of three or four ranks some have none of it
  ExpectAllOk(TrainAnew(1));
  EXPECT_EQ(Digest(1, 6), digest);
  const std::vector<std::string> lines = MetricsLines(1);
  const std::vector<StepMetrics> metrics = Metrics(1);
  ASSERT_EQ(metrics.size(), 6u);
  for (size_t i = 0; i < metrics.size(); ++i) {
    EXPECT_EQ(metrics[i].loss, without[i].loss);
    ASSERT_EQ(metrics[i].held_out.has_value(), metrics[i].step % 2 == 0) << metrics[i].step;
    if (!metrics[i].held_out) continue;
    EXPECT_EQ(metrics[i].held_out->targets, 2 * 3 * 16);
    const std::vector<NamedMean>& means = metrics[i].held_out->means;
    ASSERT_EQ(means.size(), 1u);  // causal text has no parts
    EXPECT_EQ(means[0].name, "loss_forward");
    EXPECT_EQ(means[0].value, metrics[i].held_out->loss);
  }
  EXPECT_NE(metrics[1].held_out->loss, metrics[5].held_out->loss);
  std::mt19937_64 random(7);
  std::string settings;
  const auto start = [&](std::optional<Fault> fault) {
    const int ranks = 1 + static_cast<int>(random() % 4);
    config_.dist.shard_weights = static_cast<dist::WeightSharding>(random() % 3);
    config_.dist.leaves_per_exchange = (int64_t{1} << random() % 4) / 2;  // 0, 1, 2, 4
    if (config_.dist.leaves_per_exchange > kLanes / ranks) config_.dist.leaves_per_exchange = 0;
    config_.train.recompute = static_cast<Recompute>(random() % 3);
    config_.train.recompute_layers =
        config_.train.recompute == Recompute::kNone ? 0 : static_cast<int64_t>(random() % 4);
    is_fenced_ = random() % 2 == 0;
    const auto draw_place = [&] {
      return is_fenced_ && random() % 2 == 0 ? MemoryPlace::kHost : MemoryPlace::kDevice;
    };
    config_.optimizer.state = draw_place();
    config_.dist.partials = draw_place();
    nodes_of_ranks_.clear();
    if (ranks > 2 && random() % 2 == 0)
      for (int rank = 0; rank < ranks; ++rank) nodes_of_ranks_.push_back(rank / 2);
    absl::StrAppend(&settings, " ", ranks, " ranks on ", nodes_of_ranks_.size(), " of nodes, ",
                    EnumName(config_.dist.shard_weights), ", ", config_.dist.leaves_per_exchange,
                    ", ", EnumName(config_.train.recompute), " ", config_.train.recompute_layers,
                    is_fenced_ ? ", fenced, " : ", ", EnumName(config_.optimizer.state), " ",
                    EnumName(config_.dist.partials));
    ExpectAllOk(Train(ranks, fault));
  };
  for (int trial = 0; trial < 12; ++trial) {
    run_name_ = absl::StrCat("drawn", trial);
    settings.clear();
    start(Fault{Poison::kNone, 0, 1 + static_cast<int64_t>(random() % 3), true});
    start(std::nullopt);
    EXPECT_EQ(Digest(1, 6), digest) << settings;
    EXPECT_EQ(MetricsLines(1), lines) << settings;
  }
}

TEST_F(TrainerTest, StopSignalEndsAnEvaluationAtOnce) {
  config_.train.steps = 6;
  EvaluateHeldOut();
  config_.eval.batches = 100;
  ForEachRank(1, 3, [&](int ranks, int rank) {
    faulty_rank_calls_ = 0;
    // Two steps, then the signal when the evaluation after them has as many microbatches as a step.
    ExpectAllOk(TrainAnew(ranks, Fault{Poison::kNone, rank, 3, true}));
    const auto trained = static_cast<int64_t>(LanesOf(ranks, rank).size());
    const int64_t evaluated = dist::EvenPart(kLanes, ranks, rank).size();
    const int64_t batches = (trained + evaluated - 1) / evaluated;
    EXPECT_EQ(faulty_rank_calls_, 2 * trained + batches * evaluated);
    EXPECT_EQ(Saved(ranks, 2)->step, 2);
    const std::vector<StepMetrics> metrics = Metrics(ranks);
    ASSERT_EQ(metrics.size(), 2u);
    EXPECT_FALSE(metrics[1].held_out.has_value());
    EXPECT_EQ(Events<ledger::Stop>(ranks).back().exit_status, kExitRequeue);
  });
}

TEST_F(TrainerTest, DamagedHeldOutTextEndsEvaluationsAndNotTheRun) {
  config_.train.steps = 4;
  ExpectAllOk(Train(1));
  const std::string digest = Digest(1, 4);
  EvaluateHeldOut();
  DamageToken(held_out_, held_out_stream_, 30);  // lane 0 of rank 0
  ExpectAllOk(Train(2));
  EXPECT_EQ(Digest(2, 4), digest);
  for (const StepMetrics& metrics : Metrics(2)) EXPECT_FALSE(metrics.held_out.has_value());
}

TEST_F(TrainerTest, HeldOutTextThatDoesNotFitIsRefusedByAllRanks) {
  config_.train.steps = 4;
  EvaluateHeldOut();
  config_.eval.batches = 10'000;
  ExpectAllEnd(Train(2), kExitData, "eval.shards");
  config_.eval.batches = 3;
  WriteText(held_out_, held_out_stream_, 64'000, "another tokenizer");
  ExpectAllEnd(Train(2), kExitData, "anyorder prep --vocab");
}

TEST_F(TrainerTest, FullDiskCostsACheckpointAndNotTheRun) {
  config_.train.steps = 40;
  config_.checkpoint.every = 2;
  disk_.Break(ckpt::FaultyCall::kWrite, "rank-", ENOSPC, 1);
  ExpectAllOk(Train(2));
  EXPECT_EQ(disk_.num_faults(), 1);
  EXPECT_EQ(Saved(2, 40)->step, 40);
}

TEST_F(TrainerTest, TooManyFailedSavesInARowEndTheRunOnAllRanks) {
  config_.train.steps = 1'000'000;
  config_.checkpoint.every = 1;
  config_.checkpoint.max_failed_saves = 2;
  const Fault stop_after_two{Poison::kNone, 0, 2, true};
  ExpectAllOk(Train(3, stop_after_two));
  const std::string before = Digest(3, 2);
  disk_.Break(ckpt::FaultyCall::kWrite, "rank-", ENOSPC, std::numeric_limits<int>::max());
  ExpectAllEnd(Train(3), kExitIo, "max_failed_saves", "launch again");
  EXPECT_EQ(Events<ledger::Stop>(3).back().exit_status, kExitIo);
  EXPECT_EQ(Events<ledger::Stop>(3).back().may_restart, 0);
  EXPECT_EQ(Digest(3, 2), before);

  disk_.Break(ckpt::FaultyCall::kNone, "", 0, 0);
  ExpectAllOk(Train(3, stop_after_two));
  EXPECT_EQ(Events<ledger::Train>(3).back().step, 2);  // where it went on from
  EXPECT_EQ(Saved(3, 4)->step, 4);
}

// A run of two ranks with checkpoints of steps 2 and 4, each file of which has several chunks, and
// copies of it that are damaged and started again.
class DamagedCheckpointTest : public TrainerTest {
 protected:
  void SetUp() override {
    testing::SetKeys("model_dim = 32, head_dim = 32, ffn_dim = 4096", config_.model);
    config_.train.steps = 4;
    ExpectAllOk(Train(2, Fault{Poison::kNone, 0, 2, true}));
    ExpectAllOk(Train(2));
    original_ = RunDir(2);
    digest_ = Digest(2, 4);
  }

  std::string File(int64_t step, int rank) const {
    return ckpt::CheckpointPath(RunDir(2), step) + "/rank-0000" + std::to_string(rank) +
           "-of-00002.safetensors";
  }
  void MakeCopy() {
    run_name_ = "copy";
    fs::remove_all(RunDir(2));
    fs::copy(original_, RunDir(2), fs::copy_options::recursive);
  }

  std::string original_, digest_;
};

// Together the ranks read every chunk, however many they are, and no other rank reads it for them.
TEST_F(DamagedCheckpointTest, DamageThatOneRankReadsSendsAllToTheOlderOne) {
  int num_chunks = 0;
  for (const int file : {0, 1}) {
    const auto bytes = static_cast<int64_t>(fs::file_size(File(4, file)));
    for (int64_t chunk = 0; chunk < bytes; chunk += 1 << 20, ++num_chunks) {
      for (const int ranks : {2, 3}) {
        SCOPED_TRACE(::testing::Message() << ranks << " ranks, file " << file << " at " << chunk);
        MakeCopy();
        data::FlipBit(File(4, file), std::min<int64_t>(chunk + (1 << 20), bytes) - 1);
        const std::string newest = ckpt::CheckpointPath(RunDir(2), 4);
        const int64_t generation = ckpt::Checkpoint::Open(newest)->generation();
        ExpectAllOk(Train(ranks));
        EXPECT_TRUE(fs::exists(ckpt::QuarantineName(newest, generation)));
        EXPECT_EQ(Events<ledger::Train>(ranks).back().step, 2);
        EXPECT_EQ(Digest(ranks, 4), digest_);
        run_name_.clear();
      }
    }
  }
  EXPECT_GE(num_chunks, 4);
}

// Another run's weights, which nobody has read whole before: on any number of ranks.
TEST_F(DamagedCheckpointTest, AWarmStartFromItIsRefusedByAllRanks) {
  config_.train.init_from = original_;
  run_name_ = "warm";
  ExpectAllOk(TrainAnew(3));
  EXPECT_THAT(Events<ledger::Train>(3).back().detail,
              HasSubstr("checkpoints/step-000000004 (run test, step 4, generation "));
  // The last weight, of a parameter that is read last; then what no warm start reads.
  run_name_.clear();
  const ckpt::Checkpoint source = OpenCheckpoint(2, 4).value();
  const std::string file = File(4, 1);
  const auto bytes = static_cast<int64_t>(fs::file_size(file));
  for (const bool is_read : {true, false}) {
    run_name_.clear();
    const int64_t at = is_read ? 4096 : bytes - 1;
    data::FlipBit(file, at);
    run_name_ = "warm";
    const std::vector<absl::Status> ends = TrainAnew(3);
    data::FlipBit(file, at);
    if (!is_read) {
      ExpectAllOk(ends);
      continue;
    }
    ExpectAllEqual(ends);
    EXPECT_THAT(
        ends[0],
        Fails(absl::IsDataLoss, "train.init_from '" + source.directory() + "' is damaged: rank ",
              "rank-00001-of-00002.safetensors", "tensor 'master'", "name another checkpoint"));
  }
}

TEST_F(DamagedCheckpointTest, WithNoneLeftNoRankStarts) {
  MakeCopy();
  data::FlipBit(File(4, 1), 1 << 20);
  fs::remove(File(2, 0));
  const std::vector<absl::Status> ends = Train(3);
  ExpectAllEqual(ends);
  EXPECT_THAT(ends[0], Fails(absl::IsDataLoss, "; the last one tried: rank 0 on thread0: "));
  EXPECT_FALSE(fs::exists(ckpt::CheckpointPath(RunDir(3), 2)));
}

}  // namespace
}  // namespace anyorder
