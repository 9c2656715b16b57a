#include "core/train/run/config_keys.h"

#include <cstdlib>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/fields.h"
#include "core/base/status.h"
#include "core/objective/objective.h"
#include "core/train/run/run_config.h"

namespace anyorder {
namespace {

// Keys of configurations that were written before they had their present names.
struct RenamedKey {
  absl::string_view before;
  absl::string_view now;  // with its value, where the type has changed
};
constexpr RenamedKey kRenamedKeys[] = {
    {"model.segment_term", "model.segments = \"none\""},
    {"train.lanes", "train.global_batch_size"},
    {"train.microbatch_lanes", "train.micro_batch_size"},
    {"train.gemm_table", "kernels.gemm_algorithm_cache"},
    {"eval.lanes", "eval.batch_size"},
    {"optimizer.clip_norm", "optimizer.max_grad_norm"},
    {"dist.hang_exit_seconds", "dist.collective_timeout_seconds"},
    {"dist.replica_check_every", "dist.replica_check_interval"},
};

template <typename Value>
std::vector<std::string> ValuesOf() {
  std::vector<std::string> values;
  if constexpr (std::is_enum_v<Value>) {
    for (const auto& [value, name] : kEnumNames<Value>) values.emplace_back(name);
  } else if constexpr (std::is_same_v<Value, bool>) {
    values = {"true", "false"};
  }
  return values;
}

std::vector<ConfigKey> MakeConfigKeys() {
  std::vector<ConfigKey> keys;
  auto visit_section = [&keys](const char* section, const auto& fields) {
    auto visit = [&](const char* key, const auto& value, const char* help,
                     FieldBounds bounds = {}) {
      using Value = std::decay_t<decltype(value)>;
      keys.push_back({section, key, field_text::ExpectedType<Value>(), field_text::Format(value),
                      bounds.ToText(), bounds.unit, help, ValuesOf<Value>()});
    };
    std::decay_t<decltype(fields)>::VisitFields(fields, visit);
  };
  const RunConfig defaults;
  RunConfig::VisitSections(defaults, visit_section);
  for (ConfigKey& key : keys)
    if (key.name() == "objective.name") key.values = ObjectiveNames();
  return keys;
}

}  // namespace

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey>& keys = *new std::vector<ConfigKey>(MakeConfigKeys());
  return keys;
}

absl::StatusOr<ConfigKey> FindConfigKey(absl::string_view name) {
  const ConfigKey* found = nullptr;
  int num_found = 0;
  for (const ConfigKey& key : ConfigKeys()) {
    if (key.name() == name) return key;
    if (key.key != name) continue;
    found = &key;
    ++num_found;
  }
  if (num_found == 1) return *found;
  const size_t dot = name.find('.');
  const bool is_whole = dot != absl::string_view::npos;
  return InvalidArgument("unknown key '", name, "'",
                         SuggestConfigKey(is_whole ? name.substr(0, dot) : "",
                                          is_whole ? name.substr(dot + 1) : name));
}

std::string SuggestConfigKey(absl::string_view section, absl::string_view key) {
  const std::string name = absl::StrCat(section, ".", key);
  for (const RenamedKey& renamed : kRenamedKeys)
    if (renamed.before == name || (section.empty() && absl::EndsWith(renamed.before, name)))
      return absl::StrCat("; its name is now '", renamed.now, "'");
  std::vector<std::string> names, keys_of_section;
  for (const ConfigKey& known : ConfigKeys()) {
    if (known.key == key) return absl::StrCat("; did you mean '", known.name(), "'?");
    names.push_back(known.name());
    if (known.section == section) keys_of_section.push_back(known.key);
  }
  const std::string near = NearestName(key, keys_of_section);
  if (!near.empty()) return absl::StrCat("; did you mean '", section, ".", near, "'?");
  const std::string nearest = NearestName(name, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?");
}

}  // namespace anyorder

namespace anyorder::field_text {

// The fewest digits that read back as the same number.
std::string FormatDouble(double value) {
  std::string text;
  for (int digits = 1; digits <= 17; ++digits) {
    text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) break;
  }
  // TOML tells floats from integers by their look.
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string QuoteString(absl::string_view value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&text, "\\", absl::string_view(&c, 1));
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&text, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      text += c;
    }
  }
  return text + "\"";
}

}  // namespace anyorder::field_text
