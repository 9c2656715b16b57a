// The files that a step's nodes write, without Slurm: any program may be the step, or none.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/unique_fd.h"
#include "core/base/whole_file.h"
#include "launcher/slurm/followed_files.h"
#include "launcher/slurm/slurm_backend.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;

class NodeFilesTest : public ::testing::Test {
 protected:
  std::string Log() const { return ReadWholeFile(log_, kMaxTextBytes).value_or(""); }

  const TemporaryDirectory directory_;
  const std::string log_ = directory_.path() + "/train.log";
  OutputRelay output_ = OutputRelay::Open(log_, /*is_shown=*/false).value();
};

class FollowedFilesTest : public NodeFilesTest {
 protected:
  void Write(int node, const std::string& line) {
    std::ofstream(absl::StrCat(directory_.path(), "/ranks-3-n", node, ".log"), std::ios::app)
        << line << "\n";
  }

  const std::function<void(const std::string&, absl::string_view)> take_ =
      [this](const std::string& path, absl::string_view bytes) { output_.Take(path, bytes); };
  FollowedFiles files_{directory_.path(), "ranks-3-"};
};

// One node speaks each second, as that of rank 0 does.
TEST_F(FollowedFilesTest, QuietFilesAreLookedAtTheMoreRarelyTheMoreThereAre) {
  constexpr int kSeconds = 60;
  for (const int nodes : {8, 32, 128}) {
    FollowedFiles files(directory_.path(), "ranks-3-");
    for (int node = 0; node < nodes; ++node) Write(node, "hello");
    absl::Time now = absl::UnixEpoch();
    const int64_t before = files.num_looks();
    for (int tick = 0; tick < 100 * kSeconds; ++tick, now += absl::Milliseconds(10)) {
      if (tick % 100 == 0) Write(0, absl::StrCat("step ", tick / 100, " of ", nodes, " nodes"));
      files.Follow(now, take_);
    }
    // 38,400 of 128 nodes where all files are looked at five times a second.
    EXPECT_LE(files.num_looks() - before, kSeconds * (1 + 5 + 50) + 12 * nodes) << nodes;
    EXPECT_GE(files.num_looks() - before, kSeconds) << nodes;
    EXPECT_NE(Log().find(absl::StrCat("step 58 of ", nodes, " nodes\n")), std::string::npos);
  }
}

TEST_F(FollowedFilesTest, NothingIsLostHoweverLateItComes) {
  absl::Time now = absl::UnixEpoch();
  Write(0, "first");
  files_.Follow(now, take_);
  EXPECT_EQ(Log(), "first\n");
  for (int tick = 0; tick < 3000; ++tick) files_.Follow(now += absl::Milliseconds(10), take_);
  Write(0, "second");
  Write(1, "of a node that came late");
  files_.Follow(now, take_);
  EXPECT_EQ(Log(), "first\n");  // nobody's turn
  files_.Follow(now += absl::Seconds(1), take_);
  EXPECT_EQ(Log(), "first\nsecond\nof a node that came late\n");
  Write(0, "last");
  files_.Follow(absl::InfiniteFuture(), take_);
  EXPECT_EQ(Log(), "first\nsecond\nof a node that came late\nlast\n");
  files_.Remove();
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/ranks-3-n0.log"));
}

class SlurmStepTest : public NodeFilesTest {
 protected:
  std::unique_ptr<ProcessGroup> Start(const std::string& script) {
    SlurmStepOptions options;
    options.spawn.arguments = {"sh", "-c", absl::StrCat("cd ", directory_.path(), "; ", script)};
    options.output = &output_;
    options.directory = directory_.path();
    options.prefix = "ranks-";
    return StartSlurmStep(options).value();
  }
  static int StatusOf(ProcessGroup& step) {
    while (!step.Poll()) absl::SleepFor(absl::Milliseconds(1));
    return *step.Poll();
  }
};

TEST_F(SlurmStepTest, WhatItsNodesWriteIsPassedOnAndRemoved) {
  const auto step = Start("echo step 1 >ranks-n1; echo step 2 >ranks-n2; exit 3");
  EXPECT_EQ(StatusOf(*step), 3);
  EXPECT_THAT(Log(), AllOf(HasSubstr("step 1\n"), HasSubstr("step 2\n")));
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/ranks-n1"));
}

TEST_F(SlurmStepTest, AFileThatDoesNotOpenHoldsNobodyUp) {
  // Until somebody writes to it; as on a file system that does not answer.
  const std::string stalled = directory_.path() + "/ranks-n1";
  ASSERT_EQ(::mkfifo(stalled.c_str(), 0600), 0);
  const auto step = Start("echo asked to stop >ranks-n0; exec sleep 1000");
  for (int i = 0; i < 400; ++i) {  // long enough to meet the file
    ASSERT_EQ(step->Poll(), std::nullopt);
    absl::SleepFor(absl::Milliseconds(1));
  }
  step->Kill();
  const UniqueFd answers(::open(stalled.c_str(), O_RDWR | O_CLOEXEC));
  StatusOf(*step);
  EXPECT_THAT(Log(), HasSubstr("asked to stop\n"));
}

TEST_F(SlurmStepTest, TheFirstTaskThatFailedGivesTheStatus) {
  const auto step = Start(
      "echo srun: error: n2: task 3: Exited with exit code 74; "
      "echo srun: error: n1: task 0: Exited with exit code 70; exit 137");
  EXPECT_EQ(StatusOf(*step), 74);
}

TEST_F(SlurmStepTest, ATermThatNobodyAskedForIsAKill) {
  const auto ended_by_slurm = Start("kill -TERM $$");
  EXPECT_EQ(StatusOf(*ended_by_slurm), 128 + SIGKILL);
  const auto asked = Start("trap '' USR1; echo >ready; while sleep 0.01; do :; done");
  while (!std::filesystem::exists(directory_.path() + "/ready"))
    absl::SleepFor(absl::Milliseconds(1));
  asked->AskToStop(/*urgent=*/false);
  asked->Kill();
  EXPECT_EQ(StatusOf(*asked), 128 + SIGTERM);
}

}  // namespace
}  // namespace anyorder::launcher
