// `anyorder config`: the documentation of configuration keys, and a check of configuration files.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/train/run/config_file.h"
#include "core/train/run/config_keys.h"
#include "launcher/process/command_line.h"
#include "launcher/process/display_width.h"

namespace anyorder::launcher {
namespace {

struct ConfigLine {
  std::string explain;
  std::string check;
  std::vector<std::string> overrides;
};

std::string ListText(const std::vector<ConfigKey>& keys) {
  std::string text, section;
  for (const ConfigKey& key : keys) {
    if (key.section != section)
      absl::StrAppend(&text, section.empty() ? "" : "\n", "[", key.section, "]\n");
    section = key.section;
    absl::StrAppend(&text, key.key, " = ", key.default_text);
    // "at least 1 steps" reads badly: "steps, at least 1".
    const std::string range =
        absl::StrCat(key.unit, key.unit.empty() || key.bounds.empty() ? "" : ", ", key.bounds);
    if (!range.empty()) absl::StrAppend(&text, "  (", range, ")");
    absl::StrAppend(&text, "\n", Wrapped(key.help, "    "), "\n");
  }
  return text;
}

std::string ExplainText(const ConfigKey& key) {
  std::string text = absl::StrCat(key.name(), "\n", Wrapped(key.help, "    "), "\n\n");
  const auto add = [&text](const char* what, const std::string& value) {
    if (!value.empty())
      absl::StrAppend(&text, Wrapped(absl::StrCat(what, ": ", value), "    "), "\n");
  };
  add("type", key.type);
  add("default", key.default_text);
  add("bounds", key.bounds);
  add("unit", key.unit);
  absl::StrAppend(&text, "\n    in a file:         [", key.section, "]\n                       ",
                  key.key, " = ", key.default_text, "\n    on a command line: --set ", key.name(),
                  "=VALUE\n");
  return text;
}

absl::Status RunConfigCommand(const ConfigLine& line) {
  if (!line.check.empty()) return LoadRunConfig(line.check, line.overrides).status();
  std::string text;
  if (line.explain.empty()) {
    text = ListText(ConfigKeys());
  } else {
    ASSIGN_OR_RETURN(const ConfigKey key, FindConfigKey(line.explain));
    text = ExplainText(key);
  }
  std::fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

Subcommand DeclareConfig(CLI::App& front) {
  const auto line = std::make_shared<ConfigLine>();
  CLI::App* command =
      AddCommand(front, "config", "List and explain configuration keys; check configuration files.",
                 {"anyorder config", "anyorder config --explain train.global_batch_size",
                  "anyorder config --check my.toml --set data.shards=shards"});
  CLI::Option* explain = command->add_option("--explain", line->explain, "print one key in full")
                             ->check(IsNotEmpty())
                             ->type_name("KEY");
  CLI::Option* check =
      AddPath(command, "--check", line->check,
              "check a configuration file: silent with status 0, or its errors with status 64",
              PathUse::kReadConfig)
          ->excludes(explain);
  AddSettings(command, line->overrides, "--check: override a configuration key")->needs(check);
  return {command, [line] { return Report(RunConfigCommand(*line)); }};
}

}  // namespace anyorder::launcher
