// The files that a step's nodes write, without Slurm: any program may be the step.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "core/base/unique_fd.h"
#include "core/base/whole_file.h"
#include "launcher/slurm/slurm_backend.h"
#include "tests/testing/temporary_directory.h"

namespace anyorder::launcher {
namespace {

using ::testing::HasSubstr;

class SlurmStepTest : public ::testing::Test {
 protected:
  std::unique_ptr<ProcessGroup> Start(const std::string& script) {
    SlurmStepOptions options;
    options.spawn.arguments = {"sh", "-c", absl::StrCat("cd ", directory_.path(), "; ", script)};
    options.output = &output_;
    options.directory = directory_.path();
    options.prefix = "ranks-";
    return StartSlurmStep(options).value();
  }
  std::string Log() const { return ReadWholeFile(log_).value_or(""); }

  const TemporaryDirectory directory_;
  const std::string log_ = directory_.path() + "/train.log";
  OutputRelay output_ = OutputRelay::Open(log_, /*is_shown=*/false).value();
};

TEST_F(SlurmStepTest, WhatItsNodesWriteIsPassedOnAndRemoved) {
  const auto step = Start("echo step 1 >ranks-n1; echo step 2 >ranks-n2; exit 3");
  while (!step->Poll()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(step->Poll(), 3);
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
  while (!step->Poll()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_THAT(Log(), HasSubstr("asked to stop\n"));
}

TEST_F(SlurmStepTest, TheFirstTaskThatFailedGivesTheStatus) {
  const auto step = Start(
      "echo srun: error: n2: task 3: Exited with exit code 74; "
      "echo srun: error: n1: task 0: Exited with exit code 70; exit 137");
  while (!step->Poll()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(step->Poll(), 74);
}

TEST_F(SlurmStepTest, ATermThatNobodyAskedForIsAKill) {
  const auto ended_by_slurm = Start("kill -TERM $$");
  while (!ended_by_slurm->Poll()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(ended_by_slurm->Poll(), 128 + SIGKILL);
  const auto asked = Start("trap '' USR1; echo >ready; while sleep 0.01; do :; done");
  while (!std::filesystem::exists(directory_.path() + "/ready"))
    absl::SleepFor(absl::Milliseconds(1));
  asked->AskToStop(/*urgent=*/false);
  asked->Kill();
  while (!asked->Poll()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(asked->Poll(), 128 + SIGTERM);
}

}  // namespace
}  // namespace anyorder::launcher
