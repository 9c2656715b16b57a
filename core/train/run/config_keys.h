// The keys of a run's configuration as documentation: what `anyorder config` prints and what the
// shell completes.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

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
