#include "launcher/process/command_line.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/fields.h"
#include "core/base/status.h"

namespace anyorder::launcher {
namespace {

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
    if (!option->get_positional()) names.push_back(option->get_name());
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

}  // namespace

std::optional<int> ParseCommandLine(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    const CLI::App* command = &app;
    std::string name = app.get_name();
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().back();
      absl::StrAppend(&name, " ", command->get_name());
    }
    return ReportAndExitStatus(
        app.get_name(), absl::InvalidArgumentError(absl::StrCat(Fault(app, *command, error),
                                                                "; see `", name, " --help`")));
  }
}

CLI::Validator IsNotEmpty() {
  return CLI::Validator(
      [](std::string& text) {
        return text.empty() ? std::string("must name a path, not be empty") : std::string();
      },
      "");
}

CLI::Validator IsNumber() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        const bool is_nan = absl::SimpleAtod(text, &value) && std::isnan(value);
        return is_nan ? absl::StrCat(text, " is not a number") : std::string();
      },
      "");
}

}  // namespace anyorder::launcher
