// One list of fields per configuration struct gives parsing, printing, comparing and digests.
//
//   struct ThingConfig {
//     int64_t num_things = 4;
//     static void VisitFields(auto& self, auto& visit) {
//       visit("num_things", self.num_things, "Things of a lane.", AtLeast(1, "things"));
//     }
//     FaultList Validate() const;  // CheckBounds, and what a field asks of others
//   };
//
// After the sentence come attributes in any order, each of a type of its own: FieldBounds, Decides,
// and those of a section (SamplingKeys). The sentence is the field's documentation: `anyorder
// config` prints it with unit and bounds, and the member has no comment that says it again. Field
// types: bool, int64_t, double, std::string, and enums with SpellingsOf. Goals:
// adding a field is one member and one line. Non-goals: nesting below one level, optional fields,
// migration of old names.

#pragma once

#include <array>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace anyorder {

// Each value of a configuration enum with its TOML spelling. The enum's header declares the
// spellings, in the order of the values, which count from 0, and in the enum's namespace:
//   constexpr auto SpellingsOf(Colour) { return std::array{"red", "green"}; }
template <typename Enum>
inline constexpr auto kEnumNames = std::apply(
    [](auto... names) {
      int next = 0;
      return std::to_array<std::pair<Enum, const char*>>({{static_cast<Enum>(next++), names}...});
    },
    SpellingsOf(Enum()));

// The TOML spelling of `value`; "" if it has none.
template <typename Enum>
constexpr const char* EnumName(Enum value) {
  for (const auto& [candidate, name] : kEnumNames<Enum>) {
    if (candidate == value) return name;
  }
  return "";
}

// The value with that spelling into `value`; false, with `value` unchanged, if there is none.
template <typename Enum>
bool ParseEnum(absl::string_view text, Enum& value) {
  for (const auto& [candidate, name] : kEnumNames<Enum>) {
    if (text != name) continue;
    value = candidate;
    return true;
  }
  return false;
}

// All spellings.
template <typename Enum>
std::vector<std::string> EnumNameList() {
  constexpr auto spellings = SpellingsOf(Enum());
  return {spellings.begin(), spellings.end()};
}

// The numbers that a field may hold, and their unit. NaN and infinities are never among them.
struct FieldBounds {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  const char* unit = "";
  bool is_least_open = false;  // `least` itself is refused
  bool is_most_open = false;

  bool Contain(double value) const;
  // "at least 1", "above 0", "in [0, 1)"; "" if every number will do.
  std::string ToText() const;
};

constexpr FieldBounds AtLeast(double least, const char* unit = "") {
  return {.least = least, .unit = unit};
}
constexpr FieldBounds Above(double least, const char* unit = "") {
  return {.least = least, .unit = unit, .is_least_open = true};
}
constexpr FieldBounds Between(double least, double most, const char* unit = "") {
  return {.least = least, .most = most, .unit = unit};
}
// [0, 1)
constexpr FieldBounds Rate() { return {.least = 0, .most = 1, .is_most_open = true}; }
// (0, 1]
constexpr FieldBounds PositiveFraction() { return {.least = 0, .most = 1, .is_least_open = true}; }

// What a key's value decides; each implies those before it. A key decides all that its section does
// unless it is marked: a new one errs on the safe side.
enum class Decides {
  kNothing,   // it may change between starts of one run
  kTraining,  // the result of a run
  kFunction,  // which function given weights are
};

// The attribute of `unset`'s type among those of a visit; `unset` if it has none.
template <typename Attribute, typename... Attributes>
constexpr Attribute AttributeOf(Attribute unset, const Attributes&... attributes) {
  Attribute found = unset;
  [[maybe_unused]] const auto take = [&found](const auto& attribute) {
    if constexpr (std::is_convertible_v<decltype(attribute), Attribute>) found = attribute;
  };
  (take(attributes), ...);
  return found;
}

// The candidate closest to `word` by edit distance, or "" if none is close enough to be a likely
// typo.
std::string NearestName(absl::string_view word, const std::vector<std::string>& candidates);

// Collects faults so that a user sees all of them at once.
class FaultList {
 public:
  void Add(std::string fault) { faults_.push_back(std::move(fault)); }
  void Add(const FaultList& others, absl::string_view prefix = "") {
    for (const std::string& fault : others.faults_) Add(absl::StrCat(prefix, fault));
  }
  // The message of an error.
  void AddError(const absl::Status& status) {
    if (!status.ok()) Add(std::string(status.message()));
  }
  void Require(bool condition, std::string fault) {
    if (!condition) Add(std::move(fault));
  }
  bool empty() const { return faults_.empty(); }
  const std::vector<std::string>& faults() const { return faults_; }
  // "a; b; c"
  std::string Joined() const;
  // OK without faults, else InvalidArgument with all of them.
  absl::Status ToStatus() const {
    return empty() ? absl::OkStatus() : absl::InvalidArgumentError(Joined());
  }

 private:
  std::vector<std::string> faults_;
};

// Adds a fault for each number that is outside the bounds of its visit.
template <typename Fields>
void CheckBounds(absl::string_view section, const Fields& fields, FaultList& faults) {
  auto visit = [&](const char* key, const auto& value, const char*, const auto&... attributes) {
    const FieldBounds bounds = AttributeOf(FieldBounds(), attributes...);
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
      faults.Require(
          bounds.Contain(static_cast<double>(value)),
          absl::StrCat(section, ".", key, " is ", value, " but must be ", bounds.ToText()));
    }
  };
  Fields::VisitFields(fields, visit);
}

}  // namespace anyorder
