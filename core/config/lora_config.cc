#include "core/config/lora_config.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace anyorder {
namespace {

constexpr char kAllTargets[] = "all";

// Whether `part` stands in `name` between dots.
bool HasPart(absl::string_view name, absl::string_view part) {
  for (size_t at = name.find(part); at != absl::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> ListOf(absl::string_view text) {
  std::vector<std::string> names;
  for (const absl::string_view part : absl::StrSplit(text, ','))
    if (const absl::string_view name = absl::StripAsciiWhitespace(part); !name.empty())
      names.emplace_back(name);
  return names;
}

bool LoraConfig::Adapts(AdapterTarget target) const {
  const std::vector<std::string> names = ListOf(targets);
  return std::any_of(names.begin(), names.end(), [target](const std::string& name) {
    return name == kAllTargets || name == EnumName(target);
  });
}

bool LoraConfig::Trains(absl::string_view name) const {
  if (!is_on()) return true;
  const std::vector<std::string> parts = ListOf(tensors);
  return std::any_of(parts.begin(), parts.end(),
                     [name](const std::string& part) { return HasPart(name, part); });
}

FaultList LoraConfig::Validate() const {
  FaultList faults;
  CheckBounds("train.lora", *this, faults);
  std::vector<std::string> known = {kAllTargets};
  for (const auto& [target, name] : kEnumNames<AdapterTarget>) known.emplace_back(name);
  for (const std::string& name : ListOf(targets)) {
    faults.Require(std::find(known.begin(), known.end(), name) != known.end(),
                   absl::StrCat("train.lora.targets names '", name, "', which is none of ",
                                absl::StrJoin(known, ", ")));
  }
  faults.Require(!ListOf(targets).empty(), "train.lora.targets is empty but must name projections");
  return faults;
}

}  // namespace anyorder
