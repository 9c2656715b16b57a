// What the launcher decides under Slurm, without one; tests/slurm has the real thing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "dist/heartbeat.h"
#include "launcher/process/node_place.h"
#include "launcher/process/slurm_commands.h"
#include "launcher/start/launcher_heartbeat.h"
#include "launcher/start/mpi_choice.h"
#include "launcher/start/slurm_backend.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;

// As Slurm 22.05 prints it.
constexpr char kPluginList[] =
    "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\n"
    "specific pmix plugin versions available: pmix_v4\n";
constexpr char kNoPmix[] = "MPI plugin types are...\n\tnone\n\tpmi2\n";

TEST(MpiChoiceTest, SrunWherePmixIsNamed) {
  const auto choice = ChooseMpi("auto", kPluginList, true);
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->plugin, "pmix");
  EXPECT_THAT(choice->reason, HasSubstr("srun --mpi=pmix"));
  EXPECT_EQ(ChooseMpi("auto", "srun: MPI types are: none, pmix_v3, pmix_v4", true)->plugin,
            "pmix_v4");
}

TEST(MpiChoiceTest, MpirunWhereItIsNotOrWhereItIsWanted) {
  EXPECT_EQ(ChooseMpi("auto", kNoPmix, true)->plugin, "");
  EXPECT_THAT(ChooseMpi("auto", kNoPmix, true)->reason, HasSubstr("names no pmix"));
  EXPECT_EQ(ChooseMpi("mpirun", kPluginList, true)->plugin, "");
}

TEST(MpiChoiceTest, NoWayIsRefusedWithTheFix) {
  EXPECT_THAT(ChooseMpi("srun", kNoPmix, true).status().message(), HasSubstr("--mpi mpirun"));
  EXPECT_THAT(ChooseMpi("auto", kNoPmix, false).status().message(),
              HasSubstr("load the MPI module"));
  EXPECT_TRUE(absl::IsInvalidArgument(ChooseMpi("mpirun", kPluginList, false).status()));
}

TEST(SlurmCommandsTest, NodesThatCannotRunAStepAreKnownByTheirState) {
  for (const char* state :
       {"idle", "mixed", "allocated", "draining", "drained", "completing", "reserved"})
    EXPECT_TRUE(StateIsUsable(state)) << state;
  for (const char* state : {"", "down", "down*", "idle*", "allocated*", "unknown", "powering_down",
                            "fail", "rebooting"})
    EXPECT_FALSE(StateIsUsable(state)) << state;
}

TEST(SlurmCommandsTest, ARequeuedJobKnowsItsOwnEarlierRuns) {
  EXPECT_TRUE(JobHasEnded("7 of lab", "7 of lab restart 1"));
  EXPECT_TRUE(JobHasEnded("7 of lab restart 1", "7 of lab restart 2"));
  EXPECT_FALSE(JobHasEnded("7 of lab restart 1", "7 of lab restart 1"));
  // Numbers mean nothing elsewhere, and no number is no job.
  EXPECT_FALSE(JobHasEnded("7 of other", "7 of lab restart 1"));
  EXPECT_FALSE(JobHasEnded("", "7 of lab restart 1"));
}

TEST(SlurmBackendTest, TheMostRanksThatAreEqualOnEachNode) {
  const auto shape = [](int64_t nodes, int64_t per_node, int64_t max) {
    const Shape s = ChooseShape(nodes, per_node, max);
    return std::pair(s.nodes, s.ranks_per_node);
  };
  EXPECT_EQ(shape(4, 2, 64), std::pair(int64_t{4}, int64_t{2}));
  EXPECT_EQ(shape(3, 4, 8), std::pair(int64_t{2}, int64_t{4}));  // 8, not 3 x 2
  EXPECT_EQ(shape(4, 4, 8), std::pair(int64_t{4}, int64_t{2}));  // on most nodes
  EXPECT_EQ(shape(16, 2, 8), std::pair(int64_t{8}, int64_t{1}));
  EXPECT_EQ(shape(1, 1, 1), std::pair(int64_t{1}, int64_t{1}));
}

absl::StatusOr<NodePlace> Find(const std::string& nodes, const char* name) {
  return FindNodePlace(nodes, [name](const char*) { return name; });
}

TEST(NodePlaceTest, IsFoundByTheNameThatSlurmGave) {
  const auto place = Find("n1,n3,n4", "n3");
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->index, 1);
  EXPECT_EQ(place->count, 3);
  EXPECT_TRUE(absl::IsInvalidArgument(Find("n1,n3", "n2").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Find("n1,n3", nullptr).status()));
}

TEST(NodePlaceTest, SocketsFitAnAddressAndDifferByNodeStartAndRun) {
  const std::string long_name(300, 'x');
  const std::string socket =
      ServiceSocket(ScratchOnNode("/" + long_name, "node-" + long_name), int64_t{1} << 40);
  EXPECT_LT(socket.size(), 107u);
  EXPECT_NE(socket, ServiceSocket(ScratchOnNode("/" + long_name, "node-" + long_name), 1));
  EXPECT_NE(ScratchOnNode("/a", "n1").files, ScratchOnNode("/a", "n2").files);
  EXPECT_NE(ScratchOnNode("/a", "n1").files, ScratchOnNode("/b", "n1").files);
}

class LauncherHeartbeatWatchTest : public ::testing::Test {
 protected:
  static dist::RankBeat Beat(int64_t attempt, int64_t ticks) {
    dist::RankBeat beat;
    beat.host = "head";
    beat.attempt = attempt;
    beat.ticks = ticks;
    return beat;
  }
  LauncherHeartbeatWatch watch_{3, absl::Seconds(60)};
};

TEST_F(LauncherHeartbeatWatchTest, ALauncherThatBeatsKeepsItsRanks) {
  for (int i = 0; i < 100; ++i) EXPECT_EQ(watch_.Judge(Beat(3, i), absl::Seconds(50) * i), "");
}

TEST_F(LauncherHeartbeatWatchTest, SilenceIsMeasuredFromTheLastBeat) {
  EXPECT_EQ(watch_.Judge(Beat(3, 7), absl::Seconds(1000)), "");
  EXPECT_EQ(watch_.Judge(Beat(3, 7), absl::Seconds(1059)), "");
  EXPECT_THAT(watch_.Judge(Beat(3, 7), absl::Seconds(1060)),
              HasSubstr("no heartbeat from the launcher on head for 1m"));
}

TEST_F(LauncherHeartbeatWatchTest, AFileThatCannotBeReadIsSilence) {
  EXPECT_EQ(watch_.Judge(absl::NotFoundError("no file"), absl::Seconds(0)), "");
  EXPECT_THAT(watch_.Judge(absl::UnavailableError("stale handle"), absl::Seconds(60)),
              HasSubstr("stale handle"));
}

TEST_F(LauncherHeartbeatWatchTest, ALaterStartAndAnEndedOneAreTheEndAtOnce) {
  EXPECT_THAT(watch_.Judge(Beat(4, 1), absl::Seconds(0)),
              HasSubstr("start 4 of the run has taken over"));
  dist::RankBeat ended = Beat(3, 1);
  ended.has_ended = true;
  EXPECT_THAT(watch_.Judge(ended, absl::Seconds(0)), HasSubstr("has ended this attempt"));
  // What is left of the start before says nothing, and is no sign of life either.
  EXPECT_EQ(watch_.Judge(Beat(2, 1), absl::Seconds(59)), "");
  EXPECT_NE(watch_.Judge(Beat(2, 2), absl::Seconds(60)), "");
}

}  // namespace
}  // namespace anyorder::launcher
