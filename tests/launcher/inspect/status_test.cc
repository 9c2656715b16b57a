// `anyorder status`: what it joins from the run's files and from Slurm, whose scontrol is a script
// here; the real one is asked in tests/slurm.

#include "core/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "ckpt/lease.h"
#include "core/base/file_system.h"
#include "core/train/run/metrics.h"
#include "launcher/inspect/status_report.h"
#include "launcher/slurm/slurm_commands.h"
#include "tests/launcher/inspect/written_run.h"

namespace anyorder::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Of what Slurm prints, the members that are read.
constexpr char kRunning[] =
    "JobId=42 JobName=my UserId=me(1) JobState=RUNNING Reason=None Restarts=2 RunTime=1-00:10:00 "
    "TimeLimit=1-04:00:00 Partition=long NodeList=n[1-2,4] NumNodes=3";

// A run of job 42 and a scontrol of the test's own, first in PATH.
class JoinedStatus : public ::testing::Test {
 protected:
  JoinedStatus() : path_(getenv("PATH")) {
    run_.Record("created", 0, R"("run_id":"r")");
    run_.Record("start", 0,
                R"("run_id":"r","attempt":1,"ranks":4,"slurm_job":42,"slurm_restart":0,)"
                R"("nodes":["n1","n2"])");
    setenv("PATH", absl::StrCat(run_.path(), "/bin:", path_).c_str(), 1);
  }
  ~JoinedStatus() override { setenv("PATH", path_.c_str(), 1); }

  void Scontrol(const std::string& script) const {
    const std::string file = run_.path() + "/bin/scontrol";
    std::filesystem::create_directories(run_.path() + "/bin");
    run_.Append("bin/scontrol", absl::StrCat("#!/bin/sh\n", script, "\n"));
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  // By a launcher of job 42 on another machine.
  std::unique_ptr<ckpt::Lease> Hold(int64_t attempt) const {
    std::filesystem::create_directories(run_.path() + "/.launch");
    ckpt::LeaseOwner owner;
    owner.run_id = "r";
    owner.machine = "another";
    owner.job = "42";
    owner.attempt = attempt;
    return ckpt::Lease::Acquire(FileSystem::Posix(), run_.path() + "/.launch", owner,
                                absl::Seconds(1))
        .value();
  }
  StatusFacts Collect() const { return StatusCollector(run_.path()).Collect().value(); }

  const std::string path_;
  WrittenRun run_;
};

TEST_F(JoinedStatus, TheScreenHasSlurmsViewAndTheRuns) {
  Scontrol(absl::StrCat("echo '", kRunning, "'"));
  run_.Step(1, 1, 1000);
  run_.Step(2, 1, 1200, R"(,"eval_loss":3.5,"eval_ms":50)");
  const StatusFacts facts = Collect();
  EXPECT_EQ(facts.step, 2);
  EXPECT_EQ(facts.per_step, absl::Milliseconds(200));
  const std::string screen = StatusScreen(facts);
  EXPECT_THAT(screen, HasSubstr("job 42 RUNNING on n[1-2,4], partition long, 3 h 50 min left"));
  EXPECT_THAT(screen, HasSubstr("3.9980"));
  EXPECT_THAT(screen, HasSubstr("3.5000 after step 2"));
  EXPECT_THAT(screen, HasSubstr("committed    nothing yet"));
  EXPECT_THAT(StatusJsonLine(facts), HasSubstr(R"("num_nodes":3,"restarts":2)"));
  run_.Step(3, 1, 1400, R"(,"eval_loss":3.75,"eval_ms":50)");
  EXPECT_THAT(StatusJsonLine(Collect()),
              HasSubstr(R"("best_step":2,"best_value":3.5,"best_metric":"loss")"));
  EXPECT_LE(std::count(screen.begin(), screen.end(), '\n'), 24);
}

// The ledger has a line for a start and one a save; what is killed in between has trained all the
// same.
TEST(StatusFacts, TheTimeOfAKilledStartGoesToItsLastStep) {
  WrittenRun run(/*ranks=*/1);
  for (int64_t step = 1; step <= 8; ++step) run.Step(step, 1, 100 * step);
  run.Step(9, 1, 900, "", "metrics.redone.jsonl");
  run.Record("start", 5000, R"("run_id":"r","attempt":2,"ranks":1)");
  run.Step(9, 2, 5100);
  run.Record("exit", 5200, R"("attempt":2,"exit_status":0)");
  const StatusFacts facts = StatusCollector(run.path()).Collect().value();
  EXPECT_EQ(facts.redone_steps, 1);
  EXPECT_EQ(facts.wall, absl::Milliseconds(900 + 200));
  EXPECT_EQ(facts.training, absl::Milliseconds(900));
}

// A launcher that prepares a start, on Slurm for minutes, has the run; the time since the last one
// is none of a start's.
TEST_F(JoinedStatus, TimeBeforeTheNextStartIsInNone) {
  Scontrol(absl::StrCat("echo '", kRunning, "'"));
  run_.Step(1, 1, 1000);
  const auto lease = Hold(/*attempt=*/2);
  EXPECT_EQ(Collect().state, "running");
  EXPECT_EQ(Collect().wall, absl::Seconds(1));
  run_.Record("exit", 1200, R"("attempt":1,"exit_status":74)");
  EXPECT_EQ(Collect().wall, absl::Milliseconds(1200));
  run_.Record("start", 2000, R"("attempt":2,"ranks":1)");
  EXPECT_GT(Collect().wall, absl::Hours(24));
}

// How each kind of end is called, and what the screen says about it.
TEST(Status, TheEndOfARunHasAStateAndItsError) {
  struct End {
    const char* stop;  // members behind the attempt; null: none was recorded
    const char* exit;
    int64_t steps;
    const char* state;
    const char* error;
  };
  const End ends[] = {
      {R"("step":3,"exit_status":0,"detail":"finished")", R"("exit_status":0)", 3, "finished", ""},
      {R"("step":3,"exit_status":0,"detail":"finished")", R"("exit_status":0)", 9, "stopped", ""},
      {R"("step":3,"exit_status":0,"reason":"early","detail":"finished early: no better")",
       R"("exit_status":0)", 9, "finished early", ""},
      {R"("step":3,"exit_status":75,"detail":"signal SIGTERM")", R"("exit_status":75)", 9,
       "stopped", ""},
      {R"("step":3,"exit_status":75,"detail":"signal SIGTERM")", R"("exit_status":75)", 3,
       "stopped", ""},
      {nullptr, nullptr, 9, "stopped", "the last start has no recorded end"},
      {R"("step":3,"exit_status":74,"detail":"disk full")", R"("exit_status":74)", 3, "failed",
       "disk full"},
      {nullptr, R"("exit_status":137,"detail":"no memory left")", 9, "failed", "no memory left"},
      {nullptr, R"("exit_status":139)", 9, "failed", "the ranks ended with status 139"},
      {R"("step":3,"exit_status":74)", nullptr, 9, "failed", "the ranks ended with status 74"},
      {R"("step":3,"trained_step":1,"exit_status":93,"reason":"diverged","detail":"it diverged")",
       R"("exit_status":93)", 3, "diverged", "it diverged"}};
  for (const End& end : ends) {
    SCOPED_TRACE(::testing::Message() << end.state << " " << end.error);
    WrittenRun run(/*ranks=*/1);
    for (int64_t step = 1; step <= 3; ++step)
      run.Step(step, 1, 100 * step, step > 1 ? R"(,"skipped":true)" : "");
    if (end.stop != nullptr) run.Record("stop", 400, absl::StrCat(R"("attempt":1,)", end.stop));
    if (end.exit != nullptr) run.Record("exit", 500, absl::StrCat(R"("attempt":1,)", end.exit));
    const RunEnd found = FindRunEnd(ReadLedger(RunDirectory(run.path())).value(), end.steps <= 3);
    EXPECT_EQ(found.state, end.state);
    EXPECT_THAT(found.error, HasSubstr(end.error));
    const StatusFacts facts = StatusCollector(run.path()).Collect().value();
    EXPECT_TRUE(facts.IsSuspect(1));
    EXPECT_TRUE(facts.IsSuspect(3));
    EXPECT_FALSE(facts.IsSuspect(0));
    if (*end.error == '\0') continue;
    EXPECT_THAT(StatusScreen(facts), HasSubstr(absl::StrCat("error        ", found.error)));
    EXPECT_THAT(StatusLine(facts), HasSubstr(found.error));
    EXPECT_THAT(StatusJsonLine(facts), HasSubstr(absl::StrCat(R"("error":")", end.error)));
  }
}

// Of the last steps, by the time they took; and a run that does not run loses nothing in a crash.
TEST(Status, SpeedIsThatOfTheLastSteps) {
  WrittenRun run(/*ranks=*/2);
  run.Step(1, 1, 100, R"(,"tokens_per_second":1000,"step_ms":100,"mfu":0.5)");
  run.Step(2, 1, 200,
           R"(,"tokens_per_second":200,"step_ms":300,"tokens_per_second_per_device":100,)"
           R"("task_accuracy":0.25,"eval_loss":2,"eval_task_accuracy":0.75)");
  const StatusFacts facts = StatusCollector(run.path()).Collect().value();
  EXPECT_DOUBLE_EQ(facts.tokens_per_second, (100 + 60) / 0.4);
  const std::string screen = StatusScreen(facts);
  EXPECT_THAT(screen, HasSubstr("400 tokens/s (75 a device), MFU 12.5 %"));
  EXPECT_THAT(screen, HasSubstr("3.9980, accuracy 0.2500"));
  EXPECT_THAT(screen, HasSubstr("2.0000, accuracy 0.7500 after step 2"));
  EXPECT_THAT(screen, Not(HasSubstr("a crash now loses")));
  EXPECT_THAT(StatusJsonLine(facts), HasSubstr(R"("eval_task_accuracy":0.75)"));
}

TEST_F(JoinedStatus, TheNewestJobThatDoesNotWaitIsTheLastOneAsked) {
  std::filesystem::create_directories(run_.path() + "/slurm");
  for (const char* name : {"job-44.log", "job-43.log", "job-7.log", "job-x.log", "train.sbatch"})
    run_.Append(absl::StrCat("slurm/", name), "");
  Scontrol(
      "[ $4 = 44 ] && echo 'JobId=44 UserId=u JobState=PENDING Reason=Resources' && exit\n"
      "[ $4 = 43 ] && echo 'slurm_load_jobs error: Invalid job id specified' && exit 1\n"
      "[ $4 = 42 ] && echo 'JobId=42 UserId=u JobState=NODE_FAIL ExitCode=0:9' && exit\n"
      "echo 'not to be asked'; exit 1");
  const StatusFacts facts = Collect();
  ASSERT_EQ(facts.slurm.jobs.size(), 2u);
  EXPECT_EQ(facts.slurm.jobs[0].reason, "Resources");
  EXPECT_EQ(facts.slurm.jobs[1].exit_code, "0:9");
  EXPECT_THAT(facts.slurm.forgotten, ElementsAre(43));
  EXPECT_EQ(facts.slurm.problem, "");
  EXPECT_EQ(facts.state, "queued");
}

TEST_F(JoinedStatus, AControllerThatDoesNotAnswerIsNotWaitedFor) {
  Scontrol("exec sleep 100");
  const SlurmView view = AskSlurm({42, 41}, absl::Milliseconds(100));
  EXPECT_THAT(view.problem, HasSubstr("no answer in time"));
  EXPECT_TRUE(view.jobs.empty());
}

TEST_F(JoinedStatus, MissingAndFailingSlurmAreSaidInOneLine) {
  setenv("PATH", "/nonexistent", 1);
  EXPECT_NE(AskSlurm({42}, absl::Seconds(5)).problem, "");
  setenv("PATH", absl::StrCat(run_.path(), "/bin:", path_).c_str(), 1);
  Scontrol("echo 'slurm_load_jobs error: Unable to contact slurm controller'; echo more; exit 1");
  const StatusFacts facts = Collect();
  EXPECT_EQ(
      facts.slurm.problem,
      "Slurm cannot be asked here: slurm_load_jobs error: Unable to contact slurm controller");
  EXPECT_EQ(facts.state, "stopped");
}

TEST_F(JoinedStatus, TheOwnerOfAJobThatIsOverIsDead) {
  const auto lease = Hold(/*attempt=*/0);
  Scontrol(absl::StrCat("echo '", kRunning, "'"));
  ASSERT_EQ(Collect().state, "running");
  std::filesystem::remove(run_.path() + "/bin/scontrol");
  Scontrol("echo 'JobId=42 UserId=u JobState=TIMEOUT'");
  EXPECT_EQ(Collect().state, "stopped");
}

TEST(Status, AJobThatWaitsForItsFirstStartHasNoRunYet) {
  const WrittenRun run;
  std::filesystem::remove(run.path() + "/config.toml");
  EXPECT_TRUE(absl::IsInvalidArgument(StatusCollector(run.path()).Collect().status()));
  std::filesystem::create_directories(run.path() + "/slurm");
  EXPECT_TRUE(absl::IsInvalidArgument(StatusCollector(run.path()).Collect().status()));
  run.Append("slurm/train.sbatch", "");
  const auto facts = StatusCollector(run.path()).Collect().value();
  EXPECT_THAT(StatusScreen(facts), HasSubstr("not started"));
}

TEST(Status, LaunchesOfAFinishedRunAreNoRestarts) {
  const LedgerRecord start{"", ledger::Start()};
  const auto exit = [](int64_t status) { return LedgerRecord{"", ledger::Exit{1, status}}; };
  std::vector<LedgerRecord> ledger = {{"", ledger::Created()}, start};
  EXPECT_EQ(CountRestarts({}), 0);
  EXPECT_EQ(CountRestarts(ledger), 0);
  ledger.push_back(start);  // its launcher was killed
  EXPECT_EQ(CountRestarts(ledger), 1);
  ledger.insert(ledger.end(), {exit(kExitRequeue), start});
  EXPECT_EQ(CountRestarts(ledger), 2);
  ledger.insert(ledger.end(), {exit(kExitDone), start, exit(kExitDone)});
  EXPECT_EQ(CountRestarts(ledger), 2);
}

TEST(Status, NamesCannotSendControlsToTheTerminal) {
  StatusFacts facts;
  facts.run_dir = "a\x1b[2Jb\n";
  EXPECT_THAT(StatusScreen(facts), HasSubstr("a[2Jb ("));
}

TEST(Status, MetricsThatGrowOrAreReplacedAreReadOnce) {
  const WrittenRun run;
  MetricsStream stream(run.path() + "/metrics.jsonl");
  std::vector<int64_t> steps;
  const auto read = [&] {
    EXPECT_EQ(
        stream.Read([&] { steps.clear(); }, [&](const StepMetrics& line,
                                                absl::string_view) { steps.push_back(line.step); }),
        absl::OkStatus());
    return steps;
  };
  EXPECT_THAT(read(), ElementsAre());
  run.Step(1, 1, 100);
  run.Step(2, 1, 200);
  run.Append("metrics.jsonl", "{\"step\":3,");
  EXPECT_THAT(read(), ElementsAre(1, 2));
  run.Append("metrics.jsonl", "\"loss\":1}\nnot a line\n");
  EXPECT_THAT(read(), ElementsAre(1, 2, 3));
  EXPECT_THAT(read(), ElementsAre(1, 2, 3));
  ASSERT_TRUE(
      SetAsideLaterSteps(run.path() + "/metrics.jsonl", run.path() + "/metrics.redone.jsonl", 1)
          .ok());
  run.Step(2, 2, 900);
  EXPECT_THAT(read(), ElementsAre(1, 2));
}

TEST(StatusWatch, ARedrawCoversWhatWasThereAndNoMore) {
  int64_t lines = 0;
  EXPECT_EQ(Redraw("ab\ncd\n", 24, 80, 0, &lines), "ab\x1b[K\ncd\x1b[K\n\x1b[J");
  EXPECT_EQ(lines, 2);
  EXPECT_EQ(Redraw("abcdef\n", 24, 3, 2, &lines), "\r\x1b[2Aabc\x1b[K\n\x1b[J");
  EXPECT_EQ(lines, 1);
  // A wide character is not cut in half, and a low terminal shows the first lines.
  EXPECT_EQ(Redraw("a語b\nx\ny\n", 3, 2, 0, &lines), "a\x1b[K\nx\x1b[K\n\x1b[J");
  EXPECT_EQ(lines, 2);
}

TEST(StatusWatch, EndsByItselfWhenTheRunIsFinished) {
  const WrittenRun run;
  RunConfig config;
  run.Record("created", 0, R"("run_id":"r")");
  run.Step(config.train.steps, 1, 1000);
  ::testing::internal::CaptureStdout();
  EXPECT_TRUE(WatchStatus(run.path(), false, absl::Hours(1)).ok());
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(printed, HasSubstr(" finished step "));
  EXPECT_THAT(printed, Not(HasSubstr("\x1b")));
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 1);
}

TEST(Status, DurationsAreForPeople) {
  EXPECT_EQ(HumanDuration(absl::Milliseconds(12)), "12 ms");
  EXPECT_EQ(HumanDuration(absl::Seconds(4.25)), "4.2 s");
  EXPECT_EQ(HumanDuration(absl::Seconds(312)), "5 min 12 s");
  EXPECT_EQ(HumanDuration(absl::Hours(3) + absl::Minutes(2)), "3 h 2 min");
  EXPECT_EQ(HumanDuration(absl::Hours(27)), "1 d 3 h");
}

}  // namespace
}  // namespace anyorder::launcher
