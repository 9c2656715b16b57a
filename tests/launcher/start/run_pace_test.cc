#include "launcher/start/run_pace.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

#include "ckpt/layout.h"
#include "core/base/unique_fd.h"
#include "core/base/whole_file.h"
#include "core/train/run/run_directory.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Samples by "name{labels}", labels as they stand there. Fails on whatever the text format does not
// allow: a name without HELP and TYPE before it, samples of a name that are apart, the same one
// twice, a label that is not escaped, a counter without _total, a last line without its end.
std::map<std::string, double> ParsePrometheus(const std::string& text) {
  static const std::regex help("# HELP ([a-z_]+) [^\n]+");
  static const std::regex type("# TYPE ([a-z_]+) (gauge|counter)");
  static const std::regex sample(
      R"re(([a-z_]+)(\{[a-z]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z]+="(?:[^"\\\n]|\\["\\n])*")*\}) (\S+))re");
  std::map<std::string, double> samples;
  std::set<std::string> names;
  std::string current;
  bool has_type = false;
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(text, '\n', absl::SkipEmpty()))) {
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      current = match[1];
      has_type = false;
      EXPECT_TRUE(names.insert(current).second) << line;
    } else if (std::regex_match(line, match, type)) {
      EXPECT_EQ(match[1], current) << line;
      EXPECT_EQ(match[2] == "counter", absl::EndsWith(current, "_total")) << line;
      has_type = true;
    } else if (std::regex_match(line, match, sample)) {
      EXPECT_TRUE(match[1] == current && has_type) << line;
      double value = 0;
      EXPECT_TRUE(match[3] == "NaN" || absl::SimpleAtod(match[3].str(), &value)) << line;
      if (match[3] == "NaN") value = std::nan("");
      EXPECT_TRUE(samples.emplace(match[1].str() + match[2].str(), value).second) << line;
    } else {
      ADD_FAILURE() << "no line of the text format: " << line;
    }
  }
  return samples;
}

TEST(PrometheusTextTest, LabelsAreEscapedAndNumbersSpelledOut) {
  RunFacts facts;
  facts.run_id = "a\"b\\c\nd";
  facts.last.emplace().loss = std::nan("");
  facts.last->step = 123'456'789;
  facts.last->time = "1970-01-02T00:00:00.250Z";
  const auto samples = ParsePrometheus(PrometheusText(facts));
  const std::string labels = R"({run="a\"b\\c\nd"})";
  EXPECT_EQ(samples.at("anyorder_step" + labels), 123'456'789);
  EXPECT_TRUE(std::isnan(samples.at("anyorder_loss" + labels)));
  EXPECT_EQ(samples.at("anyorder_step_timestamp_seconds" + labels), 86'400.25);
  EXPECT_EQ(samples.count("anyorder_checkpoint_committed_step" + labels), 0u);
}

class PaceRecorderTest : public ::testing::Test {
 protected:
  PaceRecorderTest() {
    for (int node = 0; node < 2; ++node) {
      liveness::NodeReport& report = health_.emplace_back();
      report.node = node;
      report.host = absl::StrCat("n", node);
      report.file_wait = absl::Seconds(12 * node);
      for (int i = 0; i < 2; ++i) {
        liveness::RankState& state = report.ranks.emplace_back().state;
        state.rank = 2 * node + i;
        state.host = report.host;
        state.process_id = 100 + state.rank;
      }
    }
  }

  PaceRecorderOptions Options() const { return {run_dir_, "r1", 3, 4, 1.2, absl::Hours(1)}; }
  // Steps in which rank 3 computes for `slow_ms`, the others 100 ms. What is said.
  std::vector<std::string> Run(PaceRecorder& recorder, int steps, int slow_ms) {
    std::vector<std::string> said;
    for (int step = 0; step < steps; ++step) {
      for (liveness::NodeReport& node : health_) {
        for (liveness::RankReport& rank : node.ranks) {
          ++rank.state.ticks;
          liveness::RankTimes& times = rank.state.times;
          ++times.steps;
          times.compute_ns += (rank.state.rank == 3 ? slow_ms : 100) * int64_t{1'000'000};
          times.data_wait_ns += 5'000'000;
          times.communication_ns += 20'000'000;
        }
      }
      for (std::string& line : recorder.Take(health_)) said.push_back(std::move(line));
    }
    return said;
  }

  const TemporaryDirectory directory_;
  const std::string run_dir_ = directory_.path();
  std::vector<liveness::NodeReport> health_;
};

TEST_F(PaceRecorderTest, NamesAStragglerInItsFilesAndForTheLedger) {
  {
    PaceRecorder recorder(Options());
    EXPECT_THAT(Run(recorder, 20, 100), IsEmpty());
    EXPECT_THAT(Run(recorder, 20, 130),
                ElementsAre(HasSubstr("straggler after step 34: rank 3 on n1: compute 130.0 ms")));
    EXPECT_THAT(Run(recorder, 30, 100), ElementsAre(HasSubstr("no longer a straggler")));
    EXPECT_THAT(Run(recorder, 30, 150), ElementsAre(HasSubstr("straggler after")));
    const std::vector<ledger::Straggler> stragglers = recorder.Stragglers();
    ASSERT_EQ(stragglers.size(), 2u);
    EXPECT_EQ(stragglers[0].attempt, 3);
    EXPECT_EQ(stragglers[0].step, 34);
    EXPECT_GT(stragglers[0].last_step, 40);
    EXPECT_EQ(stragglers[0].rank, 3);
    EXPECT_EQ(stragglers[1].last_step, -1);
    recorder.Finish();
  }
  const auto pace = ReadAttemptPace(run_dir_, 3).value();
  EXPECT_EQ(pace.ranks, 4);
  ASSERT_EQ(pace.slowest.size(), 4u);
  EXPECT_EQ(DescribePace(pace.slowest[0]),
            "rank 3 on n1: compute 150.0 ms, data wait 5.0 ms, communication 20.0 ms a step; own "
            "time 1.48 times the median, a straggler");

  const auto text = ReadWholeFile(RunDirectory(run_dir_).prometheus, kMaxTextBytes).value();
  const auto samples = ParsePrometheus(text);
  const std::string rank3 = R"({run="r1",rank="3",node="n1"})";
  EXPECT_EQ(samples.at(R"(anyorder_running{run="r1"})"), 0);
  EXPECT_EQ(samples.at(R"(anyorder_attempt{run="r1"})"), 3);
  EXPECT_EQ(samples.at(R"(anyorder_ranks{run="r1"})"), 4);
  EXPECT_EQ(samples.at(R"(anyorder_ranks_running{run="r1"})"), 0);
  EXPECT_EQ(samples.at("anyorder_straggler" + rank3), 1);
  EXPECT_NEAR(samples.at("anyorder_rank_own_time_ratio" + rank3), 155.0 / 105, 1e-9);
  EXPECT_EQ(samples.at(R"(anyorder_straggler{run="r1",rank="0",node="n0"})"), 0);
  EXPECT_NEAR(samples.at("anyorder_rank_compute_seconds_total" + rank3), 12.1, 1e-9);
  EXPECT_NEAR(samples.at("anyorder_rank_data_wait_seconds_total" + rank3), 0.5, 1e-9);
  EXPECT_NEAR(samples.at("anyorder_rank_communication_seconds_total" + rank3), 2, 1e-9);
  EXPECT_EQ(samples.at("anyorder_rank_ticks_total" + rank3), 100);
  EXPECT_EQ(samples.at(R"(anyorder_file_system_stalled_seconds{run="r1",node="n1"})"), 12);
}

TEST_F(PaceRecorderTest, WritesAgainAndAgain) {
  for (const char* step : {"20", "30"})  // what is no checkpoint is none that is committed
    std::filesystem::create_directories(run_dir_ + "/checkpoints/step-0000000" + step);
  std::ofstream(run_dir_ + "/checkpoints/step-000000020/" + ckpt::kManifestName) << "{}";
  for (liveness::NodeReport& node : health_)
    for (liveness::RankReport& rank : node.ranks) rank.is_connected = true;
  health_[0].ranks[1].state.has_ended = true;
  PaceRecorderOptions options = Options();
  options.interval = absl::Milliseconds(5);
  PaceRecorder recorder(options);
  recorder.Take(health_);
  const auto sample = [this](const char* name) {
    const auto text = ReadWholeFile(RunDirectory(run_dir_).prometheus, kMaxTextBytes);
    if (!text.ok()) return std::nan("");
    return ParsePrometheus(*text).at(absl::StrCat(name, R"({run="r1"})"));
  };
  while (sample("anyorder_ranks_running") != 3) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(sample("anyorder_running"), 1);
  EXPECT_EQ(sample("anyorder_checkpoint_committed_step"), 20);
  EXPECT_GT(sample("anyorder_checkpoint_committed_timestamp_seconds"), 1e9);
}

// Without waiting for the interval.
TEST_F(PaceRecorderTest, WritesWhenARankIsNamed) {
  PaceRecorder recorder(Options());
  EXPECT_EQ(Run(recorder, 20, 150).size(), 1u);
  while (!ReadAttemptPace(run_dir_, 3).ok()) absl::SleepFor(absl::Milliseconds(1));
}

// Another launcher may have the run directory.
TEST_F(PaceRecorderTest, WritesNothingUnlessItIsFinished) {
  { PaceRecorder recorder(Options()); }
  EXPECT_FALSE(std::filesystem::exists(RunDirectory(run_dir_).prometheus));
}

TEST_F(PaceRecorderTest, AStalledFileSystemHoldsNobodyUp) {
  // Opening it waits for the end of a lease, as if another machine had it.
  std::signal(SIGIO, SIG_IGN);  // asks the lease's owner for it
  const std::string metrics = RunDirectory(run_dir_).metrics;
  const UniqueFd lease(::open(metrics.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0600));
  if (::fcntl(lease.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "no leases on this disk";
  PaceRecorderOptions options = Options();
  options.end_limit = absl::Milliseconds(20);
  ::testing::internal::CaptureStderr();
  { PaceRecorder(options).Finish(); }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("has not answered for 20ms"));
  ASSERT_EQ(::fcntl(lease.get(), F_SETLEASE, F_UNLCK), 0);
  while (!std::filesystem::exists(RunDirectory(run_dir_).prometheus))
    absl::SleepFor(absl::Milliseconds(1));
}

TEST_F(PaceRecorderTest, WhatIsNoPaceIsSaid) {
  EXPECT_TRUE(absl::IsNotFound(ReadAttemptPace(run_dir_, 1).status()));
}

}  // namespace
}  // namespace anyorder::launcher
