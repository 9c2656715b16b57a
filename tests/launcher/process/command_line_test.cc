// What the programs say about a wrong command line.

#include "launcher/process/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace anyorder::launcher
