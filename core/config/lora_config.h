// Low-rank adapters (LoRA; Hu et al. 2021). The weights that a run begins with stay as they are. To
// each chosen projection W the product of two small matrices is added,
//   y = W x + (alpha / rank) B A x,   A [rank, in], B [out, rank], B = 0 at first.
// Only adapters, heads and tensors that are named are trained, reduced over ranks and saved.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/base/fields.h"

namespace anyorder {

// Projections of a layer that can have an adapter.
enum class AdapterTarget { kQ, kK, kV, kO, kR, kGate, kUp, kDown };
constexpr auto SpellingsOf(AdapterTarget) {
  return std::array{"q", "k", "v", "o", "r", "gate", "up", "down"};
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
  bool Adapts(AdapterTarget target) const;
  // Whether a parameter of the network is trained; adapters are no part of it. An entry of
  // `tensors` is found in a name as one or several whole parts between dots: "layer_norm" in
  // "transformer.layer.0.ff.layer_norm.weight".
  bool Trains(absl::string_view name) const;
  // Every fault, names of targets that there are none of among them.
  FaultList Validate() const;
};

// The names between commas.
std::vector<std::string> ListOf(absl::string_view text);

}  // namespace anyorder
