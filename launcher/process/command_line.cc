#include "launcher/process/command_line.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/fields.h"
#include "launcher/process/display_width.h"

namespace anyorder::launcher {
namespace {

constexpr size_t kOptionColumns = 32;
constexpr int64_t kHelpColumns = 66;

// CLI11's type names are "TEXT", "TEXT:{hf,run}", "PATH".
void ReadType(absl::string_view type, OptionText& text) {
  const size_t colon = type.find(':');
  text.argument = std::string(type.substr(0, colon));
  if (colon == absl::string_view::npos) return;
  absl::string_view set = type.substr(colon + 1);
  if (!absl::ConsumePrefix(&set, "{") || !absl::ConsumeSuffix(&set, "}")) return;
  text.values = absl::StrSplit(set, ',');
}

OptionText DescribeOption(const CLI::Option& option) {
  OptionText text;
  for (const std::string& name : option.get_snames()) text.names.push_back(absl::StrCat("-", name));
  for (const std::string& name : option.get_lnames())
    text.names.push_back(absl::StrCat("--", name));
  if (option.get_type_size() != 0) ReadType(option.get_type_name(), text);
  text.help = option.get_description();
  text.default_text = option.get_default_str();
  text.is_required = option.get_required();
  text.is_repeated = option.get_expected_max() > 1;
  return text;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kOptionColumns); }

  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string argument = ArgumentText(DescribeOption(*option));
    return argument.empty() ? "" : absl::StrCat(" ", argument);
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return Wrapped(HelpText(DescribeOption(*option)), "", kHelpColumns);
  }
};

std::vector<std::string> SubcommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  // One without a group is not in --help, either.
  const auto is_shown = [](const CLI::App* subcommand) { return !subcommand->get_group().empty(); };
  for (const CLI::App* subcommand : app.get_subcommands(is_shown))
    names.push_back(subcommand->get_name());
  return names;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty()) names.push_back(option->get_name());
  return names;
}

// CLI11 looks for what is missing before what is too much, so that `launch --rnu-dir x` would be
// told of --run-dir only.
std::string NameUnknown(const CLI::App& command, const std::string& word) {
  const bool is_option = word.size() > 1 && word[0] == '-';
  const std::vector<std::string> known =
      is_option ? OptionNames(command) : SubcommandNames(command);
  const bool is_setting =
      !is_option && absl::StrContains(word, '=') && command.get_option_no_throw("--set") != nullptr;
  const std::string nearest = NearestName(word.substr(0, word.find('=')), known);
  return absl::StrCat("unknown ",
                      is_option       ? "option '"
                      : known.empty() ? "argument '"
                                      : "subcommand '",
                      word, "'",
                      !nearest.empty() ? absl::StrCat("; did you mean '", nearest, "'?")
                      : is_setting     ? "; write --set before every section.key=value"
                                       : "");
}

std::string Fault(const CLI::App& app, const CLI::App& command, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if (!unknown.empty()) return NameUnknown(command, unknown.front());
  const std::vector<std::string> subcommands = SubcommandNames(command);
  if (!subcommands.empty())
    return absl::StrCat("a subcommand is required: ", absl::StrJoin(subcommands, ", "));
  return error.what();
}

void UseHelpFormatter(CLI::App& app, const std::shared_ptr<CLI::FormatterBase>& formatter) {
  app.formatter(formatter);
  for (CLI::App* subcommand : app.get_subcommands(nullptr))
    UseHelpFormatter(*subcommand, formatter);
}

}  // namespace

CommandText DescribeCommand(const CLI::App& app) {
  CommandText text;
  text.name = app.get_name();
  text.summary = app.get_description();
  text.examples = std::string(absl::StripPrefix(app.get_footer(), "Examples:\n"));
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    const OptionText described = DescribeOption(*option);
    if (!described.names.empty()) text.options.push_back(described);
    if (option->get_positional()) text.arguments.push_back(described);
  }
  for (const CLI::App* command : app.get_subcommands(nullptr))
    if (!command->get_group().empty()) text.commands.push_back(DescribeCommand(*command));
  return text;
}

std::string ArgumentText(const OptionText& option) {
  return option.values.empty() ? option.argument : absl::StrJoin(option.values, "|");
}

std::string HelpText(const OptionText& option) {
  return absl::StrCat(option.help,
                      option.default_text.empty() || absl::StrContains(option.help, "(default")
                          ? ""
                          : absl::StrCat(" (default: ", option.default_text, ")"),
                      option.is_required ? " (required)" : "");
}

std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv) {
  UseHelpFormatter(app, std::make_shared<HelpFormatter>());
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const CLI::App* command = &app;
    std::string name = app.get_name();
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().back();
      absl::StrAppend(&name, " ", command->get_name());
    }
    return ReportAndExitStatus(
        app.get_name(), InvalidArgument(Fault(app, *command, error), "; see `", name, " --help`"));
  }
}

CLI::App* AddCommand(CLI::App& front, const std::string& name, const std::string& summary,
                     const std::vector<std::string>& examples) {
  CLI::App* command = front.add_subcommand(name, summary);
  AddExamples(*command, examples);
  return command;
}

void AddExamples(CLI::App& app, const std::vector<std::string>& examples) {
  if (!examples.empty()) app.footer(absl::StrCat("Examples:\n  ", absl::StrJoin(examples, "\n  ")));
}

CLI::Option* AddChoice(CLI::App* command, const std::string& names, std::string& value,
                       const std::vector<std::string>& values, const std::string& help) {
  CLI::Option* option = command->add_option(names, value, help)->check(CLI::IsMember(values));
  return value.empty() ? option : option->capture_default_str();
}

CLI::Option* AddSettings(CLI::App* command, std::vector<std::string>& settings,
                         const std::string& help) {
  return command->add_option("--set", settings, help)
      ->allow_extra_args(false)
      ->type_name("SECTION.KEY=VALUE");
}

CLI::Validator IsNotEmpty() {
  return {[](const std::string& text) {
            return text.empty() ? std::string("must name a path, not be empty") : std::string();
          },
          ""};
}

CLI::Validator IsNumber() {
  return {[](const std::string& text) {
            double value = 0;
            const bool is_nan = absl::SimpleAtod(text, &value) && std::isnan(value);
            return is_nan ? absl::StrCat(text, " is not a number") : std::string();
          },
          ""};
}

}  // namespace anyorder::launcher
