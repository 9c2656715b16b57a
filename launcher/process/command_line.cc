#include "launcher/process/command_line.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/base/log.h"
#include "core/base/named_path.h"
#include "core/train/run/config_keys.h"
#include "launcher/process/child_process.h"
#include "launcher/process/display_width.h"

namespace anyorder::launcher {
namespace {

constexpr size_t kOptionColumns = 32;
constexpr char kBest[] = "best";
constexpr int64_t kHelpColumns = 66;
constexpr char kPlainToo[] = "; the option's name may be left out";

// CLI11's type names are "TEXT", "TEXT:{hf,run}", "PATH"; of a number without a check "UINT".
void ReadType(absl::string_view type, OptionText& text) {
  const size_t colon = type.find(':');
  text.argument = std::string(type.substr(0, colon));
  if (text.argument == "INT" || text.argument == "UINT") text.argument = "N";
  if (text.argument == "FLOAT") text.argument = "X";
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
  // A run directory may be given twice, as an option and as an argument.
  text.is_repeated = option.get_expected_max() > 2;
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
  // Arguments that are options, too, are in one list only.
  std::string make_positionals(const CLI::App* app) const override {
    const std::vector<const CLI::Option*> options = app->get_options([](const CLI::Option* option) {
      return !option->get_group().empty() && option->get_positional() &&
             option->get_lnames().empty();
    });
    return options.empty() ? "" : make_group(get_label("Positionals"), true, options);
  }
  // Of a plain argument.
  std::string make_option_usage(const CLI::Option* option) const override {
    const std::string name = make_option_name(option, true);
    const std::string text = DescribeOption(*option).is_repeated ? name + "..." : name;
    return option->get_required() ? text : absl::StrCat("[", text, "]");
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

// What other systems call a command; "" for a word that is none of theirs.
std::string CommandKnownElsewhere(const std::string& word) {
  struct Elsewhere {
    const char* command;
    std::vector<const char*> names;
  };
  static const std::vector<Elsewhere>& known = *new std::vector<Elsewhere>{
      {"prep", {"preprocess", "prepare", "tokenize"}},
      {"launch", {"train", "pretrain", "run", "start", "resume", "torchrun"}},
      {"submit", {"sbatch", "slurm"}},
      {"eval", {"evaluate", "validate", "test", "perplexity"}},
      {"generate", {"sample", "infer", "inference"}},
      {"embed", {"embeddings", "encode"}},
      {"rank", {"rerank", "retrieve"}},
      {"export", {"convert", "save"}},
      {"import", {"load"}}};
  for (const Elsewhere& elsewhere : known)
    for (const char* name : elsewhere.names)
      if (word == name) return elsewhere.command;
  return "";
}

std::string UnknownCommand(const CLI::App& front, const std::string& word) {
  const std::vector<std::string> known = SubcommandNames(front);
  std::string nearest = CommandKnownElsewhere(word);
  if (std::find(known.begin(), known.end(), nearest) == known.end())
    nearest = NearestName(word, known);
  return absl::StrCat("unknown command '", word, "'; ",
                      nearest.empty() ? absl::StrCat("commands: ", absl::StrJoin(known, ", "))
                                      : absl::StrCat("did you mean '", nearest, "'?"));
}

// The key of the configuration that somebody means who writes it as an option: --lr, --max-steps,
// --num-layers. "" if none is.
std::string KeyMeantBy(absl::string_view option) {
  const std::string key = absl::StrReplaceAll(absl::StripPrefix(option, "--"), {{"-", "_"}});
  const std::string elsewhere = KeyKnownElsewhere("", key);
  if (!elsewhere.empty()) return elsewhere;
  for (const std::string& name : {absl::StrCat("train.", key), key}) {
    const absl::StatusOr<ConfigKey> found = FindConfigKey(name);
    if (found.ok()) return found->name();
  }
  return "";
}

// What stands for the option `name` of other systems, or of another command, where `command` has
// it; "" for none.
std::string OptionKnownElsewhere(const CLI::App& command, absl::string_view name) {
  struct Elsewhere {
    const char* option;
    const char* usage;
    std::vector<absl::string_view> names;
  };
  static const std::vector<Elsewhere>& known = *new std::vector<Elsewhere>{
      {"--input",
       "--input -' with the text on standard input, or '--input FILE",
       {"--prompt", "--prompts", "--text"}},
      {"--data", "--data", {"--shards", "--dataset", "--examples", "--input"}},
      {"--set", "--set data.shards=DIR", {"--data", "--shards", "--dataset", "--input"}},
      {"--output", "--output", {"--out", "--output-dir", "--output_dir", "--save-dir"}},
      {"--ranks",
       "--ranks",
       {"--nproc_per_node", "--nproc-per-node", "--np", "--num_processes", "--num-processes",
        "--gpus"}},
      {"--seeds", "--seeds", {"--seed", "--random_seed", "--random-seed", "--data_seed"}},
      {"--run-dir", "--run-dir", {"--model", "--run", "--checkpoint", "--ckpt"}}};
  for (const Elsewhere& one : known) {
    const CLI::Option* const option = command.get_option_no_throw(one.option);
    // Standard input is no input of every command: the help says so.
    if (option == nullptr || std::find(one.names.begin(), one.names.end(), name) == one.names.end())
      continue;
    const bool takes_it = !absl::StrContains(one.usage, " -'") ||
                          absl::StrContains(option->get_description(), " -: ");
    return takes_it ? one.usage : one.option;
  }
  return "";
}

// Whether --set takes the key `name`: that of `eval` says in its help which few it takes.
bool TakesKey(const CLI::Option& set, absl::string_view name) {
  const std::string help = set.get_description(), section(name.substr(0, name.rfind('.')));
  return !absl::StrContains(help, ".KEY") || absl::StrContains(help, name) ||
         absl::StrContains(help, section + ".KEY");
}

std::string UnknownOption(const CLI::App& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const std::string text = absl::StrCat("unknown option '", word, "'");
  if (const std::string elsewhere = OptionKnownElsewhere(command, name); !elsewhere.empty())
    return absl::StrCat(text, "; did you mean '", elsewhere, "'?");
  if (const CLI::Option* const set = command.get_option_no_throw("--set"); set != nullptr) {
    const std::string meant = KeyMeantBy(name);
    if (!meant.empty() && TakesKey(*set, meant))
      return absl::StrCat(text, "; did you mean '--set ", meant, "=VALUE'?");
  }
  const std::string nearest = NearestName(name, OptionNames(command));
  return nearest.empty() ? text : absl::StrCat(text, "; did you mean '", nearest, "'?");
}

bool IsSetting(const CLI::App& command, const std::string& word) {
  return absl::StrContains(word, '=') && command.get_option_no_throw("--set") != nullptr;
}

std::string UnknownArgument(const CLI::App& command, const std::string& word) {
  const char* advice = "";
  if (IsSetting(command, word)) {
    // `--set key = value` is three words.
    advice = word.front() == '=' || word.back() == '='
                 ? "; write --set section.key=value without spaces around ="
                 : "; write --set before every section.key=value";
  }
  return absl::StrCat("unknown argument '", word, "'", advice);
}

// Of a word that no option takes, where the run directory is `run_dir` already.
std::string WordTooMany(const CLI::App& command, const std::string& word,
                        const std::string& run_dir) {
  struct Meant {
    const char* option;
    const char* advice;
  };
  constexpr Meant kMeant[] = {{"--text", "; a text is given by --text"},
                              {"--input", "; what to read is named by --input"},
                              {"--output", "; what to write is named by --output"},
                              {"--set", "; a setting is written --set section.key=value"}};
  const char* advice = "";
  for (const Meant& meant : kMeant)
    if (*advice == '\0' && command.get_option_no_throw(meant.option) != nullptr)
      advice = meant.advice;
  return absl::StrCat("'", word, "' is one word too many: the run directory is '", run_dir,
                      "' already", advice);
}

// CLI11 looks for what is missing before what is too much, so that `launch --rnu-dir x` would be
// told of --run-dir only.
std::string NameUnknown(const CLI::App& command, const std::string& word) {
  if (word.size() > 1 && word[0] == '-') return UnknownOption(command, word);
  return SubcommandNames(command).empty() ? UnknownArgument(command, word)
                                          : UnknownCommand(command, word);
}

// What CLI11 says where no check of ours speaks first, in plain words.
std::string PlainFault(const CLI::ParseError& error) {
  const std::string text = error.what();
  const std::string option = text.substr(0, text.find(':'));
  if (error.get_name() == "ArgumentMismatch") {
    return absl::StrContains(text, " missing")
               ? absl::StrCat(option, " needs a value")
               : absl::StrCat(option, " is given twice; give it once");
  }
  // A sentence of its own, which is not about that option's value.
  if (constexpr absl::string_view kOption = "--run-dir: ";
      absl::StartsWith(text, absl::StrCat(kOption, "unknown argument")) ||
      absl::StrContains(text, "is one word too many"))
    return std::string(absl::StripPrefix(text, kOption));
  if (error.get_name() == "ConversionError")
    return absl::StrReplaceAll(text, {{"Could not convert: ", ""}, {" = ", " cannot be "}});
  return text;
}

std::string Fault(const CLI::App& app, const CLI::App& command, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if (!unknown.empty()) return NameUnknown(command, unknown.front());
  const std::vector<std::string> subcommands = SubcommandNames(command);
  if (!subcommands.empty())
    return absl::StrCat("a command is required: ", absl::StrJoin(subcommands, ", "));
  return PlainFault(error);
}

// Whether --help was asked of a command that is none.
bool IsHelpOfUnknown(const CLI::App& app, const CLI::App& command) {
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  return !unknown.empty() && unknown.front()[0] != '-' && !SubcommandNames(command).empty();
}

namespace fs = std::filesystem;

std::string Quoted(const fs::path& path) { return absl::StrCat("'", path.string(), "' "); }

// " cannot be VERB (why)" if the path itself is at fault; "" of an error of the machine, as of a
// disk or a network that fails, which is for the command to meet, with another status.
std::string WhyNot(const fs::path& path, const char* verb, std::error_code error) {
  for (const std::errc fault :
       {std::errc::permission_denied, std::errc::operation_not_permitted,
        std::errc::too_many_symbolic_link_levels, std::errc::filename_too_long})
    if (error == fault)
      return absl::StrCat(Quoted(path), "cannot be ", verb, " (", error.message(), ")");
  return "";
}

std::string WhyNoAccess(const fs::path& path, const char* verb, int mode) {
  if (::access(path.c_str(), mode) == 0) return "";
  return WhyNot(path, verb, std::error_code(errno, std::generic_category()));
}

// The configuration that somebody means who writes xlnet-tiny, or configs/xlnet-tiny.toml in
// another directory; "" if there is none. A clone, a bundle and an installed tree have them in
// different places.
std::string ConfigMeantBy(const fs::path& path) {
  const fs::path programs = ProgramDirectory();
  fs::path name = path.filename();
  name.replace_extension(".toml");
  for (const fs::path& place : {path.parent_path(), fs::path("configs"), programs / "../../configs",
                                programs / "../configs", programs / "../share/anyorder/configs"}) {
    if (IsFile(place / name)) return (place / name).lexically_normal().string();
  }
  return "";
}

// "" if `path` can be opened for reading; otherwise what is wrong with it.
std::string WhyUnreadable(const fs::path& path, PathUse use) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    const std::string meant = use == PathUse::kReadConfig ? ConfigMeantBy(path) : "";
    return Quoted(path) + "does not exist" +
           (meant.empty() ? "" : absl::StrCat("; did you mean '", meant, "'?"));
  }
  if (error) return WhyNot(path, "read", error);
  const bool is_directory = fs::is_directory(status);
  if (is_directory && (use == PathUse::kReadFile || use == PathUse::kReadConfig))
    return Quoted(path) + "is a directory, but must be a file";
  if (!is_directory && use == PathUse::kReadDirectory) return Quoted(path) + "is not a directory";
  return WhyNoAccess(path, "read", is_directory ? R_OK | X_OK : R_OK);
}

// `path`, or what of it is there.
fs::path ExistingPart(const fs::path& path) {
  std::error_code error;
  fs::path part = fs::absolute(path, error);
  while (part.has_relative_path() && fs::status(part, error).type() == fs::file_type::not_found)
    part = part.parent_path();
  return part;
}

// "" if `place` is a directory that this user may use so (access(2)).
std::string WhyUnusable(const fs::path& place, int mode) {
  std::error_code error;
  const fs::file_status status = fs::status(place, error);
  const char* const verb = mode == X_OK ? "opened" : "written to";
  if (error) return WhyNot(place, verb, error);
  if (!fs::is_directory(status)) return Quoted(place) + "is not a directory";
  return WhyNoAccess(place, verb, mode);
}

// "" if a file can be written at `path`; otherwise what is in the way.
std::string WhyUnwritable(const fs::path& path) {
  std::error_code error;
  if (IsDirectory(path)) return Quoted(path) + "is a directory, but must be a file";
  const fs::path parent = fs::absolute(path, error).parent_path();
  if (fs::status(parent, error).type() == fs::file_type::not_found)
    return Quoted(parent) + "does not exist";
  return WhyUnusable(parent, W_OK | X_OK);
}

std::string WhyNotFor(PathUse use, const fs::path& path) {
  switch (use) {
    case PathUse::kWriteFile: return WhyUnwritable(path);
    case PathUse::kMakeDirectory: return WhyUnusable(ExistingPart(path), W_OK | X_OK);
    default: return WhyUnreadable(path, use);
  }
}

// As a person compares them: runs/a, runs/a/ and ./runs/a are one.
fs::path ComparablePath(const std::string& path) {
  std::error_code error;
  return fs::absolute(NamedPath(path), error).lexically_normal();
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
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "help" && !SubcommandNames(app).empty()) {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  try {
    app.parse(std::move(words));
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    const CLI::App* command = &app;
    std::string name = app.get_name();
    while (!command->get_subcommands().empty()) {
      command = command->get_subcommands().back();
      absl::StrAppend(&name, " ", command->get_name());
    }
    const bool is_help = error.get_exit_code() == 0;  // or --version
    if (is_help && !IsHelpOfUnknown(app, *command)) return app.exit(error);
    const std::string fault = Fault(app, *command, error);
    return ReportAndExitStatus(
        app.get_name(),
        InvalidArgument(fault, fault.ends_with('?') ? " See `" : "; see `", name, " --help`"));
  }
}

int ParseAndRun(CLI::App& app, const std::vector<Subcommand>& subcommands, int argc, char** argv) {
  if (const auto ended = ParseCommandLine(app, argc, argv)) return *ended;
  for (const Subcommand& subcommand : subcommands) {
    if (!subcommand.app->parsed()) continue;
    if (subcommand.computes) EnsureShortSpin();
    SetLogName(subcommand.app->get_name());
    return subcommand.run();
  }
  return kExitUsage;
}

int Report(const absl::StatusOr<int>& exit_status) {
  const int reported = Report(exit_status.status());
  return exit_status.ok() && reported == kExitDone ? *exit_status : reported;
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
  CLI::Option* option = command->add_option(names, value, help)->check(IsOneOf(values));
  return value.empty() ? option : option->capture_default_str();
}

std::string FieldFlags::NameOf(const std::string& key) const {
  const auto named = names_.find(key);
  return named != names_.end() ? named->second
                               : absl::StrCat("--", absl::StrReplaceAll(key, {{"_", "-"}}));
}

CLI::Option* AddStep(CLI::App* command, int64_t& step, const std::string& scope,
                     const std::string& names) {
  const auto read = [&step](const std::string& text) {
    if (text == kBest)
      step = kBestStep;
    else
      (void)absl::SimpleAtoi(text, &step);
  };
  const auto fault = [](const std::string& text) {
    return text == kBest ? "" : IsCount(0, kMaxCount)(text);
  };
  return command
      ->add_option_function<std::string>(
          names, read,
          scope +
              "step of the checkpoint, or best: the one with the best evaluation (eval.metric) "
              "(default: the newest valid one)")
      ->check(fault)
      ->type_name("N");
}

CLI::Option* AddRawWeights(CLI::App* command, bool& raw_weights) {
  return command->add_flag("--raw-weights", raw_weights,
                           "the weights themselves, of a run that keeps their average "
                           "(optimizer.ema_decay; default: the average)");
}

CLI::Option* AddSettings(CLI::App* command, std::vector<std::string>& settings,
                         const std::string& help) {
  return command->add_option("--set", settings, help)
      ->allow_extra_args(false)
      ->type_name("SECTION.KEY=VALUE");
}

ValueCheck IsNotEmpty() {
  return
      [](const std::string& text) { return text.empty() ? "must name a path, not be empty" : ""; };
}

ValueCheck IsCount(int64_t least, int64_t most) {
  return [=](const std::string& text) -> std::string {
    int64_t value = 0;
    if (absl::SimpleAtoi(text, &value) && value >= least && value <= most) return "";
    const std::string range = most == kMaxCount ? absl::StrCat(", at least ", least)
                              : least == most   ? absl::StrCat(", ", least)
                                                : absl::StrCat(" from ", least, " to ", most);
    return absl::StrCat("must be a whole number", range, ", not '", text, "'");
  };
}

ValueCheck IsNumber(const FieldBounds& bounds) {
  return [=](const std::string& text) -> std::string {
    double value = 0;
    if (absl::SimpleAtod(text, &value) && bounds.Contain(value)) return "";
    const std::string range = bounds.ToText();
    return absl::StrCat("must be a number", range.empty() ? "" : " ", range, ", not '", text, "'");
  };
}

CLI::Validator IsOneOf(const std::vector<std::string>& values) {
  // The description is what ReadType reads them from.
  return {[values](const std::string& text) {
            if (std::find(values.begin(), values.end(), text) != values.end()) return std::string();
            return absl::StrCat("must be ", absl::StrJoin(values, " or "), ", not '", text, "'");
          },
          absl::StrCat("{", absl::StrJoin(values, ","), "}")};
}

ValueCheck IsUsable(PathUse use, bool takes_dash) {
  return [use, takes_dash](const std::string& path) {
    return takes_dash && path == "-" ? "" : WhyNotFor(use, path);
  };
}

CLI::Option* AddRunDir(CLI::App* command, std::string& run_dir, const std::string& help) {
  const auto first = std::make_shared<std::string>();
  const auto check = [first, command](const std::string& text) {
    if (first->empty()) *first = text;
    if (ComparablePath(*first) == ComparablePath(text))
      return WhyUnusable(ExistingPart(text), X_OK);
    for (const std::string& word : {text, *first})
      if (IsSetting(*command, word)) return UnknownArgument(*command, word);
    return WordTooMany(*command, text, *first);
  };
  return AddPath(command, "--run-dir,run-dir", run_dir, help + kPlainToo)
      ->check(check)
      ->required()
      ->type_name("DIR")
      ->expected(1, 2)
      ->allow_extra_args();
}

CLI::Option* AddRunDirs(CLI::App* command, std::vector<std::string>& run_dirs,
                        const std::string& help) {
  return AddPath(command, "--run-dir,run-dir", run_dirs, help + kPlainToo)
      ->check([](const std::string& text) { return WhyUnusable(ExistingPart(text), X_OK); })
      ->required()
      ->type_name("DIR");
}

}  // namespace anyorder::launcher
