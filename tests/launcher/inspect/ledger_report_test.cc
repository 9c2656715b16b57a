// `anyorder inspect RUN-DIR --ledger` on histories written by hand: a good one, and each way in
// which one can be bad.

#include "launcher/inspect/ledger_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

#include "core/base/status.h"
#include "launcher/inspect/run_history.h"
#include "tests/launcher/inspect/written_run.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::launcher {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string PlannedDigest(int64_t step) { return absl::StrFormat("%016x", 0x1000 + step); }

std::vector<std::string> Planned(int64_t steps) {
  std::vector<std::string> planned;
  for (int64_t step = 1; step <= steps; ++step) planned.push_back(PlannedDigest(step));
  return planned;
}

// Whose steps say which samples they read.
class AuditedRun : public WrittenRun {
 public:
  void Step(int64_t step, int64_t attempt, int64_t ms, const std::string& samples,
            const char* file = "metrics.jsonl") const {
    WrittenRun::Step(step, attempt, ms, absl::StrCat(",\"samples\":\"", samples, "\""), file);
  }
  void Step(int64_t step, int64_t attempt, int64_t ms) const {
    Step(step, attempt, ms, PlannedDigest(step));
  }

  RunHistory Read() const { return ReadRunHistory(path()).value(); }
};

constexpr int64_t kSteps = 6;

// Start 1 trains steps 1 to 4, saves after 2 and is killed; start 2 does 3 and 4 again and ends
// after 6.
struct KilledRun : AuditedRun {
  // Without the line of `left_out_step`.
  explicit KilledRun(int64_t left_out_step = -1) {
    Record("created", 0, R"("run_id":"r")");
    Record("start", 0, R"("run_id":"r","attempt":1,"ranks":2)");
    Record("train", 1000, R"("attempt":1,"step":0)");
    for (int64_t step = 1; step <= 2; ++step)
      if (step != left_out_step) Step(step, 1, 1000 + 110 * step);
    Record("trained", 1225, R"("attempt":1,"first_step":0,"last_step":2)");
    Record("commit", 1230, R"("attempt":1,"step":2,"generation":1)");
    for (int64_t step = 3; step <= 4; ++step)
      Step(step, 1, 1000 + 110 * step, PlannedDigest(step), "metrics.redone.jsonl");
    Record("start", 3000, R"("run_id":"r","attempt":2,"ranks":3)");
    Record("train", 3500, R"("attempt":2,"step":2)");
    for (int64_t step = 3; step <= kSteps; ++step)
      if (step != left_out_step) Step(step, 2, 3500 + 110 * (step - 2));
    Record("trained", 3950, R"("attempt":2,"first_step":2,"last_step":6)");
    Record("stop", 4200, R"("attempt":2,"step":6,"exit_status":0)");
    Record("exit", 4300, R"("attempt":2,"exit_status":0)");
  }
};

std::string Problems(const SampleAudit& audit) {
  std::string text;
  for (const SampleProblem& problem : audit.problems) {
    absl::StrAppend(&text, "step ", problem.step, " attempt ", problem.attempt, ": ", problem.what,
                    "\n");
  }
  return text;
}

SampleAudit Audit(const AuditedRun& run) { return AuditSamples(run.Read(), Planned(kSteps)); }

TEST(SampleAudit, ProvesAKilledRunThatLostNothing) {
  const KilledRun run;
  const SampleAudit audit = Audit(run);
  EXPECT_EQ(Problems(audit), "");
  EXPECT_EQ(audit.steps, kSteps);
  EXPECT_EQ(audit.lanes, 8);
  EXPECT_EQ(audit.duplicates, 0);
  EXPECT_EQ(audit.omissions, 0);
  EXPECT_EQ(audit.redone_steps, 2);
  EXPECT_EQ(audit.compared_with_redone, 2);
  EXPECT_EQ(audit.compared_with_plan, kSteps + 2);
}

TEST(SampleAudit, TakesACommitWithoutARecordFromTheNextStart) {
  // As after a dead service whose votes commit the save: no `commit` line, nor any line of what it
  // lost.
  const AuditedRun run;
  run.Record("start", 0, R"("attempt":1,"ranks":1)");
  run.Record("train", 10, R"("attempt":1,"step":0)");
  run.Step(1, 1, 200);
  run.Record("start", 300, R"("attempt":2,"ranks":1)");
  run.Record("train", 400, R"("attempt":2,"step":1)");
  run.Step(2, 2, 600);
  EXPECT_EQ(Problems(Audit(run)), "");
}

TEST(SampleAudit, NamesEachProblem) {
  struct Case {
    int64_t left_out_step;
    void (*spoil)(const AuditedRun&);
    const char* problem;
    int64_t steps = kSteps;
    int64_t omissions = 0;
    int64_t duplicates = 0;
  };
  const Case cases[] = {
      {5, [](const AuditedRun&) {}, "step 5 attempt 2: has no line", 6, 1},
      {6, [](const AuditedRun&) {}, "step 6 attempt 2: is trained by the ledger", 5, 1},
      {-1, [](const AuditedRun& run) { run.Step(4, 2, 4000); },
       "step 4 attempt 2: is in metrics.jsonl more than once", 6, 0, 1},
      {3, [](const AuditedRun& run) { run.Step(3, 1, 1330); },
       "step 3 attempt 1: does not count: attempt 2 trained it again"},
      {-1,
       [](const AuditedRun& run) {
         run.Step(5, 2, 3830, PlannedDigest(5), "metrics.redone.jsonl");
       },
       "step 5 attempt 2: was set aside as lost, but"},
      {5, [](const AuditedRun& run) { run.Step(5, 2, 3830, "00000000deadbeef"); },
       "step 5 attempt 2: read samples 00000000deadbeef, planned are 0000000000001005"},
      {-1,
       [](const AuditedRun& run) {
         run.Record("start", 5000, R"("attempt":3,"ranks":1)");
         run.Record("train", 5100, R"("attempt":3,"step":9)");
       },
       "step 9 attempt 3: continues after this step, but only 6 were trained"},
      {-1,
       [](const AuditedRun& run) {
         run.Record("trained", 4350, R"("attempt":2,"first_step":4,"last_step":6)");
       },
       "step 4 attempt 2: the ledger's steps (4, 6]"},
      // A torn line in the middle.
      {6,
       [](const AuditedRun& run) {
         run.Append("metrics.jsonl", "{\"step\":6,\"los\n");
         run.Record("start", 5000, R"("attempt":3,"ranks":1)");
         run.Record("train", 5100, R"("attempt":3,"step":6)");
         run.Step(7, 3, 5300);
       },
       "step 6 attempt 2: has no line", 7, 1},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.problem);
    const KilledRun run(one.left_out_step);
    one.spoil(run);
    const SampleAudit audit = Audit(run);
    EXPECT_THAT(Problems(audit), HasSubstr(one.problem));
    EXPECT_EQ(audit.steps, one.steps);
    EXPECT_EQ(audit.omissions, one.omissions);
    EXPECT_EQ(audit.duplicates, one.duplicates);
  }
}

// A start that found the ledger gone says so; the steps before it are one problem, not one each.
TEST(SampleAudit, ProvesNothingOfWhatALostLedgerHeld) {
  const AuditedRun run;
  for (int64_t step = 1; step <= 4; ++step) run.Step(step, 1, 1000 + 110 * step);
  run.Record("created", 3000, R"("run_id":"r")");
  run.Record("lost", 3000, R"("attempt":2,"step":4,"detail":"it is gone")");
  run.Record("start", 3000, R"("run_id":"r","attempt":2,"ranks":1)");
  run.Record("train", 3500, R"("attempt":2,"step":4)");
  for (int64_t step = 5; step <= kSteps; ++step) run.Step(step, 2, 3500 + 110 * step);
  const std::string problems = Problems(Audit(run));
  EXPECT_THAT(problems, testing::HasSubstr("step 4 attempt 2: it is gone\n"));
  EXPECT_THAT(problems, testing::Not(testing::HasSubstr("no start of the ledger")));
}

// Without a plan only what was done again is compared.
TEST(SampleAudit, FindsOtherSamplesTheSecondTimeWithoutADataset) {
  const KilledRun run(5);
  run.Step(5, 2, 3830, "00000000deadbeef");
  RunHistory history = run.Read();
  EXPECT_THAT(Problems(AuditSamples(history, {})), Not(HasSubstr("deadbeef")));
  history.redone[1].samples = "00000000deadbeef";
  EXPECT_THAT(Problems(AuditSamples(history, {})),
              HasSubstr("step 4 attempt 1: read samples 00000000deadbeef, but attempt 2"));
}

TEST(SampleAudit, ListsSkippedStepsAsPlannedButNotApplied) {
  const KilledRun run(6);
  run.Append("metrics.jsonl", absl::StrCat(R"({"step":6,"attempt":2,"skipped":true,"samples":")",
                                           PlannedDigest(6), "\"}\n"));
  EXPECT_THAT(Problems(Audit(run)), HasSubstr("step 6 attempt 2: was skipped, but"));
  run.Record("skipped", 4400, R"("attempt":2,"step":6,"lanes":8,"reason":"nonfinite")");
  EXPECT_EQ(Problems(Audit(run)), "");
  EXPECT_THAT(Audit(run).skipped_steps, testing::ElementsAre(6));
  run.Record("skipped", 4400, R"("attempt":2,"step":5,"lanes":8,"reason":"nonfinite")");
  EXPECT_THAT(Problems(Audit(run)), HasSubstr("step 5 attempt 2: is skipped by the ledger"));
}

TEST(SampleAudit, LeavesOutTornLastLines) {
  const KilledRun run;
  run.Append("metrics.jsonl", R"({"step":7,"los)");
  run.Append("ledger.jsonl", R"({"event":"tra)");
  EXPECT_EQ(Problems(Audit(run)), "");
  EXPECT_THAT(run.Read().torn, testing::UnorderedElementsAre(run.path() + "/metrics.jsonl",
                                                             run.path() + "/ledger.jsonl"));
}

int64_t Ms(absl::Duration duration) { return absl::ToInt64Milliseconds(duration); }

TEST(WallTime, GivesEachSpanOfAKilledRunToItsCause) {
  const KilledRun run;
  const WallTime time = MeasureWallTime(run.Read());
  const TimeShares& shares = time.shares;
  EXPECT_EQ(Ms(time.wall), 4300);
  EXPECT_EQ(Ms(shares[kTrain]), 6 * 65);
  EXPECT_EQ(Ms(shares[kDataWait]), 6 * 10);
  EXPECT_EQ(Ms(shares[kCommunication]), 6 * 20);
  // And from the last line to the `stop`.
  EXPECT_EQ(Ms(shares[kCheckpointStall]), 6 * 5 + (4200 - 3940));
  EXPECT_EQ(Ms(shares[kEvaluation]), 0);
  EXPECT_EQ(Ms(shares[kRedone]), 2 * 100);
  EXPECT_EQ(Ms(shares[kStart]), 1000 + 10);
  EXPECT_EQ(Ms(shares[kRestart]), 3500 - 1440 + 10);
  EXPECT_EQ(Ms(shares[kStopped]), 0);
  // 10 ms after each step but the first of a start, and from `stop` to `exit`.
  EXPECT_EQ(Ms(shares[kBookkeeping]), 3 * 10 + 3 * 10 + 100);
  EXPECT_EQ(time.Sum(), time.wall);
  ASSERT_EQ(time.attempts.size(), 2u);
  EXPECT_EQ(Ms(time.attempts[0].wall), 1440);
  EXPECT_EQ(Ms(time.attempts[1].wall), 4300 - 1440);
  EXPECT_TRUE(time.AddsUp());
}

TEST(WallTime, DoesNotBlameTheRunForTheTimeItWasAskedToStop) {
  const KilledRun run;
  run.Record("start", 104300, R"("attempt":3,"ranks":1)");
  run.Record("stop", 104390, R"("attempt":3,"exit_status":74)");  // in its set-up
  run.Record("exit", 104400, R"("attempt":3,"exit_status":74)");
  const WallTime time = MeasureWallTime(run.Read());
  EXPECT_EQ(Ms(time.shares[kStopped]), 100000);
  EXPECT_EQ(Ms(time.shares[kRedone]), 2 * 100);
  EXPECT_EQ(Audit(run).problems.size(), 0u);
  EXPECT_EQ(Ms(time.shares[kRestart]), 3500 - 1440 + 10 + 100);
  EXPECT_EQ(time.Sum(), time.wall);
}

TEST(WallTime, CountsEvaluationsOnce) {
  const KilledRun run;
  RunHistory history = run.Read();
  history.metrics[1].held_out.emplace().ms = 7;
  const WallTime time = MeasureWallTime(history);
  EXPECT_EQ(Ms(time.shares[kEvaluation]), 7);
  EXPECT_EQ(time.Sum(), time.wall);
}

TEST(WallTime, GivesAnEvaluationThatAStopCutOffToTheStartThatMadeUpForIt) {
  const KilledRun run;
  RunHistory history = run.Read();
  history.metrics[1].held_out = {.ms = 200, .attempt = 2};
  const WallTime time = MeasureWallTime(history);
  EXPECT_EQ(Ms(time.attempts[0].shares[kEvaluation]), 0);
  EXPECT_EQ(Ms(time.attempts[1].shares[kEvaluation]), 200);
  EXPECT_EQ(Ms(time.shares[kRestart]), 3500 - 1440 + 10 - 200);
  EXPECT_EQ(Ms(time.shares[kBookkeeping]), 3 * 10 + 3 * 10 + 100);
  EXPECT_EQ(time.Sum(), time.wall);
}

TEST(WallTime, SeesPartsThatAreLongerThanTheWhole) {
  const KilledRun run;
  RunHistory history = run.Read();
  history.metrics[3].step_ms += 200;  // 60 ms of bookkeeping cannot hide it
  EXPECT_FALSE(MeasureWallTime(history).AddsUp());
}

// What is printed, and how it ends.
std::pair<std::string, absl::Status> Printed(const LedgerReportOptions& options) {
  testing::internal::CaptureStdout();
  const absl::Status status = PrintLedgerReport(options);
  return {testing::internal::GetCapturedStdout(), status};
}

TEST(LedgerReport, EndsWith65AndNamesTheStepOfABadRun) {
  const KilledRun run(5);
  const auto [text, status] = Printed({run.path(), "", false});
  EXPECT_THAT(status, Exits(kExitData, "first of step 5"));
  EXPECT_THAT(text, HasSubstr("problem      step 5, attempt 2: has no line"));
  EXPECT_THAT(text, HasSubstr("1 omission\n"));
}

TEST(LedgerReport, SaysWhyNothingWasComparedWithThePlan) {
  const KilledRun run;
  const auto [text, status] = Printed({run.path(), "", false});
  EXPECT_EQ(status, absl::OkStatus());
  EXPECT_THAT(text, HasSubstr("only compared between starts"));
  EXPECT_THAT(text, HasSubstr("no-shards"));
  EXPECT_FALSE(PrintLedgerReport({run.path(), run.path() + "/no-shards", false}).ok());
}

TEST(LedgerReport, SaysHowManyCheckpointsWereVerifiedIfTheyWere) {
  const KilledRun run;
  for (const bool json : {false, true}) {
    EXPECT_THAT(Printed({run.path(), "", json, 3}).first,
                HasSubstr(json ? "\"verified_checkpoints\": 3"
                               : "verified     every byte of 3 checkpoints agrees"));
    EXPECT_THAT(Printed({run.path(), "", json}).first, Not(HasSubstr("verified")));
  }
}

}  // namespace
}  // namespace anyorder::launcher
