// What is made of a command line's declarations: `anyorder completion SHELL` and, for the build,
// `anyorder man DIR`.

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

#include "core/base/file_system.h"
#include "core/base/status.h"
#include "core/train/run/config_keys.h"
#include "launcher/process/command_line.h"
#include "launcher/process/new_files.h"

namespace anyorder::launcher {
namespace {

constexpr char kSettingArgument[] = "SECTION.KEY=VALUE";

// Words that may follow `command` where no option's value is due.
std::string WordsOf(const CommandText& command) {
  std::vector<std::string> words;
  for (const CommandText& subcommand : command.commands) words.push_back(subcommand.name);
  for (const std::vector<OptionText>* options : {&command.arguments, &command.options})
    for (const OptionText& option : *options) {
      const auto& offered = options == &command.options ? option.names : option.values;
      words.insert(words.end(), offered.begin(), offered.end());
    }
  return absl::StrJoin(words, " ");
}

bool TakesFiles(const CommandText& command) {
  for (const OptionText& argument : command.arguments)
    if (argument.takes_file()) return true;
  return false;
}

// Cases of bash's `case "$command $previous"`: what an option's value may be.
std::string BashValueCases(const CommandText& command) {
  std::string text;
  for (const OptionText& option : command.options) {
    if (option.argument.empty()) continue;
    std::vector<std::string> patterns;
    for (const std::string& name : option.names)
      patterns.push_back(absl::StrCat("'", command.name, " ", name, "'"));
    const bool is_setting = option.argument == kSettingArgument;
    const std::string reply =
        option.takes_file() ? "compopt -o filenames; _@PROGRAM@_offer -f"
        : !option.values.empty()
            ? absl::StrCat("_@PROGRAM@_offer -W '", absl::StrJoin(option.values, " "), "'")
        : is_setting               ? "compopt -o nospace; _@PROGRAM@_offer -W \"$keys\" -S ="
        : option.argument == "KEY" ? "_@PROGRAM@_offer -W \"$keys\""
                                   : "";
    absl::StrAppend(&text, "    ", absl::StrJoin(patterns, "|"), ") ", reply,
                    reply.empty() ? "" : "; ", "return ;;\n");
  }
  return text;
}

// 'key) values="a b" ;;' of each enumeration.
std::string KeyValueCases(const std::vector<ConfigKey>& keys) {
  std::string text;
  for (const ConfigKey& key : keys) {
    if (!key.values.empty())
      absl::StrAppend(&text, "    ", key.name(), ") values=\"", absl::StrJoin(key.values, " "),
                      "\" ;;\n");
  }
  return text;
}

std::string KeyNames(const std::vector<ConfigKey>& keys, const char* separator) {
  return absl::StrJoin(keys, separator, [](std::string* text, const ConfigKey& key) {
    absl::StrAppend(text, key.name());
  });
}

constexpr char kBash[] = R"(# bash completion for @PROGRAM@; made by `@PROGRAM@ completion bash`
_@PROGRAM@_offer() { mapfile -t COMPREPLY < <(compgen "$@" -- "$word"); }
_@PROGRAM@() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command='' values='' i
  local keys='@KEYS@'
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in @COMMANDS@) command=${COMP_WORDS[i]}; break ;; esac
  done
  # readline splits KEY=VALUE at the equals sign
  if [[ $word == = ]]; then
    previous='='; word=''; i=$((COMP_CWORD - 1))
  else
    i=$((COMP_CWORD - 2))
  fi
  if [[ $previous == = && $i -gt 0 && ${COMP_WORDS[i-1]} == --set ]]; then
    case ${COMP_WORDS[i]} in
@KEY_VALUES@    esac
    _@PROGRAM@_offer -W "$values"
    return
  fi
  case "$command $previous" in
@VALUES@  esac
  case $command in
@WORDS@  esac
}
complete -F _@PROGRAM@ @PROGRAM@
)";

constexpr char kZsh[] = R"(#compdef @PROGRAM@
# zsh completion for @PROGRAM@; made by `@PROGRAM@ completion zsh`
_@PROGRAM@_setting() {
  local -a keys values
  keys=(@KEYS@)
  if compset -P '*='; then
    case ${IPREFIX%=} in
@KEY_VALUES@    esac
    compadd -- ${=values}
  else
    compadd -S = -- $keys
  fi
}
_@PROGRAM@_key() { compadd -- @KEYS@ }
_@PROGRAM@() {
  local context state line
  local -a commands
  commands=(
@COMMANDS@  )
  _arguments -C @PROGRAM_OPTIONS@ '1:command:->command' '*::argument:->arguments'
  case $state in
  command) _describe command commands ;;
  arguments)
    case $words[1] in
@WORDS@    esac ;;
  esac
}
_@PROGRAM@ "$@"
)";

std::string ZshQuoted(const std::string& text) {
  return absl::StrReplaceAll(
      text, {{"\\", "\\\\"}, {"'", "'\\''"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

// One argument of zsh's _arguments for each name of each option.
std::string ZshOptions(const CommandText& command, const std::string& program) {
  std::string text;
  for (const OptionText& option : command.options) {
    const bool is_setting = option.argument == kSettingArgument;
    const std::string action = option.takes_file() ? "_files"
                               : !option.values.empty()
                                   ? absl::StrCat("(", absl::StrJoin(option.values, " "), ")")
                               : is_setting               ? absl::StrCat("_", program, "_setting")
                               : option.argument == "KEY" ? absl::StrCat("_", program, "_key")
                                                          : "";
    for (const std::string& name : option.names) {
      absl::StrAppend(&text, " '", option.is_repeated ? "*" : "", name, "[", ZshQuoted(option.help),
                      "]");
      if (!option.argument.empty())
        absl::StrAppend(&text, ":", ZshQuoted(option.argument), ":", action);
      absl::StrAppend(&text, "'");
    }
  }
  return text;
}

std::string Escaped(const std::string& text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"\n", "\n\\&"}});
  // A dot or quote at the start of a line would be a request.
  return absl::StartsWith(escaped, ".") || absl::StartsWith(escaped, "'") ? "\\&" + escaped
                                                                          : escaped;
}

std::string Title(const std::string& name, const std::string& summary, const std::string& version) {
  return absl::StrCat(".TH \"", absl::AsciiStrToUpper(name), "\" 1 \"\" \"anyorder ", version,
                      "\"\n.SH NAME\n", Escaped(name), " \\- ",
                      Escaped(std::string(absl::StripSuffix(summary, "."))), "\n");
}

std::string OptionsSection(const CommandText& command) {
  std::string text;
  for (const auto& [heading, options] :
       {std::pair{"ARGUMENTS", &command.arguments}, {"OPTIONS", &command.options}}) {
    if (!options->empty()) absl::StrAppend(&text, ".SH ", heading, "\n");
    for (const OptionText& option : *options) {
      const std::string argument = ArgumentText(option);
      const std::string names = absl::StrJoin(option.names, ", ");
      // A plain argument that is an option, too, is shown by its kind of value.
      absl::StrAppend(&text, ".TP\n\\fB", heading[0] == 'A' ? "" : Escaped(names), "\\fR",
                      names.empty() || heading[0] == 'A' || argument.empty() ? "" : " ", "\\fI",
                      Escaped(argument), "\\fR\n", Escaped(HelpText(option)), "\n");
    }
  }
  return text;
}

std::string ExamplesSection(const CommandText& command) {
  if (command.examples.empty()) return "";
  return absl::StrCat(".SH EXAMPLES\n.nf\n", Escaped(command.examples), "\n.fi\n");
}

constexpr char kExitStatus[] =
    ".SH EXIT STATUS\n"
    "0 done; 64 bad usage or configuration; 65 bad input data; 70 internal error; 74 I/O error; 75 "
    "checkpointed, run it again; 93 running it again will not help.\n";

// Both complete subcommands, options, enumerations and files, and after --set configuration keys
// and their enumerators.
std::string BashCompletion(const CommandText& program, const std::vector<ConfigKey>& keys) {
  std::string values = BashValueCases(program);
  std::string words;
  std::vector<std::string> names;
  for (const CommandText& command : program.commands) {
    names.push_back(command.name);
    absl::StrAppend(&values, BashValueCases(command));
    absl::StrAppend(&words, "    ", command.name, ") ",
                    TakesFiles(command)
                        ? "[[ $word == -* ]] || { compopt -o filenames; _@PROGRAM@_offer -f; "
                          "return; }; "
                        : "",
                    "_@PROGRAM@_offer -W '", WordsOf(command), "' ;;\n");
  }
  absl::StrAppend(&words, "    '') _@PROGRAM@_offer -W '", WordsOf(program), "' ;;\n");
  const std::string script = absl::StrReplaceAll(kBash, {{"@KEYS@", KeyNames(keys, " ")},
                                                         {"@COMMANDS@", absl::StrJoin(names, "|")},
                                                         {"@KEY_VALUES@", KeyValueCases(keys)},
                                                         {"@VALUES@", values},
                                                         {"@WORDS@", words}});
  return absl::StrReplaceAll(script, {{"@PROGRAM@", program.name}});
}

std::string ZshCompletion(const CommandText& program, const std::vector<ConfigKey>& keys) {
  std::string commands, words;
  for (const CommandText& command : program.commands) {
    absl::StrAppend(&commands, "    '", command.name, ":", ZshQuoted(command.summary), "'\n");
    absl::StrAppend(&words, "    ", command.name, ") _arguments",
                    ZshOptions(command, program.name));
    for (const OptionText& argument : command.arguments) {
      const std::string values = absl::StrJoin(argument.values, " ");
      absl::StrAppend(&words, " '*:argument:",
                      argument.takes_file() ? "_files" : absl::StrCat("(", values, ")"), "'");
    }
    absl::StrAppend(&words, " ;;\n");
  }
  return absl::StrReplaceAll(kZsh, {{"@PROGRAM@", program.name},
                                    {"@KEYS@", KeyNames(keys, " ")},
                                    {"@KEY_VALUES@", KeyValueCases(keys)},
                                    {"@COMMANDS@", commands},
                                    {"@PROGRAM_OPTIONS@", ZshOptions(program, program.name)},
                                    {"@WORDS@", words}});
}

// The page of "PROGRAM", or of "PROGRAM COMMAND".
std::string ManPage(const CommandText& page, const std::string& words, const std::string& version) {
  const bool has_commands = !page.commands.empty();
  std::string text = Title(absl::StrReplaceAll(words, {{" ", "-"}}), page.summary, version);
  absl::StrAppend(&text, ".SH SYNOPSIS\n\\fB", Escaped(words), "\\fR ",
                  has_commands ? "\\fICOMMAND\\fR " : "", "[\\fIOPTIONS\\fR]\n",
                  has_commands ? ".SH COMMANDS\n" : "");
  for (const CommandText& command : page.commands)
    absl::StrAppend(&text, ".TP\n\\fB", Escaped(command.name), "\\fR\n", Escaped(command.summary),
                    " See \\fB", Escaped(words + "-" + command.name), "\\fR(1).\n");
  return text + OptionsSection(page) + ExamplesSection(page) + kExitStatus;
}

// Writes PROGRAM.1 and PROGRAM-COMMAND.1 of each command into `directory`, which it makes.
absl::Status WriteManPages(const CommandText& program, const std::string& version,
                           const std::string& directory) {
  RETURN_IF_ERROR(MakeDirectories(directory));
  const std::string page = absl::StrCat(directory, "/", program.name);
  RETURN_IF_ERROR(WriteFileAtomically(page + ".1", ManPage(program, program.name, version)));
  for (const CommandText& command : program.commands) {
    RETURN_IF_ERROR(
        WriteFileAtomically(absl::StrCat(page, "-", command.name, ".1"),
                            ManPage(command, program.name + " " + command.name, version)));
  }
  return absl::OkStatus();
}

}  // namespace

Subcommand DeclareCompletion(CLI::App& front) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* command = AddCommand(
      front, "completion", "Print a shell's completion script.",
      {"source <(anyorder completion bash)", "anyorder completion zsh > ~/.zfunc/_anyorder"});
  AddChoice(command, "shell", *shell, {"bash", "zsh"}, "shell to print the script for")->required();
  return {command, [shell, &front] {
            const CommandText program = DescribeCommand(front);
            const std::string script = *shell == "bash" ? BashCompletion(program, ConfigKeys())
                                                        : ZshCompletion(program, ConfigKeys());
            std::fputs(script.c_str(), stdout);
            return Report(absl::OkStatus());
          }};
}

Subcommand DeclareManPages(CLI::App& front) {
  const auto directory = std::make_shared<std::string>();
  CLI::App* command =
      AddCommand(front, "man", "Write the manual pages of all commands.", {})->group("");
  AddPath(command, "directory", *directory, "directory to write them to", PathUse::kMakeDirectory)
      ->required();
  return {command, [directory, &front] {
            return Report(WriteManPages(DescribeCommand(front), ANYORDER_VERSION, *directory));
          }};
}

}  // namespace anyorder::launcher
