// One bit of one rank's copy of the weights flips while a step is computed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/train/trainer_fixture.h"

namespace anyorder {
namespace {

using ::testing::HasSubstr;

using ReplicaRunsTest = TrainerTest;

TEST_F(ReplicaRunsTest, FlippedBitIsFoundInItsStepAndReachesNoCheckpoint) {
  config_.train.steps = 6;
  ExpectAllOk(Train(1));
  const std::string end = Digest(1, 6);
  config_.checkpoint.every = 1;
  for (int ranks = 2; ranks <= 4; ++ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      SCOPED_TRACE(::testing::Message() << "rank " << rank << " of " << ranks);
      run_name_ = "flipped";
      fs::remove_all(RunDir(ranks));
      const std::vector<absl::Status> ends = Train(ranks, Fault{Poison::kWeights, rank, 4});
      ExpectAllEqual(ends);
      EXPECT_EQ(ExitStatusFor(ends[0]), kExitIo) << ends[0];  // the launcher starts it again
      const std::string message(ends[0].message());
      EXPECT_THAT(message, HasSubstr("step 4"));
      for (int other = 0; other < ranks; ++other) {
        const std::string name =
            "rank " + std::to_string(other) + " on thread" + std::to_string(other) + ": 1 of ";
        EXPECT_EQ(message.find(name) != std::string::npos, other == rank) << message;
      }
      EXPECT_THAT(message, HasSubstr("the first in 'transformer.word_embedding.weight'"));
      EXPECT_EQ(Events<ledger::Stop>(ranks).back().step, 3);
      for (const ledger::Commit& commit : Events<ledger::Commit>(ranks)) EXPECT_LE(commit.step, 3);
      EXPECT_FALSE(fs::exists(ckpt::CheckpointPath(RunDir(ranks), 4)));
      ExpectAllOk(Train(ranks));
      EXPECT_EQ(Digest(ranks, 6), end);
    }
  }
}

// The check itself is what ends the run above.
TEST_F(ReplicaRunsTest, WithoutTheCheckAFlippedBitGoesUnnoticed) {
  config_.train.steps = 6;
  config_.dist.replica_check_interval = 0;
  ExpectAllOk(Train(2, Fault{Poison::kWeights, 1, 4}));
}

}  // namespace
}  // namespace anyorder
