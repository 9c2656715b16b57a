// The keys of a run's configuration as documentation: what `anyorder config` prints and what the
// shell completes.

#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "core/base/fields.h"

namespace anyorder {

struct ConfigKey {
  std::string section;
  std::string key;
  std::string type;                 // "a whole number"; of an enumeration its values
  std::string default_text;         // as TOML
  std::string bounds;               // "at least 1"; "": any value of the type
  std::string unit;                 // "steps"; "": none
  std::string help;                 // one sentence
  std::vector<std::string> values;  // of an enumeration; true and false of a switch

  std::string name() const { return section + "." + key; }
};

// Every key in the order of a frozen config.toml.
const std::vector<ConfigKey>& ConfigKeys();

// The key "section.key", or "key" alone where one section has it. InvalidArgument with the nearest
// key, or the new name of a renamed one.
absl::StatusOr<ConfigKey> FindConfigKey(absl::string_view name);

// What to add to a message about the unknown `section`.`key`: "; did you mean 'train.steps'?", or
// the new name of a renamed key; "" if no key is near.
std::string SuggestConfigKey(absl::string_view section, absl::string_view key);

// A key, and what people type for it who come from transformers (Trainer and its models'
// configurations), Megatron-LM, torchtitan and fairseq.
struct KeyElsewhere {
  absl::string_view key;    // "section.key"
  absl::string_view names;  // with blanks between
};
absl::Span<const KeyElsewhere> KeysElsewhere();

// The key "section.key" that other systems call `key`, as in "lr" or "--max-steps"; if several keys
// are called so, the one of `section`. "" if none is.
std::string KeyKnownElsewhere(absl::string_view section, absl::string_view key);

}  // namespace anyorder

// Values of keys as text, by type: the TOML spelling of a value, and a value from what a user
// typed.
namespace anyorder::field_text {

// What a wrong type should have been.
template <typename T>
std::string ExpectedType() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, int64_t>) return "a whole number";
  if constexpr (std::is_same_v<T, double>) return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "a string";
  if constexpr (std::is_enum_v<T>) {
    std::vector<std::string> names;
    for (const auto& [value, name] : kEnumNames<T>) names.push_back(absl::StrCat("\"", name, "\""));
    return absl::StrJoin(names, " or ");
  }
}

std::string FormatDouble(double value);
std::string QuoteString(absl::string_view value);

template <typename T>
std::string Format(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, double>) {
    return FormatDouble(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return QuoteString(value);
  } else if constexpr (std::is_enum_v<T>) {
    return absl::StrCat("\"", EnumName(value), "\"");
  } else {
    static_assert(std::is_same_v<T, int64_t>);
    return absl::StrCat(value);
  }
}

// False, with `value` unchanged, if no enumerator has that name.
template <typename T>
bool ParseEnum(absl::string_view text, T& value) {
  for (const auto& [candidate, name] : kEnumNames<T>) {
    if (text == name) {
      value = candidate;
      return true;
    }
  }
  return false;
}

// From an unquoted word of the command line. False if it does not spell a T.
template <typename T>
bool ParseWord(absl::string_view text, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    if (text != "true" && text != "false") return false;
    value = text == "true";
    return true;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return absl::SimpleAtoi(text, &value);
  } else if constexpr (std::is_same_v<T, double>) {
    return absl::SimpleAtod(text, &value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = std::string(text);
    return true;
  } else {
    return ParseEnum(text, value);
  }
}

}  // namespace anyorder::field_text
