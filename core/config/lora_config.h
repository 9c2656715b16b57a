// Low-rank adapters (LoRA; Hu et al. 2021). The weights that a run begins with stay as they are. To
// each chosen projection W the product of two small matrices is added,
//   y = W x + (alpha / rank) B A x,   A [rank, in], B [out, rank], B = 0 at first.
// Only adapters, heads and tensors that are named are trained, reduced over ranks and saved.

#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "core/base/fields.h"

namespace anyorder {

// Projections of a layer that can have an adapter.
enum class AdapterTarget { kQ, kK, kV, kO, kR, kGate, kUp, kDown };
constexpr auto SpellingsOf(AdapterTarget) {
  return std::array{"q", "k", "v", "o", "r", "gate", "up", "down"};
}

// The names between commas.
inline std::vector<std::string> ListOf(absl::string_view text) {
  std::vector<std::string> names;
  for (const absl::string_view part : absl::StrSplit(text, ','))
    if (const absl::string_view name = absl::StripAsciiWhitespace(part); !name.empty())
      names.emplace_back(name);
  return names;
}

inline constexpr char kAllTargets[] = "all";

// Whether `part` stands in `name` between dots.
inline bool HasPart(absl::string_view name, absl::string_view part) {
  for (size_t at = name.find(part); at != absl::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

// Section [train.lora].
struct LoraConfig {
  int64_t rank = 0;
  double alpha = 16;
  std::string targets = "all";
  std::string tensors;

  static void VisitFields(auto& self, auto& visit) {
    visit("rank", self.rank,
          "Rank of low-rank adapters (LoRA, Hu et al. 2021), which are trained instead of the "
          "weights of train.init_from; 0: no adapters, all weights are trained.",
          AtLeast(0));
    visit("alpha", self.alpha, "What adapters add is multiplied by alpha / rank.", Above(0));
    visit("targets", self.targets,
          "Projections of every layer that get an adapter: \"all\", or names of q, k, v, o (of "
          "attention), r (of relative positions), gate, up, down (of feed-forward layers), such as "
          "\"q, v\".");
    visit(
        "tensors", self.tensors,
        "Weights that are trained whole besides adapters and heads, by parts of their names, such "
        "as \"layer_norm, word_embedding\" (`anyorder inspect CHECKPOINT --json` prints names).");
  }

  bool is_on() const { return rank > 0; }
  double scale() const { return alpha / static_cast<double>(rank); }
  // REQUIRES is_on().
  bool Adapts(AdapterTarget target) const {
    const std::vector<std::string> names = ListOf(targets);
    return std::any_of(names.begin(), names.end(), [target](const std::string& name) {
      return name == kAllTargets || name == EnumName(target);
    });
  }
  // Whether a parameter of the network is trained; adapters are no part of it. An entry of
  // `tensors` is found in a name as one or several whole parts between dots: "layer_norm" in
  // "transformer.layer.0.ff.layer_norm.weight".
  bool Trains(absl::string_view name) const {
    if (!is_on()) return true;
    const std::vector<std::string> parts = ListOf(tensors);
    return std::any_of(parts.begin(), parts.end(),
                       [name](const std::string& part) { return HasPart(name, part); });
  }
  // Every fault, names of targets that there are none of among them.
  FaultList Validate() const {
    FaultList faults;
    CheckBounds("train.lora", *this, faults);
    std::vector<std::string> known = {kAllTargets};
    for (const auto& [target, name] : kEnumNames<AdapterTarget>) known.emplace_back(name);
    for (const std::string& name : ListOf(targets)) {
      faults.Require(std::find(known.begin(), known.end(), name) != known.end(),
                     absl::StrCat("train.lora.targets names '", name, "', which is none of ",
                                  absl::StrJoin(known, ", ")));
    }
    faults.Require(!ListOf(targets).empty(),
                   "train.lora.targets is empty but must name projections");
    return faults;
  }
};

}  // namespace anyorder
