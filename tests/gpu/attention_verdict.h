// What the wrong elements of a tensor have in common.

#pragma once

#include <string>
#include <vector>

namespace anyorder::testing {

// One element of a result: where a kernel computed it, and what came out in two runs of the same
// call. `row` is a row of queries, a key slot or a distance, whatever the tensor's rows are.
struct CheckedElement {
  int lane = 0;
  int head = 0;
  int tile = 0;           // of its lane and stream
  int row_of_tile = 0;    // row_mod_8 is row_of_tile % 8: tiles begin at multiples of 8
  int warp = 0;           // that has the row
  int column = 0;         // of the head
  bool is_mixed = false;  // its row sees some keys and not others
  bool is_edge = false;   // its tile is not full
  double expected = 0;
  double found = 0;
  double bound = 0;      // of |found - expected|
  bool differs = false;  // the second run has other bits

  // True also for what is not a number.
  bool is_wrong() const;
};

inline constexpr char kAgrees[] = "agrees";

// kAgrees or a sentence:
//   race: elements differ between the two runs
//   scale: all elements are off by one factor
//   wrong: how many elements are; how many of these are not a number, 0, or not 0 where nothing is
//       to be seen; and where they are, by each property of a place that has values without wrong
//       elements: "only where warp: 1"
std::string PatternOf(const std::vector<CheckedElement>& elements);

}  // namespace anyorder::testing
