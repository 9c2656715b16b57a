#include "launcher/process/command_tree.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace anyorder::launcher {
namespace {

constexpr size_t kOptionColumns = 32;
constexpr size_t kHelpColumns = 66;

// CLI11's type names are "TEXT", "TEXT:{hf,run}", "PATH".
void ReadType(absl::string_view type, OptionText& text) {
  const size_t colon = type.find(':');
  text.argument = std::string(type.substr(0, colon));
  if (colon == absl::string_view::npos) return;
  absl::string_view set = type.substr(colon + 1);
  if (!absl::ConsumePrefix(&set, "{") || !absl::ConsumeSuffix(&set, "}")) return;
  text.values = absl::StrSplit(set, ',');
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

}  // namespace

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

std::string Wrapped(const std::string& text, const std::string& indent, size_t columns) {
  std::string wrapped = indent;
  size_t used = indent.size();
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    const bool is_first = used == indent.size();
    if (!is_first && used + 1 + word.size() > columns) {
      absl::StrAppend(&wrapped, "\n", indent, word);
      used = indent.size() + word.size();
    } else {
      absl::StrAppend(&wrapped, is_first ? "" : " ", word);
      used += word.size() + (is_first ? 0 : 1);
    }
  }
  return wrapped;
}

std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter() {
  return std::make_shared<HelpFormatter>();
}

}  // namespace anyorder::launcher
