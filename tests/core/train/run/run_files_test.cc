// The files of a run directory: ledger, metrics, loss curve. tests/launcher/check_run.py reads the
// records for TensorBoard.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"

#include "core/train/logging/reporter.h"
#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"
#include "tests/data/dataset/dataset_files.h"
#include "tests/testing/status_matchers.h"

namespace anyorder {

namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class RunFilesTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return directory_.path() + "/" + name; }

  void AppendLedger(const std::vector<ledger::Event>& events) const {
    Ledger ledger = Ledger::Open(Path("ledger")).value();
    for (const ledger::Event& event : events) ASSERT_TRUE(ledger.Append(event).ok());
  }
  void AppendMetrics(int64_t first, int64_t last) const {
    MetricsLog log = MetricsLog::Open(Path("metrics")).value();
    for (int64_t step = first; step <= last; ++step) {
      ASSERT_TRUE(log.Append({.step = step, .loss = 1.0 / static_cast<double>(step)}).ok());
    }
  }

  const TemporaryDirectory directory_;
};

ledger::Start StartOf(int64_t attempt) { return {"", attempt, 1}; }

TEST_F(RunFilesTest, LedgerGivesBackWhatWasAppended) {
  const ledger::Created created{"name \"with\" quotes", ""};
  AppendLedger({created, StartOf(1)});
  AppendLedger({ledger::Commit{1, 40, 1, 9}, StartOf(2), ledger::Commit{2, 20, 2}});
  const auto records = ReadLedgerFile(Path("ledger")).value();
  ASSERT_EQ(records.size(), 5u);
  EXPECT_FALSE(records[0].time.empty());
  EXPECT_EQ(records[0].attempt(), -1);
  EXPECT_EQ(records[4].attempt(), 2);
  const LedgerSummary summary = Summarize(records);
  EXPECT_EQ(summary.run_id, created.run_id);
  EXPECT_EQ(summary.attempts, 2);
  EXPECT_EQ(summary.committed_step, 40);
  EXPECT_EQ(summary.stop_seconds, 9);
}

// Each event's line, without its time and checksum; FORMAT.md lists the members.
TEST_F(RunFilesTest, LedgerLinesAreThoseOfTheFormat) {
  const std::vector<std::pair<ledger::Event, std::string>> lines = {
      {ledger::Created{"r", "c"}, R"("created","run_id":"r","config_digest":"c")"},
      {ledger::Imported{"/model"}, R"("imported","detail":"/model")"},
      {ledger::Start{"r", 1, 2}, R"("start","run_id":"r","attempt":1,"ranks":2)"},
      {ledger::Start{"r", 1, 2, 4711, 0, {"n2", "n1"}},
       R"("start","run_id":"r","attempt":1,"ranks":2,"slurm_job":4711,"slurm_restart":0,)"
       R"("nodes":["n2","n1"])"},
      {ledger::Train{"r", 1, 2, 0, "c", "d", "step-0"},
       R"("train","run_id":"r","attempt":1,"ranks":2,"step":0,"config_digest":"c",)"
       R"("dataset_digest":"d","detail":"step-0")"},
      {ledger::Schedule{2, "c", "a -> b"},
       R"("schedule","attempt":2,"config_digest":"c","detail":"a -> b")"},
      {ledger::Reconfigured{2, "c", "a -> b"},
       R"("reconfigured","attempt":2,"config_digest":"c","detail":"a -> b")"},
      {ledger::Trained{1, 0, 5}, R"("trained","attempt":1,"first_step":0,"last_step":5)"},
      {ledger::Commit{-1, 0, 0}, R"("commit","step":0,"generation":0)"},
      {ledger::Commit{1, 5, 3, 8},
       R"("commit","attempt":1,"step":5,"generation":3,"stop_seconds":8)"},
      {ledger::Commit{1, 5, 3, 8, 2},
       R"("commit","attempt":1,"step":5,"generation":3,"stop_seconds":8,"trained_step":2)"},
      {ledger::Skipped{1, 4, 0, 8, "nonfinite", "why"},
       R"("skipped","attempt":1,"step":4,"rank":0,"lanes":8,"reason":"nonfinite","detail":"why")"},
      {ledger::Rollback{1, 3, 4, "why"},
       R"("rollback","attempt":1,"first_step":3,"last_step":4,"detail":"why")"},
      {ledger::Stop{1, 5, 74, 0, -1, "", "why"},
       R"("stop","attempt":1,"step":5,"exit_status":74,"may_restart":0,"detail":"why")"},
      {ledger::Stop{1, 5, 93, 0, 2, "diverged", "why"},
       R"("stop","attempt":1,"step":5,"trained_step":2,"exit_status":93,"may_restart":0,)"
       R"("reason":"diverged","detail":"why")"},
      {ledger::Exit{1, 74, "why"}, R"("exit","attempt":1,"exit_status":74,"detail":"why")"},
      {ledger::Lost{2, 4, "why"}, R"("lost","attempt":2,"step":4,"detail":"why")"},
      {ledger::Exit{1, 0}, R"("exit","attempt":1,"exit_status":0)"}};
  std::vector<ledger::Event> events;
  std::string expected;
  for (const auto& [event, line] : lines) {
    events.push_back(event);
    expected += R"({"event":)" + line + "}\n";
  }
  AppendLedger(events);
  const auto text = [this] {
    return std::regex_replace(data::ReadFile(Path("ledger")),
                              std::regex(R"re(,"(time|crc32c)":"[^"]*")re"), "");
  };
  EXPECT_EQ(text(), expected);
  // Read and written again they are the same lines.
  const auto records = ReadLedgerFile(Path("ledger")).value();
  ASSERT_EQ(records.size(), lines.size());
  events.clear();
  for (const LedgerRecord& record : records) events.push_back(record.event);
  fs::remove(Path("ledger"));
  AppendLedger(events);
  EXPECT_EQ(text(), expected);
}

// After a divergence without a good checkpoint a run begins again; what it had committed is set
// aside and no longer missed.
TEST_F(RunFilesTest, ARunThatDivergedMayBeginAgain) {
  const ledger::Stop diverged{1, 9, 93, 0, 3, ledger::Stop::kDiverged, ""};
  const auto summary = [this] { return Summarize(ReadLedgerFile(Path("ledger")).value()); };
  const auto diverged_step = [this] {
    const auto records = ReadLedgerFile(Path("ledger")).value();
    const ledger::Stop* const stop = FindDivergedStop(records);
    return stop == nullptr ? -1 : stop->trained_step;
  };
  AppendLedger({StartOf(1), ledger::Train{"r", 1, 1, 0}, ledger::Commit{1, 4, 1}});
  EXPECT_EQ(diverged_step(), -1);
  AppendLedger({diverged, ledger::Exit{1, 93}, StartOf(2)});
  EXPECT_EQ(diverged_step(), 3);
  EXPECT_EQ(summary().committed_step, 4);
  EXPECT_FALSE(summary().has_begun_again);
  // A start that ends in set-up says nothing of the weights.
  AppendLedger({ledger::Stop{2, -1, 75, -1, -1, "", "signal"}, StartOf(2)});
  EXPECT_EQ(diverged_step(), 3);
  AppendLedger({ledger::Train{"r", 2, 1, 0}});
  EXPECT_EQ(diverged_step(), -1);
  EXPECT_EQ(summary().committed_step, -1);
  EXPECT_TRUE(summary().has_begun_again);
  AppendLedger({ledger::Commit{2, 2, 1}});
  EXPECT_EQ(summary().committed_step, 2);
  EXPECT_FALSE(summary().has_begun_again);
  // From an older checkpoint: those behind it were set aside.
  AppendLedger({ledger::Commit{2, 8, 2}, ledger::Stop{2, 9, 93, 0, 7, ledger::Stop::kDiverged, ""},
                StartOf(3), ledger::Train{"r", 3, 1, 2}});
  EXPECT_EQ(summary().committed_step, 2);
  EXPECT_FALSE(summary().has_begun_again);
}

TEST_F(RunFilesTest, AnyChangedLedgerByteIsDataLossWithItsLine) {
  AppendLedger({StartOf(1), ledger::Commit{1, 5, 1}, StartOf(2)});
  const std::string whole = data::ReadFile(Path("ledger"));
  const size_t second_line = whole.find('\n') + 1;
  const size_t third_line = whole.find('\n', second_line) + 1;
  for (size_t at = second_line; at + 1 < third_line; ++at) {
    std::string damaged = whole;
    damaged[at] ^= 1;
    data::WriteFile(Path("ledger"), damaged);
    const auto records = ReadLedgerFile(Path("ledger"));
    EXPECT_THAT(records.status(), Fails(absl::IsDataLoss, "ledger:2")) << "byte " << at;
  }
}

// No write of this process gets further than `bytes` into any file, as on a disk that is full
// there.
void LimitFiles(rlim_t bytes) {
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{bytes, RLIM_INFINITY};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
}

// The launcher and rank 0 append to one ledger. A record of the one is cut short at each byte; the
// other's next one counts all the same, and so do all before.
TEST_F(RunFilesTest, LedgerSurvivesARecordThatIsCutShortAtAnyByte) {
  AppendLedger({StartOf(1)});
  const int64_t whole = data::ReadFile(Path("ledger")).size();
  Ledger launcher = Ledger::Open(Path("ledger")).value();
  Ledger rank = Ledger::Open(Path("ledger")).value();
  ASSERT_TRUE(rank.Append(ledger::Commit{1, 5, 1}).ok());
  const int64_t record = data::ReadFile(Path("ledger")).size() - whole;
  for (int64_t bytes = 1; bytes < record; ++bytes) {
    fs::resize_file(Path("ledger"), whole);
    LimitFiles(whole + bytes);
    EXPECT_FALSE(rank.Append(ledger::Commit{1, 5, 1}).ok()) << bytes;
    LimitFiles(RLIM_INFINITY);
    ASSERT_TRUE(launcher.Append(ledger::Exit{1, 74}).ok());
    ASSERT_TRUE(launcher.Append(StartOf(2)).ok());
    const auto records = ReadLedgerFile(Path("ledger"));
    ASSERT_TRUE(records.ok()) << bytes << ": " << records.status();
    // Only the newline was missing: then it is whole.
    EXPECT_EQ(records->size(), bytes == record - 1 ? 4u : 3u) << bytes;
    EXPECT_EQ(Summarize(*records).attempts, 2) << bytes;
  }
}

// Its writer looked at the end of the file before the other one's append failed there.
TEST_F(RunFilesTest, RecordInTheLineOfAFragmentCounts) {
  AppendLedger({StartOf(1), ledger::Commit{1, 5, 1}});
  const std::string whole = data::ReadFile(Path("ledger"));
  const size_t second = whole.find('\n') + 1;
  const std::string line = whole.substr(second);
  for (size_t bytes = 1; bytes + 1 < line.size(); ++bytes) {
    data::WriteFile(Path("ledger"), whole + line.substr(0, bytes) + line);
    const auto records = ReadLedgerFile(Path("ledger"));
    if (bytes + 2 == line.size()) continue;  // a whole record without its newline, as below
    ASSERT_TRUE(records.ok()) << bytes << ": " << records.status();
    EXPECT_EQ(records->size(), 3u) << bytes;
  }
  // A newline that was lost between two records is damage.
  data::WriteFile(Path("ledger"), line.substr(0, line.size() - 1) + "\t" + line);
  EXPECT_TRUE(absl::IsDataLoss(ReadLedgerFile(Path("ledger")).status()));
}

// Of what two machines append to one file of NFS the later one's record may lie over the beginning
// of the other's, of which the end is left. Whatever lies there, no later start is refused for it.
TEST_F(RunFilesTest, ARecordWhoseBeginningIsOverwrittenIsSaidToBeLost) {
  AppendLedger({StartOf(1), ledger::Exit{1, 75}});
  const std::string whole = data::ReadFile(Path("ledger"));
  AppendLedger({ledger::Stop{1, 5, 74, 0, -1, "", std::string(80, 'w')}, StartOf(2)});
  const std::string all = data::ReadFile(Path("ledger"));
  const std::string torn =
      all.substr(whole.size(), all.find('\n', whole.size()) + 1 - whole.size());
  const std::string rest = all.substr(whole.size() + torn.size());
  for (size_t at = 1; at < torn.size(); ++at) {
    data::WriteFile(Path("ledger"), whole + torn.substr(at) + rest);
    ::testing::internal::CaptureStderr();
    const auto records = ReadLedgerFile(Path("ledger"));
    const std::string said = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(records.ok()) << at << ": " << records.status();
    EXPECT_EQ(Summarize(*records).attempts, 2);
    // What is too short for a seal cannot be told from a fragment.
    const auto* const lost = (*records)[2].As<ledger::Lost>();
    EXPECT_EQ(lost != nullptr, at + sizeof(R"(,"crc32c":"00000000"})") <= torn.size()) << at;
    if (lost != nullptr) {
      EXPECT_EQ(lost->attempt, 1);
      EXPECT_THAT(lost->detail, ::testing::HasSubstr("what it said is not known"));
    }
    EXPECT_TRUE(at > 1 || absl::StrContains(said, "ledger:3: left out a record")) << said;
  }
  // Not behind a whole record, nothing can have been written over it.
  data::WriteFile(Path("ledger"), torn.substr(9) + rest);
  EXPECT_THAT(ReadLedgerFile(Path("ledger")).status(),
              Fails(absl::IsDataLoss, "ledger:1", "move it away and launch again"));
}

// Launcher and rank 0 of two machines, whose clocks nobody has compared, have a file each.
TEST_F(RunFilesTest, TheLaunchersRecordsStandAroundThoseOfItsRanks) {
  const RunDirectory paths(directory_.path());
  const auto append = [](const std::string& path, const std::vector<ledger::Event>& events) {
    Ledger ledger = Ledger::Open(path).value();
    for (const ledger::Event& event : events) ASSERT_TRUE(ledger.Append(event).ok());
  };
  const auto train = [](int64_t attempt) { return ledger::Train{"r", attempt, 1, 0}; };
  // Of a start on one machine, as it was always: an import, too.
  append(paths.ledger, {ledger::Created{"r", ""}, ledger::Commit{-1, 0, 0}, StartOf(1), train(1),
                        ledger::Exit{1, 75}});
  append(paths.launcher_ledger, {StartOf(2), ledger::Schedule{2, "c", "d"}, ledger::Exit{2, 74},
                                 StartOf(3), StartOf(4), ledger::Straggler{4, 1, 2, 0, ""}});
  append(paths.ledger, {train(2), ledger::Stop{2, 5, 74}, train(4), ledger::Commit{4, 5, 4}});
  append(paths.ledger, {StartOf(5), train(5)});
  std::string order;
  const auto records = ReadLedger(paths).value();
  for (const LedgerRecord& record : records)
    std::visit([&](const auto& kind) { absl::StrAppend(&order, " ", kind.kName); }, record.event);
  EXPECT_EQ(order,
            " created commit start train exit start schedule train stop exit start start train "
            "commit straggler start train");
  EXPECT_EQ(Summarize(records).attempts, 5);
  // The torn end of either is cut off by its next writer, who says so.
  for (const std::string& path : {paths.ledger, paths.launcher_ledger}) {
    const std::string whole = data::ReadFile(path);
    data::WriteFile(path, whole + R"({"event":"st)");
    EXPECT_EQ(ReadLedger(paths)->size(), records.size());
    ::testing::internal::CaptureStderr();
    ASSERT_TRUE(Ledger::Open(path).ok());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                ::testing::HasSubstr(absl::StrCat(path, "': cut off 12 bytes")));
    EXPECT_EQ(data::ReadFile(path), whole);
  }
}

TEST_F(RunFilesTest, MetricsThatDidNotFitAreWrittenOnceThereIsRoom) {
  AppendMetrics(1, 3);
  MetricsLog log = MetricsLog::Open(Path("metrics")).value();
  const auto append = [&log](int64_t step) { return log.Append({.step = step, .loss = 2}); };
  const int64_t whole = data::ReadFile(Path("metrics")).size();
  ASSERT_TRUE(append(4).ok());
  const int64_t line = data::ReadFile(Path("metrics")).size() - whole;
  int64_t step = 4;
  for (int64_t bytes = 0; bytes < line; ++bytes) {
    LimitFiles(data::ReadFile(Path("metrics")).size() + bytes);
    EXPECT_FALSE(append(++step).ok()) << bytes;
    EXPECT_FALSE(log.Sync().ok());
    EXPECT_LT(log.durable_step(), step) << bytes;
    LimitFiles(RLIM_INFINITY);
    ASSERT_TRUE(append(++step).ok());
    ASSERT_TRUE(log.Sync().ok());
    EXPECT_EQ(log.durable_step(), step);
  }
  const auto metrics = ReadMetrics(Path("metrics")).value();
  ASSERT_EQ(static_cast<int64_t>(metrics.size()), step);
  for (int64_t i = 0; i < step; ++i) EXPECT_EQ(metrics[i].step, i + 1);
}

TEST_F(RunFilesTest, MetricsKeepEveryDigitAndALossThatIsNoNumber) {
  AppendMetrics(1, 3);
  StepMetrics metrics = {.loss = std::nan(""), .skipped = true};
  ASSERT_TRUE(MetricsLog::Open(Path("metrics"))->Append(metrics).ok());
  const auto read = ReadMetrics(Path("metrics"));
  ASSERT_EQ(read->size(), 4u);
  EXPECT_EQ((*read)[2].loss, 1.0 / 3);
  EXPECT_TRUE(std::isnan((*read)[3].loss));
  EXPECT_TRUE((*read)[3].skipped);
}

// mfu is there only where the device's peak is known.
TEST_F(RunFilesTest, MetricsHaveTheSpeedOfADevice) {
  MetricsLog log = MetricsLog::Open(Path("metrics")).value();
  ASSERT_TRUE(log.Append({.step = 1, .tokens_per_second_per_device = 250}).ok());
  ASSERT_TRUE(log.Append({.step = 2, .mfu = 0.375}).ok());
  const auto read = ReadMetrics(Path("metrics")).value();
  EXPECT_EQ(read[0].tokens_per_second_per_device, 250);
  EXPECT_EQ(read[1].mfu, 0.375);
  EXPECT_TRUE(read[1].means.empty());
  const std::string text = data::ReadFile(Path("metrics"));
  EXPECT_GT(text.find("\"mfu\":0.375"), text.find('\n'));
}

TEST_F(RunFilesTest, FiguresOfHeadsAreGivenBackByTheirNames) {
  absl::StatusOr<MetricsLog> log = MetricsLog::Open(Path("metrics"));
  StepMetrics metrics;
  ASSERT_TRUE(log->Append(metrics).ok());
  metrics.means = {{"loss_par", 2.5}, {"loss_ae", std::nan("")}, {"nsp_accuracy", 0.5}};
  metrics.held_out.emplace();
  metrics.held_out->means = {{"loss_forward", 3.5}, {"loss_par", 1.25}};
  ASSERT_TRUE(log->Append(metrics).ok());
  const std::string text = data::ReadFile(Path("metrics"));
  EXPECT_THAT(text, HasSubstr("\"loss_par\":2.5,\"loss_ae\":null,\"nsp_accuracy\":0.5"));
  EXPECT_THAT(text, HasSubstr("\"eval_loss_forward\":3.5,\"eval_loss_par\":1.25"));
  EXPECT_GT(text.find("nsp_"), text.find('\n'));
  const auto read = ReadMetrics(Path("metrics"));
  ASSERT_EQ(read->size(), 2u);
  EXPECT_TRUE((*read)[0].means.empty());
  const auto expect_means = [](const std::vector<NamedMean>& means,
                               const std::vector<NamedMean>& expected) {
    ASSERT_EQ(means.size(), expected.size());
    for (size_t i = 0; i < means.size(); ++i) {
      EXPECT_EQ(means[i].name, expected[i].name);
      EXPECT_TRUE(means[i].value == expected[i].value || std::isnan(expected[i].value)) << i;
      EXPECT_EQ(std::isnan(means[i].value), std::isnan(expected[i].value)) << i;
    }
  };
  expect_means((*read)[1].means, metrics.means);
  ASSERT_TRUE((*read)[1].held_out.has_value());
  expect_means((*read)[1].held_out->means, metrics.held_out->means);
}

TEST_F(RunFilesTest, StepsThatAreDoneAgainLeaveOneLineEach) {
  AppendMetrics(1, 9);
  std::ofstream(Path("metrics"), std::ios::app) << "{\"step\":10,\"lo";  // torn by a crash
  ASSERT_TRUE(SetAsideLaterSteps(Path("metrics"), Path("redone"), 6).ok());
  AppendMetrics(7, 8);
  const auto metrics = ReadMetrics(Path("metrics"));
  ASSERT_EQ(metrics->size(), 8u);
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ((*metrics)[i].step, i + 1);
  const auto redone = ReadMetrics(Path("redone"));
  ASSERT_EQ(redone->size(), 3u);
  EXPECT_EQ(redone->front().step, 7);
}

// The line of its step gets the evaluation, and is otherwise as it was, like all others.
TEST_F(RunFilesTest, AnEvaluationIsPutIntoTheLineThatLacksIt) {
  AppendMetrics(1, 3);
  const std::string before = data::ReadFile(Path("metrics"));
  HeldOutMetrics held_out = {.loss = 2.5, .attempt = 7, .means = {{"task_accuracy", 0.75}}};
  ASSERT_TRUE(AddHeldOut(Path("metrics"), 2, held_out).ok());
  const auto metrics = ReadMetrics(Path("metrics"));
  ASSERT_EQ(metrics->size(), 3u);
  EXPECT_EQ((*metrics)[1].held_out->loss, 2.5);
  EXPECT_EQ((*metrics)[1].held_out->attempt, 7);
  EXPECT_EQ((*metrics)[1].held_out->means.size(), 1u);  // a start's number is no figure
  std::string after = data::ReadFile(Path("metrics"));
  const size_t added = after.find(",\"eval_loss\"");
  ASSERT_NE(added, std::string::npos);
  EXPECT_THAT(after.substr(added), HasSubstr("\"eval_task_accuracy\":0.75"));
  after.erase(added, after.find('}', added) - added);
  EXPECT_EQ(after, before);
}

// How often `part` is in `text`.
int64_t CountOf(const std::string& part, const std::string& text) {
  return std::ssize(std::vector<std::string>(absl::StrSplit(text, part))) - 1;
}

TEST(ProgressTest, LineTellsStepLossSpeedAndTimeLeft) {
  const Progress progress(100, 400, false, 10);
  const StepMetrics metrics = {.step = 200, .loss = 6.25, .tokens_per_second = 5000};
  // 100 steps took 50 s, so the 200 left take 100 s.
  EXPECT_EQ(progress.Line(metrics, absl::Seconds(50)),
            "step 200/400  loss 6.2500  5000 tokens/s  ETA 1m40s");
}

TEST(ProgressTest, LineHasAccuracyAndNoSignOfANan) {
  const Progress progress(0, 4, false, 10);
  StepMetrics metrics = {.step = 2,
                         .loss = -NAN,
                         .tokens_per_second = 5000,
                         .means = {{"loss_task", 0.5}, {"task_accuracy", 0.8125}}};
  EXPECT_EQ(progress.Line(metrics, absl::Seconds(2)),
            "step 2/4  loss nan, accuracy 0.8125  5000 tokens/s  ETA 2s");
}

// A line for the first step, for each that log_every divides, and for the last, however long they
// take; tokens a second are those since the line before.
TEST(ProgressTest, LinesComeEveryLogEverySteps) {
  Progress progress(3, 25, false, 10);
  ::testing::internal::CaptureStderr();
  for (int64_t step = 4; step <= 25; ++step)
    progress.Update({.step = step, .tokens = 10, .step_ms = step == 20 ? 910.0 : 10.0});
  const std::string printed = ::testing::internal::GetCapturedStderr();
  // The log may tell how often it left out lines of earlier tests.
  EXPECT_EQ(CountOf("/25 ", printed), 4);
  for (const char* line : {"step 4/25  loss 0.0000  1000 tokens/s", "step 10/25",
                           "step 20/25  loss 0.0000  100 tokens/s", "step 25/25"})
    EXPECT_THAT(printed, HasSubstr(line));
}

TEST(StopBudgetTest, LeavesOutOneOutlierInAHundredButNotTwo) {
  StopBudget budget;
  for (int i = 0; i < 99; ++i) budget.AddStep(500);
  EXPECT_EQ(budget.Seconds(), 0) << "before the first commit";
  budget.AddCommit(2);
  budget.AddStep(60000);
  EXPECT_EQ(budget.Seconds(), 1.5 * (0.5 + 2) + StopBudget::kEndSeconds);
  budget.AddStep(60000);
  EXPECT_EQ(budget.Seconds(), 1.5 * (60 + 2) + StopBudget::kEndSeconds);
}

}  // namespace

}  // namespace anyorder
