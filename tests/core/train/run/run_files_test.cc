// The files of a run directory: ledger, metrics, TensorBoard records, loss curve.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "ckpt/crc32c.h"
#include "core/train/logging/loss_plot.h"
#include "core/train/logging/progress.h"
#include "core/train/logging/tensorboard_writer.h"
#include "core/train/run/ledger.h"
#include "core/train/run/metrics.h"

namespace anyorder {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunFilesTest : public ::testing::Test {
 protected:
  RunFilesTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = fs::path(::testing::TempDir()) / (std::string("run_files.") + info->name());
    fs::remove_all(directory_);
    fs::create_directories(directory_);
  }
  ~RunFilesTest() override { fs::remove_all(directory_); }

  std::string Path(const char* name) const { return (directory_ / name).string(); }
  static std::string Read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }

  void AppendLedger(std::vector<LedgerRecord> records) const {
    absl::StatusOr<Ledger> ledger = Ledger::Open(Path("ledger"));
    ASSERT_TRUE(ledger.ok()) << ledger.status();
    for (LedgerRecord& record : records)
      ASSERT_TRUE(ledger->Append(record).ok());
  }
  void AppendMetrics(int64_t first, int64_t last) const {
    absl::StatusOr<MetricsLog> log = MetricsLog::Open(Path("metrics"));
    ASSERT_TRUE(log.ok()) << log.status();
    for (int64_t step = first; step <= last; ++step) {
      StepMetrics metrics;
      metrics.step = step;
      metrics.loss = 1.0 / static_cast<double>(step);
      ASSERT_TRUE(log->Append(metrics).ok());
    }
  }

  fs::path directory_;
};

LedgerRecord Record(const char* event, int64_t attempt, int64_t step = -1) {
  LedgerRecord record;
  record.event = event;
  record.attempt = attempt;
  record.step = step;
  return record;
}

TEST_F(RunFilesTest, LedgerGivesBackWhatWasAppended) {
  LedgerRecord created = Record("created", -1);
  created.run_id = "name \"with\" quotes";
  AppendLedger({created, Record("start", 1)});
  AppendLedger({Record("commit", 1, 40), Record("start", 2), Record("commit", 2, 20)});
  const auto records = ReadLedger(Path("ledger"));
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 5u);
  EXPECT_FALSE((*records)[0].time.empty());
  const LedgerSummary summary = Summarize(*records);
  EXPECT_EQ(summary.run_id, created.run_id);
  EXPECT_EQ(summary.attempts, 2);
  EXPECT_EQ(summary.committed_step, 40);
}

TEST_F(RunFilesTest, StartRecordNamesItsSlurmJobAndNodesOnlyUnderSlurm) {
  LedgerRecord start = Record("start", 1);
  AppendLedger({start});
  EXPECT_EQ(Read(Path("ledger")).find("slurm"), std::string::npos);
  EXPECT_EQ(Read(Path("ledger")).find("nodes"), std::string::npos);
  start.slurm_job = 4711;
  start.slurm_restart = 0;
  start.nodes = {"n2", "n1"};
  AppendLedger({start});
  const auto records = ReadLedger(Path("ledger"));
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ((*records)[0].slurm_job, -1);
  EXPECT_EQ((*records)[1].slurm_job, 4711);
  EXPECT_EQ((*records)[1].slurm_restart, 0);
  EXPECT_EQ((*records)[1].nodes, start.nodes);
}

TEST_F(RunFilesTest, MissingLedgerIsARunThatNeverStarted) {
  const auto records = ReadLedger(Path("ledger"));
  ASSERT_TRUE(records.ok());
  EXPECT_EQ(Summarize(*records).attempts, 0);
  EXPECT_EQ(Summarize(*records).committed_step, -1);
}

TEST_F(RunFilesTest, TornLastLedgerLineIsLeftOutAndCutOffByTheNextAppend) {
  AppendLedger({Record("start", 1), Record("commit", 1, 5)});
  const std::string whole = Read(Path("ledger"));
  Write(Path("ledger"), whole.substr(0, whole.size() - 7));
  EXPECT_EQ(ReadLedger(Path("ledger"))->size(), 1u);
  AppendLedger({Record("start", 2)});
  const auto records = ReadLedger(Path("ledger"));
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(Summarize(*records).attempts, 2);
}

TEST_F(RunFilesTest, AnyChangedLedgerByteIsDataLossWithItsLine) {
  AppendLedger({Record("start", 1), Record("commit", 1, 5), Record("start", 2)});
  const std::string whole = Read(Path("ledger"));
  const size_t second_line = whole.find('\n') + 1;
  const size_t third_line = whole.find('\n', second_line) + 1;
  for (size_t at = second_line; at + 1 < third_line; ++at) {
    std::string damaged = whole;
    damaged[at] ^= 1;
    Write(Path("ledger"), damaged);
    const auto records = ReadLedger(Path("ledger"));
    EXPECT_TRUE(absl::IsDataLoss(records.status())) << "byte " << at << ": " << records.status();
    EXPECT_THAT(std::string(records.status().message()), HasSubstr("ledger:2")) << at;
  }
}

TEST_F(RunFilesTest, MetricsKeepEveryDigit) {
  AppendMetrics(1, 3);
  const auto metrics = ReadMetrics(Path("metrics"));
  ASSERT_TRUE(metrics.ok());
  ASSERT_EQ(metrics->size(), 3u);
  EXPECT_EQ((*metrics)[2].loss, 1.0 / 3);
}

TEST_F(RunFilesTest, LossThatIsNoNumberStaysOne) {
  absl::StatusOr<MetricsLog> log = MetricsLog::Open(Path("metrics"));
  StepMetrics metrics;
  metrics.loss = std::nan("");
  metrics.skipped = true;
  ASSERT_TRUE(log->Append(metrics).ok());
  const auto read = ReadMetrics(Path("metrics"));
  ASSERT_EQ(read->size(), 1u);
  EXPECT_TRUE(std::isnan((*read)[0].loss));
  EXPECT_TRUE((*read)[0].skipped);
}

TEST_F(RunFilesTest, NextSentenceFiguresAreThereOnlyWhereTheyAreLearnt) {
  absl::StatusOr<MetricsLog> log = MetricsLog::Open(Path("metrics"));
  StepMetrics metrics;
  ASSERT_TRUE(log->Append(metrics).ok());
  metrics.next_sentence = {0.6875, 0.5};
  ASSERT_TRUE(log->Append(metrics).ok());
  metrics.next_sentence->loss = std::nan("");
  ASSERT_TRUE(log->Append(metrics).ok());
  const std::string text = Read(Path("metrics"));
  EXPECT_NE(text.find("\"nsp_loss\":0.6875,\"nsp_accuracy\":0.5"), std::string::npos);
  EXPECT_GT(text.find("nsp_"), text.find('\n'));
  const auto read = ReadMetrics(Path("metrics"));
  ASSERT_EQ(read->size(), 3u);
  EXPECT_FALSE((*read)[0].next_sentence.has_value());
  ASSERT_TRUE((*read)[1].next_sentence.has_value());
  EXPECT_EQ((*read)[1].next_sentence->loss, 0.6875);
  EXPECT_EQ((*read)[1].next_sentence->accuracy, 0.5);
  EXPECT_TRUE(std::isnan((*read)[2].next_sentence->loss));
}

TEST_F(RunFilesTest, LossesOfTheirOwnNamesAreGivenBack) {
  absl::StatusOr<MetricsLog> log = MetricsLog::Open(Path("metrics"));
  StepMetrics metrics;
  ASSERT_TRUE(log->Append(metrics).ok());
  metrics.losses = {{"par", 2.5}, {"ae", std::nan("")}};
  metrics.held_out.emplace();
  metrics.held_out->loss_forward = 3.5;
  metrics.held_out->losses = {{"par", 1.25}, {"ae", 0.75}};
  ASSERT_TRUE(log->Append(metrics).ok());
  const std::string text = Read(Path("metrics"));
  EXPECT_THAT(text, HasSubstr("\"loss_par\":2.5,\"loss_ae\":null"));
  EXPECT_THAT(text, HasSubstr("\"eval_loss_par\":1.25,\"eval_loss_ae\":0.75"));
  const auto read = ReadMetrics(Path("metrics"));
  ASSERT_EQ(read->size(), 2u);
  EXPECT_TRUE((*read)[0].losses.empty());
  const StepMetrics& with = (*read)[1];
  ASSERT_EQ(with.losses.size(), 2u);
  EXPECT_EQ(with.losses[0].name, "par");
  EXPECT_EQ(with.losses[0].nats, 2.5);
  EXPECT_EQ(with.losses[1].name, "ae");
  EXPECT_TRUE(std::isnan(with.losses[1].nats));
  EXPECT_EQ(with.held_out->loss_forward, 3.5);
  ASSERT_EQ(with.held_out->losses.size(), 2u) << "a split is no loss of its own";
  EXPECT_EQ(with.held_out->losses[1].name, "ae");
  EXPECT_EQ(with.held_out->losses[1].nats, 0.75);
}

TEST_F(RunFilesTest, StepsThatAreDoneAgainLeaveOneLineEach) {
  AppendMetrics(1, 9);
  std::ofstream(Path("metrics"), std::ios::app) << "{\"step\":10,\"lo";  // torn by a crash
  ASSERT_TRUE(SetAsideLaterSteps(Path("metrics"), Path("redone"), 6).ok());
  AppendMetrics(7, 8);
  const auto metrics = ReadMetrics(Path("metrics"));
  ASSERT_EQ(metrics->size(), 8u);
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_EQ((*metrics)[i].step, i + 1);
  const auto redone = ReadMetrics(Path("redone"));
  ASSERT_EQ(redone->size(), 3u);
  EXPECT_EQ(redone->front().step, 7);
}

TEST_F(RunFilesTest, TensorboardFramesCarryMaskedChecksums) {
  const std::string record = TfRecord("hello");
  ASSERT_EQ(record.size(), 8u + 4 + 5 + 4);
  uint64_t length = 0;
  std::memcpy(&length, record.data(), 8);
  EXPECT_EQ(length, 5u);
  EXPECT_EQ(record.substr(12, 5), "hello");
  // The mask undone, as a reader does it.
  uint32_t masked = 0;
  std::memcpy(&masked, record.data() + 17, 4);
  const uint32_t rotated = masked - 0xa282ead8u;
  EXPECT_EQ(rotated >> 17 | rotated << 15, ckpt::Crc32c("hello", 5));
}

TEST_F(RunFilesTest, TensorboardFileBeginsWithItsVersion) {
  auto writer = TensorboardWriter::Create(Path("tb"), 1, 1);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE(writer->Write(3, {{"train/loss", 2.5}}).ok());
  const std::string text = Read(fs::directory_iterator(Path("tb"))->path().string());
  EXPECT_NE(text.find("brain.Event:2"), std::string::npos);
  float value = 0;
  const size_t tag = text.find("train/loss");
  ASSERT_NE(tag, std::string::npos);
  std::memcpy(&value, text.data() + tag + 10 + 1, 4);  // tag, then key 0x15
  EXPECT_EQ(value, 2.5f);
}

TEST(LossPlotTest, CurvesStayInsideTheFrameAndSkipWhatIsNoNumber) {
  std::vector<StepMetrics> metrics(5000);
  for (size_t i = 0; i < metrics.size(); ++i) {
    metrics[i].step = static_cast<int64_t>(i) + 1;
    metrics[i].loss = i % 7 == 0 ? std::nan("") : 9.0 - std::log(static_cast<double>(i));
  }
  const std::string svg = LossPlot(metrics, "a < b & c");
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  EXPECT_LT(svg.size(), 40000u);
}

TEST(LossPlotTest, NoStepsAndOneStepAreDrawnToo) {
  EXPECT_THAT(LossPlot({}, "empty"), HasSubstr("</svg>"));
  StepMetrics one;
  one.step = 1;
  one.loss = 3;
  const std::string svg = LossPlot({one}, "one");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(ProgressTest, LineTellsStepLossSpeedAndTimeLeft) {
  const Progress progress(100, 400, false, 10);
  StepMetrics metrics;
  metrics.step = 200;
  metrics.loss = 6.25;
  metrics.tokens_per_second = 5000;
  // 100 steps took 50 s, so the 200 left take 100 s.
  EXPECT_EQ(progress.Line(metrics, absl::Seconds(50)),
            "step 200/400  loss 6.2500  5000 tokens/s  ETA 1m40s");
}

}  // namespace
}  // namespace anyorder
