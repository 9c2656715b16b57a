// What the launcher decides under Slurm, without one, what it reads of its answers, and sbatch
// options; tests/slurm has the real thing.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <utility>
#include <vector>

#include "launcher/process/child_process.h"
#include "launcher/process/node_place.h"
#include "launcher/slurm/sbatch.h"
#include "launcher/slurm/slurm_backend.h"
#include "launcher/slurm/slurm_commands.h"
#include "tests/testing/patience.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// As Slurm 22.05 prints it.
constexpr char kPluginList[] =
    "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\n"
    "specific pmix plugin versions available: pmix_v4\n";
constexpr char kNoPmix[] = "MPI plugin types are...\n\tnone\n\tpmi2\n";

TEST(MpiChoiceTest, SrunWherePmixIsNamed) {
  const auto choice = ChooseMpi("auto", kPluginList, true).value();
  EXPECT_EQ(choice.plugin, "pmix");
  EXPECT_THAT(choice.reason, HasSubstr("srun --mpi=pmix"));
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
  ::unsetenv("SLURMD_NODENAME");
  if (name != nullptr) ::setenv("SLURMD_NODENAME", name, /*overwrite=*/1);
  return FindNodePlace(nodes);
}

TEST(NodePlaceTest, IsFoundByTheNameThatSlurmGave) {
  const auto place = Find("n1,n3,n4", "n3").value();
  EXPECT_EQ(place.index, 1);
  EXPECT_EQ(place.count, 3);
  EXPECT_TRUE(absl::IsInvalidArgument(Find("n1,n3", "n2").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Find("n1,n3", nullptr).status()));
}

// What Slurm 22.05 prints, shortened.
constexpr char kRunningJob[] =
    "JobId=42 JobName=my Reason=bad name UserId=me(1) GroupId=me(1) JobState=RUNNING Reason=None "
    "Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=1-00:10:00 "
    "TimeLimit=1-04:00:00 StartTime=2026-01-02T03:04:05 Partition=long AllocNode:Sid=head:1 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-2,4] NumNodes=3 NumCPUs=6";

TEST(SlurmJobTest, ReadsARunningJobWhateverItsName) {
  const auto job = ParseSlurmJob(kRunningJob).value();
  EXPECT_EQ(job.id, 42);
  EXPECT_EQ(job.state, "RUNNING");
  EXPECT_EQ(job.reason, "");
  EXPECT_EQ(job.nodes, "n[1-2,4]");
  EXPECT_EQ(job.num_nodes, 3);
  EXPECT_EQ(job.restarts, 2);
  EXPECT_EQ(job.partition, "long");
  EXPECT_EQ(job.dependency, "");
  EXPECT_EQ(job.exit_code, "");
  EXPECT_EQ(job.run_time, absl::Hours(24) + absl::Minutes(10));
  EXPECT_EQ(job.time_left, absl::Hours(3) + absl::Minutes(50));
  EXPECT_FALSE(job.start.has_value());
  EXPECT_TRUE(job.IsRunning());
}

TEST(SlurmJobTest, ReadsAWaitingJob) {
  const auto job =
      ParseSlurmJob(
          "JobId=7 JobName=x UserId=me(1) JobState=PENDING Reason=Dependency Dependency=afterok:6 "
          "Restarts=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=UNLIMITED "
          "StartTime=2026-01-02T03:04:05 "
          "Partition=a,b NodeList= NumNodes=2-2")
          .value();
  EXPECT_TRUE(job.IsQueued());
  EXPECT_EQ(job.dependency, "afterok:6");
  EXPECT_EQ(job.num_nodes, 2);
  EXPECT_FALSE(job.time_left.has_value());
  EXPECT_EQ(job.start,
            absl::FromCivil(absl::CivilSecond(2026, 1, 2, 3, 4, 5), absl::LocalTimeZone()));
}

TEST(SlurmJobTest, RefusesWhatIsNoJob) {
  EXPECT_TRUE(absl::IsDataLoss(ParseSlurmJob("").status()));
  EXPECT_TRUE(absl::IsDataLoss(ParseSlurmJob("No jobs in the system").status()));
}

TEST(SlurmJobTest, IsOverWhenItEndedOrWasRequeued) {
  const auto has_ended = [](const char* shown, int64_t restart) {
    return ParseSlurmJob(shown)->HasEnded(restart);
  };
  EXPECT_FALSE(has_ended("JobId=7 JobState=RUNNING Reason=None Restarts=1 ", 1));
  EXPECT_TRUE(has_ended("JobId=7 JobState=RUNNING Reason=None Restarts=2 ", 1));
  EXPECT_TRUE(has_ended("JobId=7 JobState=PENDING Reason=BeginTime Restarts=2 ", 1));
  EXPECT_TRUE(has_ended("JobId=7 JobState=NODE_FAIL Reason=None Restarts=0", 0));
  // Its processes may be writing their last checkpoint.
  EXPECT_FALSE(has_ended("JobId=7 JobState=COMPLETING Reason=None Restarts=0 ", 0));
}

TEST(SlurmJobTest, TimeLimitsAreReadAsSlurmReadsThem) {
  // The forms of `man sbatch`, --time.
  EXPECT_EQ(*ParseTimeLimit("90"), 90 * 60);
  EXPECT_EQ(*ParseTimeLimit("90:30"), 90 * 60 + 30);
  EXPECT_EQ(*ParseTimeLimit("12:00:01"), 12 * 3600 + 1);
  EXPECT_EQ(*ParseTimeLimit("2-12"), 60 * 3600);
  EXPECT_EQ(*ParseTimeLimit("2-12:30"), 60 * 3600 + 30 * 60);
  EXPECT_EQ(*ParseTimeLimit("2-12:30:05"), 60 * 3600 + 30 * 60 + 5);
  EXPECT_EQ(*ParseTimeLimit("UNLIMITED"), 0);
  for (const char* bad : {"", "soon", "-5", "1-", "-1:00", "1:2:3:4", "1-2-3", "1::2", "1.5", "5h"})
    EXPECT_EQ(ParseTimeLimit(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
}

TEST(SbatchTest, WordsBelongToTheOptionBeforeThem) {
  const auto options = ParseSbatchWords({"-p", "debug", "--time", "5", "-N2", "--qos=a b"}).value();
  std::vector<std::string> names, texts;
  for (const SbatchOption& option : options) {
    names.push_back(option.name);
    texts.push_back(option.text);
  }
  EXPECT_THAT(names, ElementsAre("--partition", "--time", "--nodes", "--qos"));
  EXPECT_THAT(texts, ElementsAre("-p debug", "--time 5", "-N2", "\"--qos=a b\""));
  EXPECT_FALSE(ParseSbatchWords({"script.sh"}).ok());
  for (const char* bad : {"-a", "--array=1-3", "--wrap", "-W", "--wait", "--test-only", "-h"})
    EXPECT_FALSE(ParseSbatchWords({bad, "1"}).ok()) << bad;
  EXPECT_FALSE(ParseSbatchWords({"--comment=a\nb"}).ok());
}

TEST(SbatchTest, ShellQuotingKeepsEveryWord) {
  EXPECT_EQ(ShellCommand({"a-b/c.d", "x y", "it's", "$HOME", ""}),
            "a-b/c.d 'x y' 'it'\\''s' '$HOME' ''");
  EXPECT_EQ(SlurmPath("50%/job"), "50%%/job");
}

TEST(SlurmCommandsTest, ACommandThatFailsSaysItsLastLine) {
  std::string output;
  EXPECT_TRUE(RunCommand({"echo", "x"}, kPatience, &output).ok());
  EXPECT_EQ(output, "x\n");
  const absl::Status failed =
      RunCommand({"sh", "-c", "echo first; echo why; exit 3"}, kPatience, &output);
  EXPECT_TRUE(absl::IsUnavailable(failed));
  EXPECT_THAT(failed.message(), HasSubstr("failed with status 3: why"));
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(RunCommand({"sleep", "60"}, absl::Milliseconds(200), &output)));
}

}  // namespace
}  // namespace anyorder::launcher
