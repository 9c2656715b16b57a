// Configurations told as users write them: With(model, "positions = rope, layer_norm = pre").

#pragma once

#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

#include "core/base/check.h"
#include "core/train/run/field_text.h"

namespace anyorder::testing {

// Sets the field of this name. False, with `config` unchanged, if there is none, or if `word` does
// not spell a value of it.
template <typename Config>
bool SetKey(absl::string_view key, absl::string_view word, Config& config) {
  bool is_set = false;
  auto visit = [&](const char* name, auto& value, auto&&...) {
    if (key == name) is_set = field_text::ParseWord(word, value);
  };
  Config::VisitFields(config, visit);
  return is_set;
}

// Sets each "key = word" of a list with commas, in which no word has one, in the first of `configs`
// that has the key. Dies if none has it, or if the word is none of its values.
template <typename... Configs>
void SetKeys(absl::string_view text, Configs&... configs) {
  for (const absl::string_view one : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(one, '=');
    const auto key = absl::StripAsciiWhitespace(parts.first);
    const auto word = absl::StripAsciiWhitespace(parts.second);
    ANYORDER_CHECK((SetKey(key, word, configs) || ...)) << "no such setting: " << one;
  }
}

// `config` with such a list of keys set.
template <typename Config>
Config With(Config config, absl::string_view text) {
  SetKeys(text, config);
  return config;
}

}  // namespace anyorder::testing
