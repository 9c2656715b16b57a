// What launcher/process promises: what programs say about a wrong command line, what is taken from
// programs that are waited for, how much room text takes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/monotonic_clock.h"
#include "core/base/whole_file.h"
#include "launcher/process/child_process.h"
#include "launcher/process/command_line.h"
#include "launcher/process/display_width.h"
#include "launcher/process/output_relay.h"
#include "tests/testing/patience.h"
#include "tests/testing/temporary_directory.h"

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
  double fraction = 0, any = 0;
  int64_t count = 0, few = 0;
  std::string choice = "a";
  bool flag = false;
  CLI::App* launch = app.add_subcommand("launch", "start");
  AddRunDir(launch, run_dir, "where");
  AddNumber(launch, "--fraction", fraction, "how much", Between(0, 1));
  AddNumber(launch, "--any", any, "how much");
  AddCount(launch, "--count", count, "how many");
  AddCount(launch, "--few", few, "how many", 1, 8);
  AddCount(launch, "--only", count, "how many", 3, 3);
  AddChoice(launch, "--choice", choice, {"a", "b", "c"}, "which");
  launch->add_flag("--flag", flag, "whether");
  std::vector<std::string> settings;
  AddSettings(launch, settings);
  CLI::App* eval = app.add_subcommand("eval", "score");
  AddSettings(eval, settings, "override sampling.KEY or model.mem_len of the run");
  AddPath(eval, "--input", choice, "texts, one per line");
  CLI::App* seeds = app.add_subcommand("seeds", "several");
  AddSettings(seeds, settings);
  AddPath(seeds, "--seeds", run_dir, "1,2,3");
  AddPath(seeds, "--input", choice, "texts; -: standard input");
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
  EXPECT_EQ(Parse({"help"}).status, 0);
  EXPECT_EQ(Parse({"help", "launch"}).status, 0);
  // An unknown option before it: help is what its author needs.
  EXPECT_EQ(Parse({"launch", "--rnu-dir", "x", "--help"}).status, 0);
}

TEST(CommandLineTest, FaultsAreOneLineThatNamesTheWordAndWhereHelpIs) {
  struct Case {
    std::vector<std::string> words;
    const char* message;
    const char* help = "program launch";
  };
  const Case cases[] = {
      {{"launch", "--rnu-dir", "x"}, "unknown option '--rnu-dir'; did you mean '--run-dir'?"},
      {{"launch", "--rnu-dir=x"}, "unknown option '--rnu-dir=x'; did you mean '--run-dir'?"},
      {{"lunch"}, "unknown command 'lunch'; did you mean 'launch'?", "program"},
      {{"lunch", "--help"}, "unknown command 'lunch'; did you mean 'launch'?", "program"},
      {{"-h", "lunch"}, "unknown command 'lunch'; did you mean 'launch'?", "program"},
      {{"help", "lunch"}, "unknown command 'lunch'; did you mean 'launch'?", "program"},
      {{"train", "--help"}, "unknown command 'train'; did you mean 'launch'?", "program"},
      {{"entirely-else"},
       "unknown command 'entirely-else'; commands: launch, eval, seeds, status",
       "program"},
      {{"launch", "--run-dir", "x", "--set", "a.b=1", "a.c=2"},
       "unknown argument 'a.c=2'; write --set before every section.key=value"},
      {{"status", "now"}, "unknown argument 'now'", "program status"},
      {{}, "a command is required: launch, eval, seeds, status", "program"},
      {{"launch"}, "--run-dir is required"},
      {{"launch", "x", "--run-dir", "y"},
       "'y' is one word too many: the run directory is 'x' already"},
      {{"launch", "--run-dir", "x", "y"},
       "'y' is one word too many: the run directory is 'x' already"},
      {{"launch", "x", "y"}, "'y' is one word too many: the run directory is 'x' already"},
      {{"launch", "x", "--set", "a.b", "=", "2"},
       "unknown argument '='; write --set section.key=value without spaces around ="},
      {{"launch", "x", "--set", "a.b", "2"},
       "'2' is one word too many: the run directory is 'x' already; a setting is written --set"},
      {{"launch", "x", "--data", "y"},
       "unknown option '--data'; did you mean '--set data.shards=DIR'?"},
      {{"launch", "x", "--lr", "1"},
       "unknown option '--lr'; did you mean '--set optimizer.learning_rate=VALUE'?"},
      {{"launch", "x", "--num-layers=2"}, "'--set model.num_layers=VALUE'"},
      {{"launch", "x", "--seed", "2"}, "'--set train.seed=VALUE'"},
      {{"launch", "x", "--batch-size=2"}, "--set train.global_batch_size=VALUE"},
      {{"launch", "x", "--fraction", "nan"}, "--fraction: must be a number in [0, 1], not 'nan'"},
      {{"launch", "x", "--fraction", "-0.5"}, "a number in [0, 1], not '-0.5'"},
      {{"launch", "x", "--any", "half"}, "--any: must be a number, not 'half'"},
      {{"launch", "x", "--count", "-1"}, "--count: must be a whole number, at least 0, not '-1'"},
      {{"launch", "x", "--count", "1.5"}, "whole number, at least 0, not '1.5'"},
      {{"launch", "x", "--few", "9"}, "--few: must be a whole number from 1 to 8, not '9'"},
      {{"launch", "x", "--only", "2"}, "--only: must be a whole number, 3, not '2'"},
      // What is offered is taken there.
      {{"eval", "--lr", "1"}, "unknown option '--lr'; see", "program eval"},
      {{"eval", "--seq_length", "1"}, "'--set sampling.seq_len=VALUE'", "program eval"},
      {{"eval", "--mem_length", "1"}, "'--set model.mem_len=VALUE'", "program eval"},
      {{"eval", "--hidden_size", "1"}, "unknown option '--hidden_size'; see", "program eval"},
      {{"eval", "--prompt", "x"}, "did you mean '--input'?", "program eval"},
      {{"seeds", "--prompt", "x"}, "did you mean '--input -' with", "program seeds"},
      {{"seeds", "--seed", "1"}, "did you mean '--seeds'?", "program seeds"},
      {{"launch", "x", "--few"}, "program: --few needs a value; see"},
      {{"launch", "x", "--few", "1", "--few", "2"}, "--few is given twice"},
      {{"launch", "x", "--choice", "d"}, "--choice: must be a or b or c, not 'd'"},
      {{"launch", "x", "--flag=maybe"}, "--flag cannot be "},
  };
  for (const Case& fault : cases) {
    const Outcome outcome = Parse(fault.words);
    EXPECT_EQ(outcome.status, 64) << fault.message;
    EXPECT_THAT(outcome.error, HasSubstr(fault.message));
    EXPECT_THAT(outcome.error, HasSubstr("program: "));
    EXPECT_THAT(outcome.error, testing::ContainsRegex(std::string("(; see|[?] See) `") +
                                                      fault.help + " --help`\n"));
    EXPECT_EQ(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 1) << outcome.error;
  }
}

TEST(CommandLineTest, ARunDirectoryIsAnOptionAnArgumentOrBoth) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"launch", "x"},
                                                {"launch", "x", "--run-dir", "x"},
                                                {"launch", "--run-dir", "./x", "x/"},
                                                {"launch", "--run-dir", "x", "--count", "1", "x"}})
    EXPECT_EQ(Parse(words).status, std::nullopt) << words.back();
}

// Of paths, tests/launcher/paths.sh tries the whole table with real commands.
TEST(CommandLineTest, PathsAreCheckedForTheirUse) {
  const std::string folder = testing::TempDir() + "/paths";
  std::filesystem::create_directories(folder);
  const std::string file = folder + "/file";
  std::ofstream(file) << "x";
  std::ofstream(folder + "/any.toml") << "x";
  struct Case {
    PathUse use;
    std::string path;
    const char* fault;  // "": none
  };
  const Case cases[] = {
      {PathUse::kReadFile, file, ""},
      {PathUse::kReadFile, "/dev/null", ""},
      {PathUse::kReadFile, folder, "is a directory, but must be a file"},
      {PathUse::kReadFile, folder + "/none", "does not exist"},
      {PathUse::kReadFile, file + "/x", "does not exist"},
      {PathUse::kReadConfig, file, ""},
      {PathUse::kReadConfig, folder, "is a directory, but must be a file"},
      {PathUse::kReadConfig, folder + "/any", "/any' does not exist; did you mean '"},
      {PathUse::kReadFile, "-", "'-' does not exist"},
      {PathUse::kReadDirectory, folder, ""},
      {PathUse::kReadDirectory, file, "is not a directory"},
      {PathUse::kReadDirectory, folder + "/none", "does not exist"},
      {PathUse::kRead, file, ""},
      {PathUse::kRead, folder, ""},
      {PathUse::kRead, folder + "/none", "does not exist"},
      {PathUse::kWriteFile, file, ""},
      {PathUse::kWriteFile, "new", ""},
      {PathUse::kWriteFile, "-", ""},
      {PathUse::kWriteFile, folder, "is a directory, but must be a file"},
      {PathUse::kWriteFile, file + "/x", "/file' is not a directory"},
      {PathUse::kWriteFile, folder + "/none/x", "/none' does not exist"},
      {PathUse::kMakeDirectory, folder, ""},
      {PathUse::kMakeDirectory, folder + "/none/deeper/still", ""},
      {PathUse::kMakeDirectory, "relative/path", ""},
      {PathUse::kMakeDirectory, file, "/file' is not a directory"},
      {PathUse::kMakeDirectory, file + "/x/y", "/file' is not a directory"},
  };
  for (const Case& tried : cases) {
    const std::string fault = IsUsable(tried.use)(tried.path);
    if (*tried.fault == '\0') {
      EXPECT_EQ(fault, "") << tried.path;
    } else {
      EXPECT_THAT(fault, HasSubstr(tried.fault)) << tried.path;
    }
  }
}

TEST(CapturedProgramTest, GivesOutputAndStatus) {
  const auto output =
      RunCaptured({"sh", "-c", "echo out; echo err >&2; exit 3"}, MonotonicNow() + kPatience)
          .value();
  EXPECT_EQ(output.text, "out\nerr\n");
  EXPECT_EQ(output.exit_status, 3);
  EXPECT_FALSE(output.is_late);
}

TEST(OutputRelayTest, OpenMpisNoticeOfAnEndIsKeptBackHoweverItComes) {
  const std::string rule = std::string(74, '-') + "\n";
  const std::string notice =
      rule + "prterun detected that one or more processes exited with non-zero status,\n" +
      "thus causing the job to be terminated. The first process to do so was:\n\n" +
      "   Process name: [prterun-vm-1@1,3]\n   Exit code:    75\n" + rule;
  const std::string other = rule + "prterun noticed that process rank 0 exited on\n" + rule;
  const std::string cut = notice.substr(0, 100);  // that nothing follows
  const TemporaryDirectory directory;
  for (const size_t piece : {size_t{40}, size_t{75}, size_t{4096}}) {
    const std::string log = absl::StrCat(directory.path(), "/", piece);
    auto relay = OutputRelay::Open(log, /*is_shown=*/false).value();
    relay.DropNotice("prterun detected that one or more");
    const std::string text = "a--\n" + notice + "b\n" + other + notice + notice + "c\n" + cut;
    std::string script;
    for (size_t i = 0; i < text.size(); i += piece)
      absl::StrAppend(&script, "printf '%s\\0' '", text.substr(i, piece), "'; sleep 0.003; ");
    auto child = relay.Start({.arguments = {"sh", "-c", script}}).value();
    while (!child.Poll()) relay.Pump(1);
    relay.Pump(0);
    relay.Take("", "\n");
    const std::string expected = "a--\nb\n" + other + "c\n" + cut + "\n";
    // Another thread writes it.
    EXPECT_TRUE(
        Await([&] { return ReadWholeFile(log, kMaxTextBytes).value().size() >= expected.size(); }));
    EXPECT_EQ(ReadWholeFile(log, kMaxTextBytes).value(), expected) << piece;
  }
}

// Nodes that answered before a step's deadline count.
TEST(CapturedProgramTest, ALateProgramIsEndedAndKeepsWhatItSaid) {
  for (const char* program : {"echo n1; sleep 1000", "echo n1; exec >&- 2>&-; sleep 1000"}) {
    CapturedOutput output;
    // On a busy machine the program may begin too late to say anything.
    for (absl::Duration limit = absl::Milliseconds(200);
         output.text.empty() && limit < absl::Minutes(1); limit *= 2)
      output = RunCaptured({"sh", "-c", program}, MonotonicNow() + limit).value();
    EXPECT_EQ(output.text, "n1\n");
    EXPECT_TRUE(output.is_late);
    EXPECT_EQ(output.exit_status, 128 + 15) << program;
  }
}

TEST(DisplayWidth, NothingThatIsDisplayedIsACommand) {
  EXPECT_EQ(Displayable("a é 語 e\u0301"), "a é 語 e\u0301");
  EXPECT_EQ(Displayable(absl::string_view("\0\t\n\r\x1b[m\x7f", 8)), "␀␉␊␍␛[m␡");
  EXPECT_EQ(Displayable("\xC2\x80\xC2\x9B\xC2\x9F\xC2\xA0"), "\uFFFD\uFFFD\uFFFD\u00A0");
  EXPECT_EQ(Displayable("\xEF\xBF\xBE\xEF\xBF\xBF\xFF\xE8\xAA"), "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(DisplayWidth, NothingThatIsDisplayedTurnsTextAround) {
  EXPECT_EQ(Displayable("a\u202Eb\u202Ac\u2066d\u2069"), "a\uFFFDb\uFFFDc\uFFFDd\uFFFD");
  // Marks of direction and letters that are written from right to left stay.
  EXPECT_EQ(Displayable("\u05D0\u200F\u2029\u2065\u206A"), "\u05D0\u200F\u2029\u2065\u206A");
}

TEST(DisplayWidth, LinesStayLines) {
  EXPECT_EQ(DisplayableLines("a\n\tb\r\n\x1b[2J\n"), "a\n    b␍\n␛[2J\n");
  EXPECT_EQ(DisplayableLines(""), "");
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
