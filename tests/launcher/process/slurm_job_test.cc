#include "launcher/process/slurm_job.h"

#include <gtest/gtest.h>

namespace anyorder::launcher {
namespace {

// What Slurm 22.05 prints, shortened.
constexpr char kRunning[] =
    "JobId=42 JobName=my Reason=bad name UserId=me(1) GroupId=me(1) JobState=RUNNING Reason=None "
    "Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=1-00:10:00 "
    "TimeLimit=1-04:00:00 StartTime=2026-01-02T03:04:05 Partition=long AllocNode:Sid=head:1 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList=n[1-2,4] NumNodes=3 NumCPUs=6";

TEST(SlurmJobTest, ReadsARunningJobWhateverItsName) {
  const auto job = ParseSlurmJob(kRunning);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->id, 42);
  EXPECT_EQ(job->state, "RUNNING");
  EXPECT_EQ(job->reason, "");
  EXPECT_EQ(job->nodes, "n[1-2,4]");
  EXPECT_EQ(job->num_nodes, 3);
  EXPECT_EQ(job->restarts, 2);
  EXPECT_EQ(job->partition, "long");
  EXPECT_EQ(job->dependency, "");
  EXPECT_EQ(job->exit_code, "");
  EXPECT_EQ(job->run_time, absl::Hours(24) + absl::Minutes(10));
  EXPECT_EQ(job->time_left, absl::Hours(3) + absl::Minutes(50));
  EXPECT_FALSE(job->start.has_value());
  EXPECT_TRUE(job->IsRunning());
}

TEST(SlurmJobTest, ReadsAWaitingJob) {
  const auto job = ParseSlurmJob(
      "JobId=7 JobName=x UserId=me(1) JobState=PENDING Reason=Dependency Dependency=afterok:6 "
      "Restarts=0 ExitCode=0:0 RunTime=00:00:00 TimeLimit=UNLIMITED StartTime=2026-01-02T03:04:05 "
      "Partition=a,b NodeList= NumNodes=2-2");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job->IsQueued());
  EXPECT_EQ(job->dependency, "afterok:6");
  EXPECT_EQ(job->num_nodes, 2);
  EXPECT_FALSE(job->time_left.has_value());
  EXPECT_EQ(job->start,
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

}  // namespace
}  // namespace anyorder::launcher
