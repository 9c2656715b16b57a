#include "core/train/run/config_file.h"

#define TOML_EXCEPTIONS 0
#define TOML_MAX_NESTED_VALUES 16
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

#include "core/base/log.h"
#include "core/base/status.h"
#include "core/base/unicode.h"
#include "core/base/whole_file.h"
#include "core/train/run/config_keys.h"
#include "core/train/run/field_text.h"

namespace anyorder {
namespace {

std::string SuggestSection(absl::string_view word) {
  std::vector<std::string> names;
  RunConfig config;
  auto visit = [&names](const char* section, auto&&...) { names.emplace_back(section); };
  RunConfig::VisitSections(config, visit);
  const std::string nearest = NearestName(word, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?");
}

std::string Describe(const toml::node& node) {
  std::ostringstream text;
  text << toml::node_view<const toml::node>(node);
  return text.str();
}

// Whether a text is names with commas, which may stand as a TOML list, too.
bool IsList(absl::string_view section, absl::string_view key) {
  return section == "train.lora" ? key == "targets" || key == "tensors"
                                 : section == "model" && key == "cutoffs";
}

// The names of ["q", "v"], also where a shell has taken the quotes away.
std::string ListText(absl::string_view list) {
  const std::string names =
      absl::StrReplaceAll(list, {{"[", ""}, {"]", ""}, {"'", ""}, {"\"", ""}});
  return std::string(absl::StripAsciiWhitespace(names));
}

// False if `node` does not hold a T.
template <typename T>
bool ReadNode(const toml::node& node, T& value, bool is_list) {
  if constexpr (std::is_same_v<T, double> || std::is_same_v<T, int64_t>) {
    // 1e4 is a whole number, too.
    const std::optional<T> number = node.value<T>();
    if (!node.is_number() || !number) return false;
    value = *number;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!node.is_boolean()) return false;
    value = node.as_boolean()->get();
  } else {
    if constexpr (std::is_same_v<T, std::string>)
      if (node.is_array() && is_list) {
        value = ListText(Describe(node));
        return true;
      }
    if (!node.is_string()) return false;
    if constexpr (std::is_enum_v<T>) return ParseEnum(node.as_string()->get(), value);
    if constexpr (std::is_same_v<T, std::string>) value = node.as_string()->get();
  }
  return true;
}

// What the parser met, without its "Error while parsing value: ".
std::string ParserWords(const toml::parse_error& error) {
  const std::string_view words = error.description();
  const size_t colon = words.find(": ");
  return std::string(words.substr(colon == std::string_view::npos ? 0 : colon + 2));
}

// From 1; "" behind the end.
absl::string_view LineOf(absl::string_view text, int64_t number) {
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const bool is_there = number >= 1 && number <= std::ssize(lines);
  return is_there ? absl::StripAsciiWhitespace(lines[static_cast<size_t>(number - 1)]) : "";
}

// The number of a line, from 1, with more dots than any has; 0 if there is none. toml++ makes a
// table of each part of a dotted key, and destroys those in each other by recursion.
int64_t LineOfLongKey(absl::string_view text) {
  constexpr int kMostDots = 4096;
  const std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  const auto found = std::find_if(lines.begin(), lines.end(), [](absl::string_view line) {
    return std::count(line.begin(), line.end(), '.') > kMostDots;
  });
  return found == lines.end() ? 0 : found - lines.begin() + 1;
}

// For a value that is a word, or a path, without quotes.
std::string QuotesHint(absl::string_view line) {
  const std::pair<absl::string_view, absl::string_view> sides =
      absl::StrSplit(line, absl::MaxSplits('=', 1));
  const absl::string_view value =
      absl::StripAsciiWhitespace(sides.second.substr(0, sides.second.find('#')));
  const bool is_word = !value.empty() && (absl::ascii_isalpha(value[0]) || value[0] == '/' ||
                                          value[0] == '.' || value[0] == '~');
  return is_word ? absl::StrCat("; words and paths stand in quotes: ",
                                absl::StripAsciiWhitespace(sides.first), " = \"", value, "\"")
                 : "";
}

// The registered name where one of a system's other names stands. Unknown ones are left for
// Validate to refuse.
void ResolveObjectiveName(RunConfig& config) {
  const absl::StatusOr<const ObjectiveTraits*> named = ObjectiveNamed(config.objective.name);
  if (!named.ok() || (*named)->name == config.objective.name) return;
  Log(absl::StrCat("objective.name: ", config.objective.name, " is ", (*named)->name));
  config.objective.name = (*named)->name;
}

// A value of the command line: as a file has it, or without its quotes, which shells take away.
template <typename T>
bool ReadWord(absl::string_view word, T& value, bool is_list) {
  const toml::parse_result parsed = toml::parse(absl::StrCat("value = ", word));
  const bool is_toml = parsed && parsed.table().size() == 1;  // not a value and more lines
  const toml::node* const node = is_toml ? parsed.table().get("value") : nullptr;
  if (node != nullptr && (ReadNode(*node, value, is_list) || node->is_array()))
    return !node->is_array() || (is_list && std::is_same_v<T, std::string>);
  const bool is_quoted = node != nullptr && node->is_string();
  return field_text::ParseWord(is_quoted ? node->as_string()->get()
                               : is_list ? ListText(word)
                                         : std::string(word),
                               value);
}

class SectionReader {
 public:
  SectionReader(absl::string_view path, RunConfig& config, FaultList& faults)
      : path_(path), config_(config), faults_(faults) {}

  // False if no section has that name.
  bool ReadSection(const std::string& name, const toml::node& node) {
    bool known = false;
    auto visit = [&](const char* section, auto& fields, Decides) {
      if (name != section) return;
      known = true;
      if (const toml::table* table = node.as_table()) return Read(name, *table, fields);
      Add(node, absl::StrCat("'", name, "' must be a section: [", name, "]"));
    };
    RunConfig::VisitSections(config_, visit);
    return known;
  }

  void Add(const toml::node& node, absl::string_view fault) {
    faults_.Add(absl::StrCat(path_, ":", node.source().begin.line, ": ", fault));
  }

 private:
  template <typename Fields>
  void Read(absl::string_view section, const toml::table& table, Fields& fields) {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      // A section within this one, such as [train.lora].
      if (node.is_table() && ReadSection(absl::StrCat(section, ".", name), node)) continue;
      bool known = false;
      auto visit = [&, &node = node](const char* field, auto& value, auto&&...) {
        if (name != field) return;
        known = true;
        if (ReadNode(node, value, IsList(section, name))) return;
        Add(node, absl::StrCat(section, ".", name, " is ", Describe(node), " but must be ",
                               field_text::ExpectedType<std::decay_t<decltype(value)>>()));
      };
      Fields::VisitFields(fields, visit);
      if (!known) {
        Add(node, absl::StrCat("unknown key '", section, ".", name, "'",
                               SuggestConfigKey(section, name)));
      }
    }
  }

  const std::string path_;
  RunConfig& config_;
  FaultList& faults_;
};

}  // namespace

absl::StatusOr<RunConfig> ParseRunConfig(absl::string_view text, absl::string_view path,
                                         const RunConfig& base) {
  if (const int64_t number = LineOfLongKey(text); number > 0)
    return InvalidArgument(path, ":", number, ": a key with too many parts; keys have one dot");
  const toml::parse_result parsed = toml::parse(std::string_view(text.data(), text.size()));
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    const auto number = static_cast<int64_t>(error.source().begin.line);
    const absl::string_view line = LineOf(text, number).substr(0, 200);
    return InvalidArgument(path, ":", number, ": '", line, "' is not TOML (", ParserWords(error),
                           ")", QuotesHint(line));
  }
  RunConfig config = base;
  FaultList faults;
  SectionReader reader(path, config, faults);
  for (const auto& [key, node] : parsed.table()) {
    const std::string name(key.str());
    if (reader.ReadSection(name, node)) continue;
    const std::string text =
        node.is_table()
            ? absl::StrCat("unknown section '", name, "'", SuggestSection(name))
            : absl::StrCat("key '", name, "' is in no section", SuggestConfigKey("", name));
    reader.Add(node, text);
  }
  RETURN_IF_ERROR(faults.ToStatus());
  ResolveObjectiveName(config);
  config.Resolve();
  return config;
}

absl::Status ApplyOverride(absl::string_view assignment, RunConfig& config) {
  const size_t equals = assignment.find('=');
  // Sections may have dots.
  const size_t dot = assignment.rfind('.', equals);
  if (equals == absl::string_view::npos || dot == absl::string_view::npos)
    return InvalidArgument("--set ", assignment, ": expected section.key=value",
                           SuggestConfigKey("", assignment.substr(0, equals)));
  const absl::string_view section = absl::StripAsciiWhitespace(assignment.substr(0, dot));
  const absl::string_view key =
      absl::StripAsciiWhitespace(assignment.substr(dot + 1, equals - dot - 1));
  const absl::string_view word = absl::StripAsciiWhitespace(assignment.substr(equals + 1));

  absl::Status status = InvalidArgument("--set ", assignment, ": unknown key '", section, ".", key,
                                        "'", SuggestConfigKey(section, key));
  auto visit_section = [&](const char* name, auto& fields, Decides) {
    if (section != name) return;
    auto visit = [&](const char* field, auto& value, auto&&...) {
      if (key != field) return;
      using Value = std::decay_t<decltype(value)>;
      status = ReadWord(word, value, IsList(section, key))
                   ? absl::OkStatus()
                   : InvalidArgument("--set ", assignment, ": must be ",
                                     field_text::ExpectedType<Value>());
    };
    std::decay_t<decltype(fields)>::VisitFields(fields, visit);
  };
  RunConfig::VisitSections(config, visit_section);
  ResolveObjectiveName(config);
  config.Resolve();
  return status;
}

absl::Status ApplyOverrides(const std::vector<std::string>& overrides, const std::string& origin,
                            RunConfig& config) {
  // Where each fault came from: one that appears with an override is blamed on that.
  std::map<std::string, std::string> origins;
  std::vector<std::string> faults;
  const auto blame = [&](const std::string& newest) {
    faults = config.Validate().faults();
    std::map<std::string, std::string> now;
    for (const std::string& fault : faults)
      now[fault] = origins.count(fault) > 0 ? origins[fault] : newest;
    origins = std::move(now);
  };
  blame(origin);
  for (const std::string& assignment : overrides) {
    RETURN_IF_ERROR(ApplyOverride(assignment, config));
    blame(absl::StrCat("--set ", assignment));
  }
  FaultList list;
  std::string last;
  for (const std::string& fault : faults) {
    const bool goes_on = std::exchange(last, origins[fault]) == origins[fault];
    list.Add(goes_on ? fault : absl::StrCat(last, ": ", fault));
  }
  return list.ToStatus();
}

absl::StatusOr<RunConfig> LoadRunConfig(const std::string& path,
                                        const std::vector<std::string>& overrides,
                                        const RunConfig& base) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxSettingsBytes));
  ASSIGN_OR_RETURN(RunConfig config, ParseRunConfig(text, path, base));
  RETURN_IF_ERROR(ApplyOverrides(overrides, path, config));
  return config;
}

absl::Status MakeDirectoriesAbsolute(RunConfig& config) {
  for (std::string* directory :
       {&config.data.shards, &config.eval.shards, &config.train.init_from}) {
    if (directory->empty()) continue;
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(*directory, error);
    if (!error) *directory = absolute.lexically_normal().string();
    if (IsUtf8(*directory)) continue;
    return InvalidArgument("the path '", *directory,
                           "' is not UTF-8, which a configuration must be; rename the directory");
  }
  return absl::OkStatus();
}

}  // namespace anyorder
