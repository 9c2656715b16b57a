// What a network keeps of a forward pass for its backward, and what backward computes again (Chen
// et al. 2016). It decides memory and time, and changes no bit.

#pragma once

#include <array>
#include <cstdint>

namespace anyorder {

// What a layer does not keep.
enum class Recompute {
  kNone,
  kElementwise,  // what one elementwise operation makes: normalised inputs, activated hidden units
  kLayer,        // all but its input
};
constexpr auto SpellingsOf(Recompute) { return std::array{"none", "elementwise", "layer"}; }

struct Retention {
  bool learns = true;  // false: no pass has a backward, so that nothing is kept
  Recompute recompute = Recompute::kNone;
  int64_t layers = 0;  // how many recompute, the first ones; 0: all
};

}  // namespace anyorder
