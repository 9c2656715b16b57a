// What the wrong elements of a tensor say about the mistake that made them.

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

// kAgrees or a sentence. The first that holds:
//   agrees   no element is wrong, and none differs between the runs
//   race     elements differ between the two runs
//   scale    all elements, or all of each row, are off by one factor
//   mask     something where nothing is expected: hidden pairs are seen
//   layout   wrong is a fixed function of row mod 8, warp, column or some of them, in all tiles
//   mask     wrong are rows of mixed visibility, or of tiles that are not full, or whole rows
//   unclear  none of these
std::string PatternOf(const std::vector<CheckedElement>& elements);

}  // namespace anyorder::testing
