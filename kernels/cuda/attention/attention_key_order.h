// Where the keys are: from a position to the slots that have it. Gradients of what depends on
// distance gather by it, so that none of their sums needs an atomic addition.

#pragma once

#include <limits>

#include "kernels/cuda/attention/attention_types.h"

namespace anyorder::kernels::cuda {

inline constexpr int64_t kNoPosition = std::numeric_limits<int64_t>::max();

struct KeyLane {
  int64_t base;  // of affine lanes: position of slot 0, were it not padding
  int64_t low;   // least position of a slot that is not padding; kNoPosition: there is none
  int64_t high;
  int64_t is_affine;  // slot j has position base + j, unless it is padding
};
struct PositionRange {
  int64_t low;  // kNoPosition: no row
  int64_t high;
};

// Positions and whose they are, in sorted runs.
struct KeyRuns {
  int32_t* positions;
  int32_t* slots;
};

struct KeyOrder {
  KeyLane* lanes;             // [B]
  KeyRuns sorted;             // [B, K]: one run a lane, of lanes that are not affine
  KeyRuns spare;              // [KeySortSpare(B, K)]: where longer runs are merged from
  PositionRange* row_ranges;  // [B, RowSteps]: of the rows of each step
};

// What one block sorts; more keys need spare memory.
inline constexpr int kKeySortTile = 2048;
constexpr int64_t KeySortSpare(int64_t batch_size, int64_t num_keys) {
  return num_keys > kKeySortTile ? batch_size * num_keys : 0;
}

// Rows in steps of kScoreTile: those of the lane's content rows, then those of its query rows.
ANYORDER_HOST_DEVICE int RowSteps(int content_rows, int query_rows) {
  return (content_rows + kScoreTile - 1) / kScoreTile + (query_rows + kScoreTile - 1) / kScoreTile;
}

// How many of `count` rising positions come before `pos`, or are equal to it if those count.
template <typename Position>
ANYORDER_DEVICE int CountBefore(const int32_t* positions, int count, Position pos, bool or_equal) {
  int low = 0;
  int high = count;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    if (positions[middle] < pos || (or_equal && positions[middle] == pos))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// The keys of one lane, by position.
struct LaneKeys {
  bool is_affine;
  int64_t base;
  int num_keys;
  const int32_t* positions;
  const int32_t* slots;

  ANYORDER_DEVICE LaneKeys(const KeyOrder& order, int lane, int keys)
      : is_affine(order.lanes[lane].is_affine != 0),
        base(order.lanes[lane].base),
        num_keys(keys),
        positions(order.sorted.positions + int64_t{lane} * keys),
        slots(order.sorted.slots + int64_t{lane} * keys) {}

  // How many keys come before `position`.
  ANYORDER_DEVICE int CountBelow(int64_t position) const {
    if (is_affine) {
      const int64_t count = position - base;
      return count < 0 ? 0 : count > num_keys ? num_keys : static_cast<int>(count);
    }
    return CountBefore(positions, num_keys, position, false);
  }
  ANYORDER_DEVICE int Slot(int index) const { return is_affine ? index : slots[index]; }
};

// One row's gradients of scores, as the first pass left them: 0 outside of its hull.
template <typename T>
struct ScoreRow {
  const T* values;
  int begin;  // slots of the hull
  int end;

  ANYORDER_DEVICE ScoreRow(const AttentionScores<T>& scores, int64_t row, int head) {
    const int32_t* const hull = scores.HullOf(row, head);
    values = scores.gradients + scores.Offset(row, head);
    begin = hull[0] * kScoreTile;
    end = hull[1] * kScoreTile;
  }
  ANYORDER_DEVICE bool Has(int64_t slot) const { return slot >= begin && slot < end; }
};

}  // namespace anyorder::kernels::cuda
