// Runs with steps that are not finite, that jump, or that are held back: what the policy says
// happens on all ranks alike.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/train/run/anomaly_policy.h"
#include "tests/core/train/trainer_fixture.h"

namespace anyorder {

namespace {

using ::testing::HasSubstr;
using ReplicaRunsTest = TrainerTest;

class AnomalyRunsTest : public TrainerTest {
 protected:
  AnomalyRunsTest() {
    config_.train.steps = 8;
    config_.anomaly.spike_window = 3;
    config_.optimizer.ema_decay = 0.9;  // skipped steps are not in the average
  }
  // A run of its own, and its end.
  std::vector<absl::Status> Run(const std::string& name, int ranks, std::optional<Fault> fault) {
    run_name_ = name;
    return TrainAnew(ranks, fault);
  }
};

// The bad step is the fifth, after the detector's warm-up.
TEST_F(AnomalyRunsTest, SpikeOnAnyRankIsSkippedByAll) {
  config_.anomaly.on_spike = AnomalyAction::kSkip;
  std::string end;
  for (const Poison poison : {Poison::kLossSpike, Poison::kGradientSpike}) {
    SCOPED_TRACE(poison == Poison::kLossSpike ? "loss" : "gradient");
    ForEachRank(2, 4, [&](int ranks, int rank) {
      ExpectAllOk(Run("spike", ranks, Fault{poison, rank, 5}));
      ExpectOneSkippedStep(ranks, 5, 8);
      EXPECT_EQ(Events<ledger::Skipped>(ranks)[0].reason, "spike");
      EXPECT_EQ(Events<ledger::Skipped>(ranks)[0].rank, -1);  // all values are finite
      if (end.empty()) end = Digest(ranks, 8);
      EXPECT_EQ(Digest(ranks, 8), end);
    });
  }
  // What was skipped is the update alone: without the jump the run ends elsewhere.
  ExpectAllOk(Run("none", 1, std::nullopt));
  EXPECT_NE(Digest(1, 8), end);
}

// Stopped in every step around the bad one, and going on with another number of ranks each time:
// the same state, losses and detector as in one attempt.
TEST_F(AnomalyRunsTest, DetectorSurvivesResumeAndOtherNumbersOfRanks) {
  config_.anomaly.on_spike = AnomalyAction::kSkip;
  ExpectAllOk(Run("whole", 2, Fault{Poison::kLossSpike, 1, 5}));
  const AnomalyState whole = Saved(2, 8)->anomaly;
  const std::string digest = Digest(2, 8);
  std::vector<double> losses;
  for (const StepMetrics& step : Metrics(2)) losses.push_back(step.loss);
  ExpectAllOk(Run("parts", 3, Fault{Poison::kNone, 0, 2, true}));
  ExpectAllOk(Train(1, Fault{Poison::kNone, 0, 2, true}));
  ExpectAllOk(Train(2, Fault{Poison::kLossSpike, 1, 1, true}));
  EXPECT_EQ(Saved(2, 5)->anomaly.skipped_in_a_row, 1);
  ExpectAllOk(Train(4));
  EXPECT_EQ(Digest(4, 8), digest);
  const std::vector<StepMetrics> parts = Metrics(4);
  ASSERT_EQ(parts.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(parts[i].loss, losses[i]) << i;
  const AnomalyState state = Saved(4, 8)->anomaly;
  EXPECT_EQ(state.trained_steps, 7);
  EXPECT_EQ(state.trained_steps, whole.trained_steps);
  EXPECT_EQ(state.loss.mean, whole.loss.mean);
  EXPECT_EQ(state.loss.deviation, whole.loss.deviation);
  EXPECT_EQ(state.grad_norm.mean, whole.grad_norm.mean);
  EXPECT_EQ(state.grad_norm.deviation, whole.grad_norm.deviation);
  EXPECT_EQ(state.skipped_in_a_row, 0);
}

// States that are not finite would stay in memory and damage every later step of their lane.
TEST_F(AnomalyRunsTest, LaneWhoseStatesAreNotFiniteBeginsAnew) {
  config_.model.mem_len = 40;  // three steps fill it
  std::string end;
  for (int ranks = 1; ranks <= 3; ++ranks) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks");
    // Lane 7 is the last of its rank, whatever their number.
    int rank = 0;
    while (LanesOf(ranks, rank).back() != 7) ++rank;
    ExpectAllOk(Run("whole", ranks, Fault{Poison::kStates, rank, 4}));
    ExpectOneSkippedStep(ranks, 4, 8);
    EXPECT_THAT(Events<ledger::Skipped>(ranks)[0].detail, HasSubstr("memory of lane 7"));
    EXPECT_TRUE(Saved(ranks, 8)->lane_restarts.empty());  // full again
    if (end.empty()) end = Digest(ranks, 8);
    EXPECT_EQ(Digest(ranks, 8), end);
    // What the memory holds is not forgotten by a resume.
    ExpectAllOk(Run("parts", ranks, Fault{Poison::kStates, rank, 4, true}));
    const std::vector<LaneRestart> restarts = {{7, 4}};
    EXPECT_EQ(Saved(ranks, 4)->lane_restarts, restarts);
    ExpectAllOk(Train(ranks));
    EXPECT_EQ(Digest(ranks, 8), end);
  }
}

TEST_F(AnomalyRunsTest, RunThatIsToldToStopEndsForGood) {
  config_.anomaly.on_nonfinite = AnomalyAction::kStop;
  ExpectAllEnd(Run("stopped", 3, Fault{Poison::kGradient, 2, 4}), kExitDoNotRestart,
               "rank 2 on thread2: gradient of lane 5", "--set anomaly.on_nonfinite=skip");
  EXPECT_EQ(Events<ledger::Stop>(3).back().step, 3);
  EXPECT_TRUE(Events<ledger::Skipped>(3).empty());
  config_.anomaly.on_nonfinite = AnomalyAction::kSkip;
  ExpectAllOk(Train(3, Fault{Poison::kGradient, 2, 4}));
}

// What a rollback of one step ends in is what skipping it ends in, for a step that goes wrong every
// time.
TEST_F(AnomalyRunsTest, RollbackGoesOnFromACheckpointWithoutTheStep) {
  const Fault fault{Poison::kLoss, 1, 5};
  ExpectAllOk(Run("skipped", 2, fault));
  const std::string skipped = Digest(2, 8);
  config_.anomaly.on_nonfinite = AnomalyAction::kRollback;
  ExpectAllOk(Run("rolled", 2, Fault{Poison::kNone, 0, 3, true}));
  ExpectAllEnd(Train(2, Fault{Poison::kLoss, 1, 2}), kExitIo);  // the launcher starts it again
  ASSERT_EQ(Events<ledger::Rollback>(2).size(), 1u);
  EXPECT_EQ(Events<ledger::Rollback>(2)[0].first_step, 4);
  EXPECT_EQ(Events<ledger::Rollback>(2)[0].last_step, 5);
  // This time its numbers are good, and it is held back all the same.
  ExpectAllOk(Train(3));
  EXPECT_EQ(Events<ledger::Train>(2).back().step, 3);
  EXPECT_EQ(Digest(2, 8), skipped);
  ExpectOneSkippedStep(2, 5, 8);
  EXPECT_EQ(Events<ledger::Skipped>(2)[0].reason, "rolled_back");
}

// Steps 4 to 8 are skipped, which is the end. The checkpoints of steps 4 and 6 have the weights of
// step 3, from which no step could be trained: they push that of step 2 not out, and a later start
// leaves them aside.
TEST_F(AnomalyRunsTest, RunThatEndsInSkippedStepsDiverged) {
  config_.checkpoint.every = 2;
  for (int ranks = 1; ranks <= 2; ++ranks) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks");
    ExpectAllOk(Run("whole", ranks, std::nullopt));
    const std::string whole = Digest(ranks, 8);
    ExpectAllEnd(Run("diverged", ranks, Fault{Poison::kLoss, ranks - 1, 4, false, true}),
                 kExitDoNotRestart, "diverged: steps 4 to 8 were skipped");
    const ledger::Stop stop = Events<ledger::Stop>(ranks).back();
    EXPECT_TRUE(stop.has_diverged());
    EXPECT_EQ(stop.trained_step, 3);
    EXPECT_EQ(stop.may_restart, 0);
    EXPECT_FALSE(OpenCheckpoint(ranks, 8).ok());
    EXPECT_TRUE(OpenCheckpoint(ranks, 2).ok());
    for (const ledger::Commit& commit : Events<ledger::Commit>(ranks))
      EXPECT_EQ(commit.trained_step, commit.step == 2 ? -1 : 3) << commit.step;
    const auto checkpoints = ckpt::ListCheckpoints(RunDir(ranks)).value();
    for (const auto& info : checkpoints) EXPECT_EQ(info.is_unproven, info.step > 3) << info.step;
    // What was wrong is right now.
    ExpectAllOk(Train(ranks));
    EXPECT_EQ(Events<ledger::Train>(ranks).back().step, 2);
    EXPECT_EQ(Digest(ranks, 8), whole);
  }
}

TEST_F(AnomalyRunsTest, RunThatDivergedWithoutAGoodCheckpointBeginsAgain) {
  config_.checkpoint.every = 3;
  const Fault fault{Poison::kGradient, 0, 2, false, true};
  EXPECT_EQ(ExitStatusFor(Run("diverged", 1, fault)[0]), kExitDoNotRestart);
  EXPECT_FALSE(ckpt::ListSteps(RunDir(1))->empty());  // of step 6, at least
  EXPECT_EQ(ExitStatusFor(Train(1, fault)[0]), kExitDoNotRestart);
  EXPECT_EQ(Events<ledger::Train>(1).back().step, 0);
  ExpectAllOk(Train(1));
  EXPECT_EQ(Events<ledger::Train>(1).back().step, 0);
  EXPECT_EQ(Metrics(1).size(), 8u);
}

// A rollback in every start, with checkpoints in between: it ends all the same.
TEST_F(AnomalyRunsTest, RollbacksDoNotGoOnForEver) {
  config_.train.steps = 1000;
  config_.checkpoint.every = 1;
  config_.anomaly.on_nonfinite = AnomalyAction::kRollback;
  config_.anomaly.max_skipped_in_a_row = 3;
  Fault fault{Poison::kLoss, 0, 2, false, true};
  run_name_ = "rollbacks";
  int starts = 0;
  absl::Status end;
  do {
    end = Train(1, fault)[0];
  } while (ExitStatusFor(end) == kExitIo && ++starts < 10);
  EXPECT_EQ(ExitStatusFor(end), kExitDoNotRestart) << end;
  EXPECT_EQ(starts, 2);
}

TEST_F(ReplicaRunsTest, FlippedBitIsFoundInItsStepAndReachesNoCheckpoint) {
  config_.train.steps = 6;
  ExpectAllOk(Train(1));
  const std::string end = Digest(1, 6);
  config_.checkpoint.every = 1;
  run_name_ = "flipped";
  ForEachRank(2, 4, [&](int ranks, int rank) {
    const std::vector<absl::Status> ends = TrainAnew(ranks, Fault{Poison::kWeights, rank, 4});
    ExpectAllEnd(ends, kExitIo);  // the launcher starts it again
    const std::string message(ends[0].message());
    EXPECT_THAT(message, HasSubstr("step 4"));
    for (int other = 0; other < ranks; ++other) {
      const std::string name = absl::StrCat("rank ", other, " on thread", other, ": 1 of ");
      EXPECT_EQ(message.find(name) != std::string::npos, other == rank) << message;
    }
    EXPECT_THAT(message, HasSubstr("the first in 'transformer.word_embedding.weight'"));
    EXPECT_EQ(Events<ledger::Stop>(ranks).back().step, 3);
    for (const ledger::Commit& commit : Events<ledger::Commit>(ranks)) EXPECT_LE(commit.step, 3);
    EXPECT_FALSE(fs::exists(ckpt::CheckpointPath(RunDir(ranks), 4)));
    ExpectAllOk(Train(ranks));
    EXPECT_EQ(Digest(ranks, 6), end);
  });
}

// The check itself is what ends the run above.
TEST_F(ReplicaRunsTest, WithoutTheCheckAFlippedBitGoesUnnoticed) {
  config_.train.steps = 6;
  config_.dist.replica_check_interval = 0;
  ExpectAllOk(Train(2, Fault{Poison::kWeights, 1, 4}));
}

}  // namespace

}  // namespace anyorder
