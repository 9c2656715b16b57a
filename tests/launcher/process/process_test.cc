// What launcher/process promises: what programs say about a wrong command line, what is taken from
// programs that are waited for, how much room text takes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/monotonic_clock.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/process/display_width.h"
#include "launcher/process/slurm_commands.h"
#include "tests/testing/patience.h"

namespace anyorder::launcher {
namespace {

using testing::HasSubstr;

struct Outcome {
  std::optional<int> status;
  std::string error;
};

// A program with a subcommand that has options, one required.
Outcome Parse(std::vector<std::string> words) {
  CLI::App app("Does things.", "program");
  app.require_subcommand(1);
  std::string run_dir;
  double fraction = 0;
  CLI::App* launch = app.add_subcommand("launch", "start");
  launch->add_option("--run-dir", run_dir, "where")->required();
  launch->add_option("--fraction", fraction, "how much")
      ->check(IsNumber())
      ->check(CLI::Range(0.0, 1.0));
  std::vector<std::string> settings;
  launch->add_option("--set", settings, "key=value")->allow_extra_args(false);
  app.add_subcommand("status", "tell");
  words.insert(words.begin(), "program");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  Outcome outcome;
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  outcome.status = ParseCommandLine(app, static_cast<int>(argv.size()), argv.data());
  testing::internal::GetCapturedStdout();
  outcome.error = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(CommandLineTest, GoodOnesGoOnAndHelpEndsWell) {
  EXPECT_EQ(Parse({"launch", "--run-dir", "x", "--fraction", "0.5"}).status, std::nullopt);
  EXPECT_EQ(Parse({"--help"}).status, 0);
  EXPECT_EQ(Parse({"launch", "--help"}).status, 0);
}

TEST(CommandLineTest, FaultsAreOneLineThatNamesTheWordAndWhereHelpIs) {
  struct Case {
    std::vector<std::string> words;
    const char* message;
    const char* help;
  };
  const Case cases[] = {
      {{"launch", "--rnu-dir", "x"},
       "unknown option '--rnu-dir'; did you mean '--run-dir'?",
       "program launch"},
      {{"launch", "--rnu-dir=x"},
       "unknown option '--rnu-dir=x'; did you mean '--run-dir'?",
       "program launch"},
      {{"lunch"}, "unknown subcommand 'lunch'; did you mean 'launch'?", "program"},
      {{"launch", "--run-dir", "x", "--set", "a.b=1", "a.c=2"},
       "unknown argument 'a.c=2'; write --set before every section.key=value",
       "program launch"},
      {{"status", "now"}, "unknown argument 'now'", "program status"},
      {{}, "a subcommand is required: launch, status", "program"},
      {{"launch"}, "--run-dir is required", "program launch"},
      {{"launch", "--run-dir", "x", "--fraction", "nan"}, "nan is not a number", "program launch"},
      {{"launch", "--run-dir", "x", "--fraction", "-0.5"}, "--fraction", "program launch"},
      {{"launch", "--run-dir", "x", "--fraction", "half"}, "half", "program launch"},
  };
  for (const Case& fault : cases) {
    const Outcome outcome = Parse(fault.words);
    EXPECT_EQ(outcome.status, 64) << fault.message;
    EXPECT_THAT(outcome.error, HasSubstr(fault.message));
    EXPECT_THAT(outcome.error, HasSubstr("program: "));
    EXPECT_THAT(outcome.error, HasSubstr(std::string("; see `") + fault.help + " --help`\n"));
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  }
}

TEST(CapturedProgramTest, GivesOutputAndStatus) {
  const auto output =
      RunCaptured({"sh", "-c", "echo out; echo err >&2; exit 3"}, MonotonicNow() + kPatience);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(output->text, "out\nerr\n");
  EXPECT_EQ(output->exit_status, 3);
  EXPECT_FALSE(output->is_late);
}

// Nodes that answered before a step's deadline count.
TEST(CapturedProgramTest, ALateProgramIsEndedAndKeepsWhatItSaid) {
  for (const char* program : {"echo n1; sleep 1000", "echo n1; exec >&- 2>&-; sleep 1000"}) {
    const absl::Time begin = MonotonicNow();
    const auto output = RunCaptured({"sh", "-c", program}, begin + absl::Milliseconds(300));
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(output->text, "n1\n");
    EXPECT_TRUE(output->is_late);
    EXPECT_EQ(output->exit_status, 128 + 15) << program;
  }
}

TEST(CapturedProgramTest, ACommandThatFailsSaysItsLastLine) {
  std::string output;
  EXPECT_TRUE(RunCommand({"echo", "x"}, kPatience, &output).ok());
  EXPECT_EQ(output, "x\n");
  const absl::Status failed =
      RunCommand({"sh", "-c", "echo first; echo why; exit 3"}, kPatience, &output);
  EXPECT_TRUE(absl::IsUnavailable(failed));
  EXPECT_THAT(failed.message(), HasSubstr("failed with status 3: why"));
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(RunCommand({"sleep", "60"}, absl::Milliseconds(200), &output)));
}

TEST(DisplayWidth, CountsColumnsAsTerminalsDo) {
  EXPECT_EQ(DisplayWidth(""), 0);
  EXPECT_EQ(DisplayWidth("any"), 3);
  EXPECT_EQ(DisplayWidth("▁Größe"), 6);
  EXPECT_EQ(DisplayWidth("語順"), 4);
  EXPECT_EQ(DisplayWidth("한국어"), 6);
  EXPECT_EQ(DisplayWidth("e\u0301"), 1);  // a mark on the letter before it
  EXPECT_EQ(DisplayWidth("ｗ"), 2);       // fullwidth
  EXPECT_EQ(DisplayWidth("\xff\xfe"), 2);
  EXPECT_EQ(DisplayWidth("\x1b\n"), 0);
}

TEST(DisplayWidth, CutsBetweenCharacters) {
  EXPECT_EQ(FittingPrefix("語順", 4), "語順");
  EXPECT_EQ(FittingPrefix("語順", 3), "語");
  EXPECT_EQ(FittingPrefix("語順", 1), "");
  EXPECT_EQ(FittingPrefix("ae\u0301x", 2), "ae\u0301");
}

TEST(DisplayWidth, PadsToColumns) {
  EXPECT_EQ(PaddedToWidth("語順", 6), "語順  ");
  EXPECT_EQ(PaddedToWidth("語順", 3), "語 ");
  EXPECT_EQ(PaddedToWidth("ab", 2), "ab");
  EXPECT_EQ(PaddedToWidth("", 2), "  ");
}

}  // namespace
}  // namespace anyorder::launcher
