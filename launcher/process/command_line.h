// What the programs' command lines share: kinds of options, the form of --help, one line about what
// is wrong with a command line; a command line as data, read from its CLI11 declarations: what
// --help, man pages and shell completion are made of; and the subcommands of `anyorder`: each
// declares its options and says what to run, in a file of its own.

#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "core/base/status.h"

namespace anyorder::launcher {

// Parses. Nothing if the program is to go on; otherwise its exit status: 0 after --help, and 64
// after one line on stderr that names the fault, the nearest known option or subcommand, and where
// help is. `app` needs a name.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv);

// A subcommand of `front`; `examples` are whole command lines for --help and the man page.
CLI::App* AddCommand(CLI::App& front, const std::string& name, const std::string& summary,
                     const std::vector<std::string>& examples);
// The Examples part of a program without subcommands.
void AddExamples(CLI::App& app, const std::vector<std::string>& examples);

// An option's value must not be empty: "" would become the root directory when a file name is put
// after it.
CLI::Validator IsNotEmpty();

// An option's value must not be NaN, which CLI::Range lets pass.
CLI::Validator IsNumber();

inline constexpr int64_t kMaxCount = int64_t{1} << 40;

// A file or directory.
template <typename Path>
CLI::Option* AddPath(CLI::App* command, const std::string& names, Path& path,
                     const std::string& help) {
  return command->add_option(names, path, help)->check(IsNotEmpty())->type_name("PATH");
}

// A whole number in [least, most]; CLI11 would read -5 as an enormous unsigned one.
template <typename Number>
CLI::Option* AddCount(CLI::App* command, const std::string& names, Number& number,
                      const std::string& help, int64_t least = 0, int64_t most = kMaxCount) {
  return command->add_option(names, number, help)
      ->check(CLI::Range(least, most).description(""))
      ->type_name("N");
}

// A number in [least, most].
template <typename Number>
CLI::Option* AddNumber(CLI::App* command, const std::string& names, Number& number,
                       const std::string& help, double least = -1e300, double most = 1e300) {
  return command->add_option(names, number, help)
      ->check(IsNumber())
      ->check(CLI::Range(least, most).description(""))
      ->type_name("X");
}

// One of `values`, `value` being the default; "" for a default that the help tells.
CLI::Option* AddChoice(CLI::App* command, const std::string& names, std::string& value,
                       const std::vector<std::string>& values, const std::string& help);

// --run-dir DIR, or DIR as a plain argument.
template <typename Path>
CLI::Option* AddRunDir(CLI::App* command, Path& run_dir, const std::string& help) {
  return AddPath(command, "--run-dir,run-dir", run_dir, help)->required()->type_name("DIR");
}

// --step N of a run's checkpoints.
template <typename Number>
CLI::Option* AddStep(CLI::App* command, Number& step, const std::string& scope = "",
                     const std::string& names = "--step") {
  return AddCount(command, names, step,
                  scope + "step of the checkpoint (default: the newest valid one)");
}

// --set section.key=value, any number of times.
CLI::Option* AddSettings(CLI::App* command, std::vector<std::string>& settings,
                         const std::string& help = "override a configuration key");

struct OptionText {
  std::vector<std::string> names;   // "-h", "--help"; none of a plain argument
  std::string argument;             // "PATH" of "--config PATH"; "" of a flag
  std::vector<std::string> values;  // of an enumeration
  std::string help;
  std::string default_text;  // "" if there is none, or `help` tells it
  bool is_required = false;
  bool is_repeated = false;

  bool takes_file() const { return argument == "PATH" || argument == "DIR"; }
};

struct CommandText {
  std::string name;
  std::string summary;
  std::string examples;  // indented lines
  std::vector<OptionText> options;
  std::vector<OptionText> arguments;
  std::vector<CommandText> commands;
};

// Without subcommands and options that are not in --help.
CommandText DescribeCommand(const CLI::App& app);

// "hf|run", or the kind of value.
std::string ArgumentText(const OptionText& option);
// Its sentence, and what it is where it is not given.
std::string HelpText(const OptionText& option);

inline constexpr char kFrontProgram[] = "anyorder";

struct Subcommand {
  CLI::App* app;  // owned by the front
  // After parsing; returns the exit status, having reported what went wrong.
  std::function<int()> run;
};

// A subcommand's usual end: one line on stderr if `status` is an error; the exit status.
inline int Report(const absl::Status& status) { return ReportAndExitStatus(kFrontProgram, status); }

Subcommand DeclareCleanNode(CLI::App& front);
Subcommand DeclareCompletion(CLI::App& front);
Subcommand DeclareConfig(CLI::App& front);
Subcommand DeclareDoctor(CLI::App& front);
Subcommand DeclareEval(CLI::App& front);
Subcommand DeclareExport(CLI::App& front);
Subcommand DeclareGenerate(CLI::App& front);
Subcommand DeclareImport(CLI::App& front);
Subcommand DeclareInspect(CLI::App& front);
Subcommand DeclareLaunch(CLI::App& front);
Subcommand DeclareManPages(CLI::App& front);
Subcommand DeclarePredict(CLI::App& front);
Subcommand DeclareReport(CLI::App& front);
Subcommand DeclareShow(CLI::App& front);
Subcommand DeclareStatus(CLI::App& front);
Subcommand DeclareSubmit(CLI::App& front);
Subcommand DeclareTune(CLI::App& front);

}  // namespace anyorder::launcher
