// What the programs' command lines share: kinds of options, the form of --help, one line about what
// is wrong with a command line; a command line as data, read from its CLI11 declarations: what
// --help, man pages and shell completion are made of; and the subcommands of `anyorder`: each
// declares its options and says what to run, in a file of its own.

#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/fields.h"
#include "core/base/status.h"

namespace anyorder::launcher {

// Parses. Nothing if the program is to go on; otherwise its exit status: 0 after --help, and 64
// after one line on stderr that names the fault, the nearest known option or subcommand, and where
// help is; also for `UNKNOWN --help`. `app` needs a name. `help COMMAND` is `COMMAND --help` where
// there are commands.
std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv);

// A subcommand of `front`; `examples` are whole command lines for --help and the man page.
CLI::App* AddCommand(CLI::App& front, const std::string& name, const std::string& summary,
                     const std::vector<std::string>& examples);
// The Examples part of a program without subcommands.
void AddExamples(CLI::App& app, const std::vector<std::string>& examples);

// What is wrong with an option's value; "" if nothing is.
using ValueCheck = std::function<std::string(const std::string& value)>;

// It must not be empty: "" would become the root directory when a file name is put after it.
ValueCheck IsNotEmpty();

// It must be a whole number in [least, most], a number in bounds, or one of `values`. What is wrong
// with another is said in plain words; CLI11's own checks speak of types and ranges.
ValueCheck IsCount(int64_t least, int64_t most);
ValueCheck IsNumber(const FieldBounds& bounds);
CLI::Validator IsOneOf(const std::vector<std::string>& values);

// What a path must be for a command to use it. A fault of it is the user's, so it is found here,
// with status 64, and not by the call that fails on it. Only what the path says counts: a disk that
// fails is found later.
enum class PathUse {
  kReadFile,       // a file or pipe that is there and can be read
  kReadConfig,     // such a configuration; its fault names the one that is meant
  kReadDirectory,  // or such a directory
  kRead,           // either
  kWriteFile,      // the directory that it is in is there and can be written to
  kMakeDirectory,  // it, or what of it is there, is a directory that can be written to
};
// `takes_dash`: "-", a standard stream, is right, too.
ValueCheck IsUsable(PathUse use, bool takes_dash = false);

inline constexpr int64_t kMaxCount = int64_t{1} << 40;

// A file or directory, which need not be there.
CLI::Option* AddPath(CLI::App* command, const std::string& names, auto& path,
                     const std::string& help) {
  return command->add_option(names, path, help)->check(IsNotEmpty())->type_name("PATH");
}

// One that is used so.
CLI::Option* AddPath(CLI::App* command, const std::string& names, auto& path,
                     const std::string& help, PathUse use, bool takes_dash = false) {
  return AddPath(command, names, path, help)->check(IsUsable(use, takes_dash));
}

// What `number` holds is shown as the option's default, unless it is not set or out of bounds: then
// the help tells what it stands for.
template <typename Number>
CLI::Option* WithDefault(CLI::Option* option, const Number& number, const FieldBounds& bounds) {
  if constexpr (std::is_arithmetic_v<Number>) {
    if (bounds.Contain(static_cast<double>(number))) option->capture_default_str();
  }
  return option;
}

// A whole number in [least, most]; CLI11 would read -5 as an enormous unsigned one.
CLI::Option* AddCount(CLI::App* command, const std::string& names, auto& number,
                      const std::string& help, int64_t least = 0, int64_t most = kMaxCount) {
  CLI::Option* const option = command->add_option(names, number, help);
  option->check(IsCount(least, most))->type_name("N");
  return WithDefault(option, number,
                     Between(static_cast<double>(least), static_cast<double>(most)));
}

CLI::Option* AddNumber(CLI::App* command, const std::string& names, auto& number,
                       const std::string& help, const FieldBounds& bounds = {}) {
  CLI::Option* const option = command->add_option(names, number, help);
  return WithDefault(option->check(IsNumber(bounds))->type_name("X"), number, bounds);
}

// One of an enumeration's names (SpellingsOf, core/base/fields.h).
template <typename Enum>
CLI::Option* AddEnum(CLI::App* command, const std::string& names, std::optional<Enum>& value,
                     const std::string& help) {
  const auto read = [&value](const std::string& text) { ParseEnum(text, value.emplace()); };
  return command->add_option_function<std::string>(names, read, help)
      ->check(IsOneOf(EnumNameList<Enum>()));
}
template <typename Enum>
CLI::Option* AddEnum(CLI::App* command, const std::string& names, Enum& value,
                     const std::string& help) {
  const auto read = [&value](const std::string& text) { ParseEnum(text, value); };
  return command->add_option_function<std::string>(names, read, help)
      ->check(IsOneOf(EnumNameList<Enum>()))
      ->default_str(EnumName(value));
}

// Adds an option for each field that it visits (core/base/fields.h), whose default is what the
// field holds. Its name is --KEY with - for _, unless `names` has one for the key. Whole numbers
// must have a least one.
class FieldFlags {
 public:
  explicit FieldFlags(CLI::App* command, std::map<std::string, std::string> names = {})
      : command_(command), names_(std::move(names)) {}

  template <typename Value>
  void operator()(const std::string& key, Value& value, const std::string& help,
                  const FieldBounds& bounds) const {
    if constexpr (std::is_same_v<Value, bool>) {
      command_->add_flag(NameOf(key), value, help);
    } else if constexpr (std::is_enum_v<Value>) {
      AddEnum(command_, NameOf(key), value, help);
    } else if constexpr (std::is_same_v<Value, double>) {
      AddNumber(command_, NameOf(key), value, help, bounds);
    } else {
      const int64_t most = bounds.most < 0x1p63 ? static_cast<int64_t>(bounds.most) : INT64_MAX;
      AddCount(command_, NameOf(key), value, help, static_cast<int64_t>(bounds.least), most);
    }
  }

 private:
  std::string NameOf(const std::string& key) const;

  CLI::App* const command_;
  const std::map<std::string, std::string> names_;
};

// One of `values`, `value` being the default; "" for a default that the help tells.
CLI::Option* AddChoice(CLI::App* command, const std::string& names, std::string& value,
                       const std::vector<std::string>& values, const std::string& help);

// --run-dir DIR, or DIR as a plain argument; both only if they are the same. Required.
CLI::Option* AddRunDir(CLI::App* command, std::string& run_dir, const std::string& help);
// One or several.
CLI::Option* AddRunDirs(CLI::App* command, std::vector<std::string>& run_dirs,
                        const std::string& help);

// --step N of a run's checkpoints, or kBestStep for "best".
inline constexpr int64_t kBestStep = -2;
CLI::Option* AddStep(CLI::App* command, int64_t& step, const std::string& scope = "",
                     const std::string& names = "--step");

// --raw-weights: not their average (optimizer.ema_decay).
CLI::Option* AddRawWeights(CLI::App* command, bool& raw_weights);

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

// Describes `app` without the subcommands and options that --help does not list.
CommandText DescribeCommand(const CLI::App& app);

// "hf|run", or the kind of value.
std::string ArgumentText(const OptionText& option);
// The option's help sentence, with its default value.
std::string HelpText(const OptionText& option);

inline constexpr char kFrontProgram[] = "anyorder";

struct Subcommand {
  CLI::App* app;  // owned by the front
  // After parsing; returns the exit status, having reported what went wrong.
  std::function<int()> run;
  bool computes = false;  // with threads of OpenMP (EnsureShortSpin)
};

// Parses, and runs the subcommand that is called, under its name in the log. The exit status.
int ParseAndRun(CLI::App& app, const std::vector<Subcommand>& subcommands, int argc, char** argv);

// A subcommand's usual end: one line on stderr if `status` is an error; the exit status.
inline int Report(const absl::Status& status) { return ReportAndExitStatus(kFrontProgram, status); }
// The end of a subcommand that succeeds with several exit statuses; 74, too, if what it printed did
// not reach its reader.
int Report(const absl::StatusOr<int>& exit_status);

}  // namespace anyorder::launcher
