// One list of fields per configuration struct gives parsing, printing, comparing and digests.
//
//   struct ThingConfig {
//     int64_t num_things = 4;
//     template <typename Self, typename Visitor>
//     static void VisitFields(Self& self, Visitor& visit) {
//       visit("num_things", self.num_things, "how many things; > 0");
//     }
//     absl::Status Validate() const;  // every fault in one message
//   };
//
// Field types: bool, int64_t, double, std::string, and enums with a kEnumNames specialisation.
// Goals: adding a field is one member and one line. Non-goals: nesting below one level, optional
// fields, migration of old names.

#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace anyorder {

// Specialise for each configuration enum: the TOML spelling of each value.
//   template <> inline constexpr auto kEnumNames<Colour> = std::to_array<std::pair<Colour, const
//   char*>>({...});
template <typename Enum>
inline constexpr std::array<std::pair<Enum, const char*>, 0> kEnumNames{};

// The TOML spelling of `value`; "" if it has none.
template <typename Enum>
constexpr const char* EnumName(Enum value) {
  for (const auto& [candidate, name] : kEnumNames<Enum>) {
    if (candidate == value) return name;
  }
  return "";
}

// The candidate closest to `word` by edit distance, or "" if none is close enough to be a likely
// typo.
std::string NearestName(absl::string_view word, const std::vector<std::string>& candidates);

// Collects faults so that a user sees all of them at once.
class FaultList {
 public:
  void Add(std::string fault) { faults_.push_back(std::move(fault)); }
  void Require(bool condition, std::string fault) {
    if (!condition) Add(std::move(fault));
  }
  bool empty() const { return faults_.empty(); }
  // "a; b; c"
  std::string Joined() const;

 private:
  std::vector<std::string> faults_;
};

}  // namespace anyorder
