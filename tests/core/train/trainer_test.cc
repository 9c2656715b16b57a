// Whole runs of the step loop on ranks that are threads, with a fault on one rank: all ranks must act alike.

#include "core/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ckpt/reader.h"
#include "ckpt/service.h"
#include "core/base/status.h"
#include "core/train/ledger.h"
#include "core/train/metrics.h"
#include "core/train/run_directory.h"
#include "core/train/stop_signal.h"
#include "dist/parameter_partition.h"
#include "tests/data/dataset_files.h"
#include "tests/testing/fault_file_system.h"
#include "tests/testing/forwarding_backend.h"
#include "tests/testing/thread_communicator.h"

namespace anyorder {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int64_t kLanes = 8;  // and as many microbatches
constexpr int64_t kTokens = 320'000;
constexpr uint64_t kVocabulary = 100;

enum class Poison { kNone, kLoss, kGradient };

// What happens on one rank in one step of a start.
struct Fault {
  Poison poison = Poison::kNone;
  int rank = 0;
  int64_t step = 1;   // of this start, from 1
  bool stop = false;  // and the rank gets a stop signal
};

// Puts the fault into the step's last microbatch on this rank, so that the earlier ones are as they should be.
class FaultyBackend final : public testing::ForwardingBackend {
 public:
  FaultyBackend(std::unique_ptr<kernels::Backend> inner,
                const Fault& fault,
                int64_t microbatches,
                int64_t* total_calls)
      : ForwardingBackend(std::move(inner)),
        fault_(fault),
        call_(fault.step * microbatches - 1),
        total_calls_(total_calls) {}

  void LinearCrossEntropy(const kernels::LinearCrossEntropyArgs& args, StreamView stream) override {
    ForwardingBackend::LinearCrossEntropy(args, stream);
    ++*total_calls_;
    if (num_calls_++ != call_) return;
    if (fault_.poison == Poison::kLoss)
      args.loss.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
    if (fault_.poison == Poison::kGradient)
      args.dweight.data<float>()[7] = std::numeric_limits<float>::infinity();
    if (fault_.stop) std::raise(SIGUSR1);
  }

 private:
  const Fault fault_;
  const int64_t call_;
  int64_t* const total_calls_;
  int64_t num_calls_ = 0;
};

class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    root_ = (fs::path(::testing::TempDir()) / (std::string("trainer.") + info->name())).string();
    fs::remove_all(root_);
    shards_ = root_ + "/shards";
    fs::create_directories(shards_);
    data::TestDataset dataset;
    dataset.vocab_size = kVocabulary;
    dataset.shard_tokens = kTokens;
    stream_ = data::TestStream::Random(kTokens, kVocabulary, 1);
    dataset.Write(shards_, stream_);

    config_.model.num_layers = 1;
    config_.model.model_dim = 8;
    config_.model.num_heads = 1;
    config_.model.head_dim = 8;
    config_.model.ffn_dim = 16;
    config_.model.mem_len = 8;
    config_.sampling.seq_len = 16;
    config_.sampling.bidirectional = false;
    config_.objective.name = "causal_lm";
    config_.optimizer.learning_rate = 0.01;
    config_.optimizer.warmup_steps = 0;
    config_.checkpoint.every = 0;
    config_.data.shards = shards_;
    config_.train.lanes = kLanes;
    config_.train.microbatch_lanes = 1;
    config_.cpu.threads = 1;
  }
  ~TrainerTest() override { fs::remove_all(root_); }

  std::string RunDir(int ranks) const { return root_ + "/run" + std::to_string(ranks); }

  // One start of the run on `ranks` ranks; what each of them returned.
  std::vector<absl::Status> Train(int ranks, const std::optional<Fault>& fault = std::nullopt) {
    InstallStopSignals();  // and forget the last one
    ckpt::ServiceOptions service_options;
    service_options.run_dir = RunDir(ranks);
    service_options.run_id = "test";
    service_options.incarnation = ++incarnation_;
    service_options.fs = &disk_;
    fs::create_directories(service_options.run_dir);
    auto service = ckpt::Service::Start(service_options);
    if (!service.ok()) return {service.status()};
    std::thread serving([&] { EXPECT_TRUE((*service)->Run().ok()); });
    std::vector<absl::Status> ends(ranks);
    testing::RunThreadRanks(ranks, [&](dist::Communicator& communicator) {
      TrainerOptions options;
      options.run_dir = service_options.run_dir;
      options.run_id = "test";
      options.incarnation = incarnation_;
      if (fault && fault->rank == communicator.rank()) {
        options.make_backend = [&](const kernels::CpuBackendOptions& cpu)
            -> absl::StatusOr<std::unique_ptr<kernels::Backend>> {
          ANYORDER_ASSIGN_OR_RETURN(auto inner, kernels::MakeCpuBackend(cpu));
          return std::make_unique<FaultyBackend>(std::move(inner),
                                                 *fault,
                                                 dist::LeafRange(kLanes, ranks, fault->rank).size(),
                                                 &faulty_rank_calls_);
        };
      }
      auto trainer = Trainer::Create(config_, options, communicator, nullptr);
      ends[communicator.rank()] = trainer.ok() ? (*trainer)->Run().status() : trainer.status();
    });
    (*service)->RequestStop();
    serving.join();
    return ends;
  }

  std::vector<LedgerRecord> Events(int ranks, const std::string& event) const {
    std::vector<LedgerRecord> found;
    const auto records = ReadLedger(RunDirectory(RunDir(ranks)).ledger);
    EXPECT_TRUE(records.ok()) << records.status();
    for (const LedgerRecord& record : *records) {
      if (record.event == event) found.push_back(record);
    }
    return found;
  }
  absl::StatusOr<TrainMetadata> Saved(int ranks, int64_t step) const {
    ANYORDER_ASSIGN_OR_RETURN(const ckpt::Checkpoint checkpoint,
                              ckpt::Checkpoint::Open(ckpt::CheckpointPath(RunDir(ranks), step)));
    return ParseMetadata(checkpoint.metadata_json());
  }
  std::string Digest(int ranks, int64_t step) const {
    const auto checkpoint = ckpt::Checkpoint::Open(ckpt::CheckpointPath(RunDir(ranks), step));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return checkpoint.ok() ? *checkpoint->StateDigest() : "";
  }

  // Of `steps` steps only `step` is skipped, in the metrics and the ledger.
  void ExpectOneSkippedStep(int ranks, int64_t step, size_t steps) const {
    const auto metrics = ReadMetrics(RunDirectory(RunDir(ranks)).metrics);
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    EXPECT_EQ(metrics->size(), steps);
    for (const StepMetrics& one : *metrics)
      EXPECT_EQ(one.skipped, one.step == step) << one.step;
    EXPECT_TRUE(std::isfinite(metrics->back().loss));
    const std::vector<LedgerRecord> skipped = Events(ranks, "skipped");
    ASSERT_EQ(skipped.size(), 1u);
    EXPECT_EQ(skipped[0].step, step);
  }

  // Held-out text of its own, evaluated after every second step: 1 batch fills the memory, 3 are scored.
  void EvaluateHeldOut() {
    held_out_ = root_ + "/held-out";
    fs::create_directories(held_out_);
    data::TestDataset dataset;
    dataset.vocab_size = kVocabulary;
    dataset.shard_tokens = 64'000;
    held_out_stream_ = data::TestStream::Random(40'000, kVocabulary, 2);
    dataset.Write(held_out_, held_out_stream_);
    config_.eval.shards = held_out_;
    config_.eval.every = 2;
    config_.eval.batches = 3;
  }
  std::vector<StepMetrics> Metrics(int ranks) const {
    const auto metrics = ReadMetrics(RunDirectory(RunDir(ranks)).metrics);
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    return metrics.ok() ? *metrics : std::vector<StepMetrics>();
  }

  // Changes one bit of token `position`, in place.
  void DamageToken(int64_t position) const { DamageToken(shards_, stream_, position); }
  static void DamageToken(const std::string& directory,
                          const data::TestStream& stream,
                          int64_t position) {
    const std::string path = directory + "/shard-00000.h5";
    std::string bytes = data::ReadFile(path);
    std::string around;
    for (int64_t i = position; i < position + 16; ++i) {
      around.push_back(static_cast<char>(stream.tokens[i]));
      around.push_back('\0');
    }
    const size_t at = bytes.find(around);
    ASSERT_NE(at, std::string::npos);
    bytes[at] ^= 1;
    data::WriteFile(path, bytes);
  }

  std::string root_, shards_, held_out_;
  data::TestStream stream_, held_out_stream_;
  int64_t faulty_rank_calls_ =
      0;  // loss heads computed by the rank with the fault, over all starts
  RunConfig config_;
  ckpt::FaultFileSystem disk_;
  int64_t incarnation_ = 0;
};

void ExpectAllOk(const std::vector<absl::Status>& ends) {
  for (const absl::Status& end : ends)
    EXPECT_TRUE(end.ok()) << end;
}

void ExpectAllEqual(const std::vector<absl::Status>& ends) {
  for (const absl::Status& end : ends)
    EXPECT_EQ(end, ends[0]);
}

// Three starts of a run of five steps: two steps, then one that is not finite, then the rest. The checkpoints of steps 2 and 3
// hold the same state, because the skipped step changed no weight, no moment and no memory.
TEST_F(TrainerTest, StepThatIsNotFiniteOnOneRankIsSkippedByAll) {
  config_.train.steps = 5;
  for (const Poison poison : {Poison::kLoss, Poison::kGradient}) {
    std::string end;
    for (int ranks = 1; ranks <= 3; ++ranks) {
      for (int rank = 0; rank < ranks; ++rank) {
        SCOPED_TRACE(::testing::Message() << "rank " << rank << " of " << ranks << ", "
                                          << (poison == Poison::kLoss ? "loss" : "gradient"));
        fs::remove_all(RunDir(ranks));
        ExpectAllOk(Train(ranks, Fault{Poison::kNone, rank, 2, true}));
        ExpectAllOk(Train(ranks, Fault{poison, rank, 1, true}));
        EXPECT_EQ(Digest(ranks, 3), Digest(ranks, 2));
        EXPECT_EQ(Saved(ranks, 2)->skipped_steps, 0);
        EXPECT_EQ(Saved(ranks, 3)->skipped_steps, 1);
        ExpectAllOk(Train(ranks));
        EXPECT_EQ(Saved(ranks, 5)->skipped_steps, 1);
        EXPECT_NE(Digest(ranks, 5), Digest(ranks, 3));
        ExpectOneSkippedStep(ranks, 3, 5);
        // Neither whose fault it was nor how many ranks there are makes a difference.
        if (end.empty()) end = Digest(ranks, 5);
        EXPECT_EQ(Digest(ranks, 5), end);
      }
    }
  }
}

TEST_F(TrainerTest, RunGoesOnRightAfterASkippedStep) {
  config_.train.steps = 6;
  ExpectAllOk(Train(2, Fault{Poison::kLoss, 1, 3}));
  EXPECT_EQ(Saved(2, 6)->skipped_steps, 1);
  ExpectOneSkippedStep(2, 3, 6);
}

TEST_F(TrainerTest, DamagedDataOfOneRankStopsAllRanksWithItsMessage) {
  config_.train.steps = 50;
  const std::string whole = data::ReadFile(shards_ + "/shard-00000.h5");
  for (int ranks = 1; ranks <= 3; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, data of rank " << rank);
      fs::remove_all(RunDir(ranks));
      data::WriteFile(shards_ + "/shard-00000.h5", whole);
      // Lane i reads from i / lanes of the stream on; a checksum covers 32768 tokens, less than a lane's part.
      DamageToken(kTokens / kLanes * (dist::LeafRange(kLanes, ranks, rank).end - 1) + 40);
      const std::vector<absl::Status> ends = Train(ranks);
      ExpectAllEqual(ends);
      EXPECT_EQ(ExitStatusFor(ends[0]), kExitData) << ends[0];
      EXPECT_THAT(std::string(ends[0].message()), HasSubstr("shard-00000.h5"));
      const std::vector<LedgerRecord> stops = Events(ranks, "stop");
      ASSERT_EQ(stops.size(), 1u);
      EXPECT_EQ(stops[0].exit_status, kExitData);
      EXPECT_EQ(stops[0].step, 0);  // at once, not when the run is over
    }
  }
}

// With memory, dropout and several ranks: the training ends in the same bits whether and wherever its loss is looked at.
TEST_F(TrainerTest, EvaluationChangesNothingAndIsTheSameOnAnyNumberOfRanks) {
  config_.train.steps = 6;
  config_.model.dropout = 0.1;
  ExpectAllOk(Train(1));
  const std::string digest = Digest(1, 6);
  const std::vector<StepMetrics> without = Metrics(1);
  fs::remove_all(RunDir(1));
  EvaluateHeldOut();
  std::vector<double> losses;
  for (int ranks = 1; ranks <= 3; ++ranks) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks");
    ExpectAllOk(Train(ranks));
    EXPECT_EQ(Digest(ranks, 6), digest);
    const std::vector<StepMetrics> metrics = Metrics(ranks);
    ASSERT_EQ(metrics.size(), 6u);
    for (size_t i = 0; i < metrics.size(); ++i) {
      EXPECT_EQ(metrics[i].loss, without[i].loss);
      ASSERT_EQ(metrics[i].held_out.has_value(), metrics[i].step % 2 == 0) << metrics[i].step;
      if (!metrics[i].held_out) continue;
      EXPECT_EQ(metrics[i].held_out->targets, kLanes * 3 * 16);
      if (ranks == 1) losses.push_back(metrics[i].held_out->loss);
      EXPECT_EQ(metrics[i].held_out->loss, losses[i / 2]);
      EXPECT_EQ(metrics[i].held_out->loss, metrics[i].held_out->loss_forward);
      EXPECT_TRUE(std::isnan(metrics[i].held_out->loss_reuse));  // causal text has no parts
    }
  }
  EXPECT_NE(losses[0], losses[2]);
}

// More ranks than microbatches of held-out text: some ranks have nothing to evaluate.
TEST_F(TrainerTest, EvaluationOfFewLanesLeavesRanksIdle) {
  config_.train.steps = 2;
  EvaluateHeldOut();
  config_.eval.lanes = 2;
  ExpectAllOk(Train(1));
  ExpectAllOk(Train(3));
  EXPECT_EQ(Metrics(3)[1].held_out->loss, Metrics(1)[1].held_out->loss);
  EXPECT_EQ(Metrics(3)[1].held_out->targets, 2 * 3 * 16);
}

TEST_F(TrainerTest, StopSignalEndsAnEvaluationAtOnce) {
  config_.train.steps = 6;
  EvaluateHeldOut();
  config_.eval.batches = 100;
  for (int ranks = 1; ranks <= 3; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(::testing::Message() << "rank " << rank << " of " << ranks);
      fs::remove_all(RunDir(ranks));
      faulty_rank_calls_ = 0;
      // Two steps, then the signal in the first batch of the evaluation after them.
      ExpectAllOk(Train(ranks, Fault{Poison::kNone, rank, 3, true}));
      EXPECT_EQ(faulty_rank_calls_, 3 * dist::LeafRange(kLanes, ranks, rank).size());
      EXPECT_EQ(Saved(ranks, 2)->step, 2);
      const std::vector<StepMetrics> metrics = Metrics(ranks);
      ASSERT_EQ(metrics.size(), 2u);
      EXPECT_FALSE(metrics[1].held_out.has_value());
      EXPECT_EQ(Events(ranks, "stop").back().exit_status, kExitRequeue);
    }
  }
  ExpectAllOk(Train(3));
  EXPECT_EQ(Saved(3, 6)->step, 6);
  EXPECT_EQ(Metrics(3).size(), 6u);
  EXPECT_TRUE(Metrics(3)[3].held_out.has_value());
}

TEST_F(TrainerTest, DamagedHeldOutTextEndsEvaluationsAndNotTheRun) {
  config_.train.steps = 4;
  ExpectAllOk(Train(1));
  const std::string digest = Digest(1, 4);
  EvaluateHeldOut();
  DamageToken(held_out_, held_out_stream_, 30);  // lane 0 of rank 0
  ExpectAllOk(Train(2));
  EXPECT_EQ(Digest(2, 4), digest);
  for (const StepMetrics& metrics : Metrics(2))
    EXPECT_FALSE(metrics.held_out.has_value());
}

TEST_F(TrainerTest, HeldOutTextThatDoesNotFitIsRefusedByAllRanks) {
  config_.train.steps = 4;
  EvaluateHeldOut();
  config_.eval.batches = 10'000;
  std::vector<absl::Status> ends = Train(2);
  ExpectAllEqual(ends);
  EXPECT_EQ(ExitStatusFor(ends[0]), kExitData) << ends[0];
  EXPECT_THAT(std::string(ends[0].message()), HasSubstr("eval.shards"));
  config_.eval.batches = 3;
  data::TestDataset other;
  other.vocab_size = kVocabulary;
  other.shard_tokens = 64'000;
  other.tokenizer = "another tokenizer";
  fs::remove_all(held_out_);
  fs::create_directories(held_out_);
  other.Write(held_out_, held_out_stream_);
  ends = Train(2);
  ExpectAllEqual(ends);
  EXPECT_EQ(ExitStatusFor(ends[0]), kExitData) << ends[0];
  EXPECT_THAT(std::string(ends[0].message()), HasSubstr("anyorder prep --vocab"));
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
  const std::vector<absl::Status> ends = Train(3);
  ExpectAllEqual(ends);
  EXPECT_EQ(ExitStatusFor(ends[0]), kExitIo) << ends[0];
  EXPECT_THAT(std::string(ends[0].message()), HasSubstr("max_failed_saves"));
  EXPECT_THAT(std::string(ends[0].message()), HasSubstr("launch again"));
  EXPECT_EQ(Events(3, "stop").back().exit_status, kExitIo);
  EXPECT_EQ(Events(3, "stop").back().may_restart, 0);
  EXPECT_EQ(Digest(3, 2), before);

  disk_.Break(ckpt::FaultyCall::kNone, "", 0, 0);
  ExpectAllOk(Train(3, stop_after_two));
  EXPECT_EQ(Events(3, "train").back().step, 2);  // where it went on from
  EXPECT_EQ(Saved(3, 4)->step, 4);
}

}  // namespace
}  // namespace anyorder
