// A program's command line as data, read from its CLI11 declarations: what --help, man pages and
// shell completion are made of.

#pragma once

#include <CLI/CLI.hpp>

#include <memory>
#include <string>
#include <vector>

namespace anyorder::launcher {

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

OptionText DescribeOption(const CLI::Option& option);
// Without subcommands and options that are not in --help.
CommandText DescribeCommand(const CLI::App& app);

// "hf|run", or the kind of value.
std::string ArgumentText(const OptionText& option);
// Its sentence, and what it is where it is not given.
std::string HelpText(const OptionText& option);

// Broken into lines of at most `columns`, each after `indent`.
std::string Wrapped(const std::string& text, const std::string& indent, size_t columns = 100);

std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter();

}  // namespace anyorder::launcher
