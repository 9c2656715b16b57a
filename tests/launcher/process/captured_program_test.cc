#include "launcher/process/captured_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"

#include "launcher/process/slurm_commands.h"

namespace anyorder::launcher {
namespace {

using testing::HasSubstr;

TEST(CapturedProgramTest, GivesOutputAndStatus) {
  const auto output =
      RunCaptured({"sh", "-c", "echo out; echo err >&2; exit 3"}, absl::Now() + absl::Seconds(60));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->text, "out\nerr\n");
  EXPECT_EQ(output->exit_status, 3);
  EXPECT_FALSE(output->is_late);
}

// Nodes that answered before a step's deadline count.
TEST(CapturedProgramTest, ALateProgramIsEndedAndKeepsWhatItSaid) {
  for (const char* program : {"echo n1; sleep 60", "echo n1; exec >&- 2>&-; sleep 60"}) {
    const absl::Time begin = absl::Now();
    const auto output = RunCaptured({"sh", "-c", program}, begin + absl::Milliseconds(300));
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(output->text, "n1\n");
    EXPECT_TRUE(output->is_late);
    EXPECT_EQ(output->exit_status, 128 + 15) << program;
    EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
  }
}

TEST(CapturedProgramTest, ACommandThatFailsSaysItsLastLine) {
  std::string output;
  EXPECT_TRUE(RunCommand({"echo", "x"}, absl::Seconds(60), &output).ok());
  EXPECT_EQ(output, "x\n");
  const absl::Status failed =
      RunCommand({"sh", "-c", "echo first; echo why; exit 3"}, absl::Seconds(60), &output);
  EXPECT_TRUE(absl::IsUnavailable(failed));
  EXPECT_THAT(failed.message(), HasSubstr("failed with status 3: why"));
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(RunCommand({"sleep", "60"}, absl::Milliseconds(200), &output)));
}

}  // namespace
}  // namespace anyorder::launcher
