// Attention with one feature more at a time, from a single tile without anything to XLNet's whole
// case, against the reference in double: the first switch that disagrees names the feature, and its
// wrong elements say where it goes wrong (attention_verdict.h).

#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace anyorder::testing {

// "general forward, one tile", ...: the general kernels forward and backward, then the ring
// kernels. Backward takes the reference's forward results, so that it can be right where forward is
// not.
std::vector<std::string> BisectionSwitches();

// A tensor of a switch: whether it agrees, and its JSON line (below).
struct TensorReport {
  std::string tensor;
  bool passed = false;
  std::string pattern;
  std::string line;
};
// One switch, by name.
std::vector<TensorReport> RunSwitch(kernels::Backend& device, const std::string& name);

// Runs switches number `begin` to `end` - 1 with `device`, which takes host memory
// (tests/testing/staged_backend.h). Prints a JSON line before each, flushed, so that a crash has a
// name, and one for each tensor behind it:
//   {"bisecting": "ring forward, +position", "number": 25}
//   {"bisect": "ring forward, +position", "tensor": "out", "relative_l2": x, "bound": y,
//    "passed": false, "worst": {...}, "pattern": "..."}
// relative_l2 is the distance to the reference over its norm. A tensor passes if that is within
// `bound`, each element within a bound of its own (both by attention_rounding.h in bf16) and two
// runs have the same bits. "worst" is the element that is the most times its bound away; key_mod_64
// is null where rows are queries and columns no keys. The tensor "probabilities" is `out` with unit
// vectors for values: column c is the sum over keys c modulo 64. The last line is a sentence: the
// first switch that failed. Returns whether none did.
bool BisectAttention(kernels::Backend& device, int begin, int end, std::ostream& out);

}  // namespace anyorder::testing
