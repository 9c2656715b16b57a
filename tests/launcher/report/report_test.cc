// `anyorder report`: curves of any length in a bounded number of points that still show every
// spike, and text that no page can be broken with. How the page looks and behaves in a browser:
// check_report.py.

#include "launcher/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "core/base/whole_file.h"
#include "launcher/report/report_data.h"
#include "tests/launcher/inspect/written_run.h"
#include "tests/testing/status_matchers.h"

namespace anyorder::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsNan;
using testing::Not;

std::array<double, kNumReportCurves> All(double value) {
  std::array<double, kNumReportCurves> values;
  values.fill(value);
  return values;
}

TEST(Downsampler, AMillionStepsKeepEveryExtremeAndSumInFewBuckets) {
  constexpr int64_t kSteps = 1'000'000;
  Downsampler downsampler(1000);
  double sum = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    // Eighths add up exactly.
    const double value = step == 777'777 ? 1e6 : step == 3 ? -1e6 : static_cast<double>(step % 8);
    sum += value;
    downsampler.Add(0.5 * static_cast<double>(step), step, 1, All(value));
  }
  const std::vector<Bucket>& buckets = downsampler.buckets();
  EXPECT_LT(buckets.size(), 1000u);
  EXPECT_GE(buckets.size(), 450u);
  Extent all;
  int64_t next = 1;
  for (const Bucket& bucket : buckets) {
    all.Add(bucket.curves[kGradNormCurve]);
    EXPECT_EQ(bucket.first_step, next);
    EXPECT_EQ(bucket.steps, bucket.last_step - bucket.first_step + 1);
    EXPECT_EQ(bucket.begin, 0.5 * static_cast<double>(bucket.first_step));
    EXPECT_EQ(bucket.end, 0.5 * static_cast<double>(bucket.last_step));
    next = bucket.last_step + 1;
  }
  EXPECT_EQ(next, kSteps + 1);
  EXPECT_EQ(all.max, 1e6);
  EXPECT_EQ(all.min, -1e6);
  EXPECT_EQ(all.sum, sum);
  EXPECT_EQ(all.count, kSteps);
}

TEST(Downsampler, FewStepsStayAsTheyAre) {
  Downsampler downsampler(100);
  for (int64_t step = 1; step <= 99; ++step) downsampler.Add(0, step, 1, All(0));
  EXPECT_EQ(downsampler.buckets().size(), 99u);
}

TEST(Downsampler, ABucketIsOfOneStart) {
  Downsampler downsampler(64);
  for (int64_t step = 0; step < 5000; ++step) downsampler.Add(0, step, step / 1300, All(0));
  for (const Bucket& bucket : downsampler.buckets())
    EXPECT_EQ(bucket.first_step / 1300, bucket.last_step / 1300);
  EXPECT_LT(downsampler.buckets().size(), 64u);
}

TEST(Downsampler, EndlessShortStartsAreBoundedToo) {
  for (const int64_t steps_per_start : {1, 3, 33}) {
    Downsampler downsampler(64);
    for (int64_t step = 0; step < 20000; ++step) {
      downsampler.Add(0, step, step / steps_per_start, All(0));
      ASSERT_LT(downsampler.buckets().size(), 64u);
    }
    EXPECT_GE(downsampler.buckets().size(), 16u) << steps_per_start;
  }
}

TEST(Downsampler, WhatIsNotFiniteIsCountedAndChangesNothingElse) {
  Downsampler downsampler(4);
  for (const double value : {1.0, std::nan(""), std::numeric_limits<double>::infinity(), 3.0})
    downsampler.Add(0, 1, 1, All(value));
  Extent all;
  for (const Bucket& bucket : downsampler.buckets()) all.Add(bucket.curves[kLossCurve]);
  EXPECT_EQ(all.not_finite, 2);
  EXPECT_EQ(all.min, 1);
  EXPECT_EQ(all.max, 3);
  EXPECT_EQ(all.Mean(), 2);
  EXPECT_TRUE(std::isnan(Extent().Mean()));
}

TEST(Smoothed, FollowsALevelAndDoesNotLagBehindASlope) {
  Downsampler level(100);
  Downsampler slope(2000);
  for (int64_t step = 0; step < 1200; ++step) {
    level.Add(0, step, 1, All(2.5));
    slope.Add(0, step, 1, All(static_cast<double>(step)));
  }
  // Weights that sum to one: rounding only.
  for (const double value : Smoothed(level.buckets(), kLossCurve)) EXPECT_NEAR(value, 2.5, 1e-12);
  // The past lags by as much as the future leads.
  EXPECT_NEAR(Smoothed(slope.buckets(), kLossCurve)[600], 600, 1e-3);
}

TEST(Smoothed, StepsWithoutALossAreGaps) {
  Downsampler downsampler(100);
  for (const double value : {std::nan(""), 4.0, std::nan(""), 4.0, std::nan("")})
    downsampler.Add(0, 1, 1, All(value));
  EXPECT_THAT(Smoothed(downsampler.buckets(), kLossCurve),
              ElementsAre(IsNan(), 4, IsNan(), 4, IsNan()));
  EXPECT_THAT(Smoothed({}, kLossCurve), ElementsAre());
}

TEST(Thinned, KeepsTheFirstAndTheLast) {
  EXPECT_THAT(Thinned(std::vector<int>{1, 2, 3}, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(Thinned(std::vector<int>{1, 2, 3, 4, 5}, 3), ElementsAre(1, 3, 5));
}

TEST(EscapeHtml, LeavesNothingThatMeansSomethingToABrowser) {
  EXPECT_EQ(EscapeHtml("a <b> & \"c\" 'd'"), "a &lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(EscapeHtml("tab\tline\n"), "tab\tline\n");
  EXPECT_EQ(EscapeHtml(std::string("\x1b\0", 2)), "\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(EscapeHtml("語"), "語");
}

// A crash with a lost node, a stop, a wait, and a last start.
struct EventfulRun : WrittenRun {
  EventfulRun() {
    Record("created", 0, R"("run_id":"r")");
    Record("start", 1000,
           R"("attempt":1,"ranks":4,"nodes":["n1","n2"],"slurm_job":7,"slurm_restart":0)");
    Record("train", 2000, R"("attempt":1,"step":0)");
    Step(1, 1, 2100, R"(,"grad_norm":9)");
    Record("commit", 2150, R"("attempt":1,"step":1)");
    Step(2, 1, 2200, "", "metrics.redone.jsonl");
    Record("exit", 3000, R"("attempt":1,"exit_status":137)");
    Record("start", 3000,
           R"("attempt":2,"ranks":2,"nodes":["n2"],"slurm_job":7,"slurm_restart":0)");
    Record("train", 4000, R"("attempt":2,"step":1)");
    Step(2, 2, 4100, R"(,"eval_loss":3.25,"eval_standard_error":0.5)");
    Record("skipped", 4150, R"("attempt":2,"step":2,"reason":"nonfinite","detail":"</script><b>")");
    Record("stop", 4200, R"("attempt":2,"step":2,"exit_status":75,"detail":"a signal")");
    Record("exit", 4300, R"("attempt":2,"exit_status":75)");
    Record("start", 9000, R"("attempt":3,"ranks":1,"nodes":["n9"],"slurm_job":8)");
    Record("train", 9500, R"("attempt":3,"step":2)");
    Step(3, 3, 9600);
    Step(4, 3, 9700, R"(,"loss":null)");
  }
};

TEST(ReportData, TellsStartsNodesAndTotals) {
  const EventfulRun written;
  const auto run = ReadReportRun(written.path()).value();
  EXPECT_EQ(run.run_id, "r");
  EXPECT_EQ(run.state, "stopped");
  EXPECT_EQ(run.step, 4);
  EXPECT_EQ(run.redone_steps, 1);
  EXPECT_EQ(run.restarts, 2);
  EXPECT_EQ(run.num_commits, 1);
  EXPECT_DOUBLE_EQ(run.seconds, 8.7);
  ASSERT_EQ(run.buckets.size(), 4u);
  EXPECT_EQ(run.buckets[3].curves[kLossCurve].not_finite, 1);
  EXPECT_EQ(run.lost.size(), 1u);
  ASSERT_EQ(run.evaluations.size(), 1u);
  EXPECT_EQ(run.evaluations[0].value, 3.25);
  ASSERT_EQ(run.starts.size(), 3u);
  EXPECT_THAT(run.starts[0].lost_nodes, ElementsAre("n1"));
  EXPECT_EQ(run.starts[0].last_step, 2);
  EXPECT_EQ(run.starts[0].train_begin, 1);
  // Another job's nodes are no loss.
  EXPECT_THAT(run.starts[1].lost_nodes, ElementsAre());
  EXPECT_EQ(run.starts[1].detail, "a signal");
  EXPECT_EQ(run.starts[2].exit_status, -1);
  EXPECT_DOUBLE_EQ(run.starts[2].end, 8.7);
  EXPECT_EQ(run.events.size(), 1u);
  EXPECT_TRUE(run.wall.AddsUp());
}

TEST(ReportPage, TextOfTheRunIsTextOfThePage) {
  const EventfulRun written;
  auto run = ReadReportRun(written.path()).value();
  run.name = "<img src=x onerror=alert(1)>'\"&";
  const std::string json = ReportJson({run});
  EXPECT_THAT(json, Not(HasSubstr("<")));
  EXPECT_THAT(json, HasSubstr("\\u003c/script>"));
  const std::string page = ReportPage({run}, absl::UnixEpoch());
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("</script><b>")));
  EXPECT_THAT(page, HasSubstr("&lt;img src=x onerror=alert(1)&gt;&#39;&quot;&amp;"));
  EXPECT_THAT(page, HasSubstr("&lt;/script&gt;&lt;b&gt;"));
  EXPECT_THAT(json, HasSubstr("\"mean\":[3.999,3.998,3.997,null],\"not_finite\":1"));
}

TEST(ReportPage, SaysThatAndWhyARunDiverged) {
  WrittenRun written;
  written.Record("start", 0, R"("attempt":1,"ranks":1)");
  written.Step(1, 1, 100, R"(,"task_accuracy":0.25,"tokens_per_second_per_device":640)");
  written.Step(2, 1, 200, R"(,"loss":null,"eval_loss":2,"eval_task_accuracy":0.75)");
  written.Record("stop", 300,
                 R"("attempt":1,"step":2,"exit_status":93,"reason":"diverged","detail":"<it>")");
  written.Record("exit", 400, R"("attempt":1,"exit_status":93)");
  const auto run = ReadReportRun(written.path());
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->state, "diverged");
  const std::string page = ReportPage({*run}, absl::UnixEpoch());
  EXPECT_THAT(page, HasSubstr("<p class=\"error\">&lt;it&gt;</p>"));
  EXPECT_THAT(page, HasSubstr("<dt>last loss</dt><dd>nan</dd>"));
  EXPECT_THAT(page, HasSubstr("<dt>accuracy</dt><dd>0.2500, held-out 0.7500</dd>"));
  EXPECT_THAT(page, HasSubstr("<dt>tokens/s a device</dt><dd>320</dd>"));
  EXPECT_THAT(page, Not(HasSubstr("MFU")));
  EXPECT_THAT(ReportJson({*run}), HasSubstr("\"accuracy\":{\"mean\":[0.25,null]"));
}

TEST(ReportPage, NumbersAreReadByPeople) {
  WrittenRun written;
  RunConfig config;
  config.data.shards = "x";
  config.objective.name = "gpt";
  config.model.mem_len = 0;
  config.sampling.bidirectional = false;
  config.Resolve();
  std::ofstream(written.path() + "/config.toml") << config.ToText();
  written.Record("start", 0, R"("attempt":1,"ranks":2)");
  written.Record("train", 50, R"("attempt":1,"step":0)");
  written.Step(1, 1, 100, R"(,"eval_loss":9)");
  written.Record("exit", 400, R"("attempt":1,"exit_status":0)");
  auto run = ReadReportRun(written.path());
  ASSERT_TRUE(run.ok()) << run.status();
  run->starts[0].slowest = {
      {.compute_ms = 5512.6, .data_wait_ms = 0.00002, .communication_ms = 17}};
  const std::string page = ReportPage({*run}, absl::UnixEpoch());
  EXPECT_THAT(page, HasSubstr("<dt>perplexity</dt><dd>54.54, held-out 8\u2009103</dd>"));
  EXPECT_THAT(page, HasSubstr("<td>5\u2009513</td><td>0.000</td><td>17.00</td>"));
  EXPECT_THAT(page, HasSubstr("<td>1</td><td class"));  // "steps 1", not "1 to 1"
  // Other objectives have no perplexity.
  EXPECT_THAT(ReportPage({*ReadReportRun(EventfulRun().path())}, absl::UnixEpoch()),
              Not(HasSubstr("perplexity")));
}

TEST(Report, ARunWithoutAStepHasAPage) {
  const WrittenRun run;
  run.Record("created", 0, R"("run_id":"r")");
  run.Record("start", 0, R"("attempt":1,"ranks":2)");
  ASSERT_TRUE(WriteReport({{run.path()}, ""}).ok());
  EXPECT_TRUE(std::filesystem::exists(run.path() + "/report.html"));
}

TEST(Report, ARunThatNeverStartedIsRefused) {
  const WrittenRun run;
  EXPECT_THAT(WriteReport({{run.path()}, ""}), Fails(absl::IsInvalidArgument, "never started"));
  EXPECT_FALSE(std::filesystem::exists(run.path() + "/report.html"));
}

TEST(Report, ReplacesAReportAndNothingElse) {
  const EventfulRun run;
  const std::string output = run.path() + "/out.html";
  run.Append("out.html", "a letter of mine");
  EXPECT_TRUE(absl::IsAlreadyExists(WriteReport({{run.path()}, output})));
  EXPECT_EQ(*ReadWholeFile(output, kMaxTextBytes), "a letter of mine");
  std::filesystem::remove(output);
  ASSERT_TRUE(WriteReport({{run.path()}, output}).ok());
  EXPECT_TRUE(WriteReport({{run.path()}, output}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(WriteReport({{run.path()}, run.path()})));
}

TEST(Report, SeveralRunsNeedANameAndFewAreEnough) {
  const EventfulRun run;
  EXPECT_TRUE(absl::IsInvalidArgument(WriteReport({{run.path(), run.path()}, ""})));
  EXPECT_TRUE(WriteReport({{run.path(), run.path()}, run.path() + "/both.html"}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(
      WriteReport({std::vector<std::string>(7, run.path()), run.path() + "/many.html"})));
}

}  // namespace
}  // namespace anyorder::launcher
