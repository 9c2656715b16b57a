// Sorts the keys of lanes whose positions are not affine in their slots: by position, equal ones by
// slot.
//
// A merge sort in which every key finds its place by itself: in a run twice as long it comes behind
// those of its own run that were before it and those of the neighbouring run that a binary search
// finds before it; of equal keys those of the left run are first. log2(K) passes of K searches, and
// nothing depends on timing. A block sorts kKeySortTile keys in shared memory; longer runs are
// merged in memory, a launch a pass, of which lanes of ordinary length need none.

#pragma once

#include "kernels/cuda/attention/attention_key_order.h"

namespace anyorder::kernels::cuda {

inline constexpr int kKeySortThreads = 256;
inline constexpr int64_t kKeySortBytes = 4 * kKeySortTile * int64_t{sizeof(int32_t)};

struct KeySortParams {
  const int32_t* keys;   // [B, K]: positions by slot
  const KeyLane* lanes;  // [B]
  int num_keys;
  KeyRuns from;  // only in merges
  KeyRuns to;
  int length;  // of the runs in `from`
};

// How many of `count` rising positions come before `pos`, or are equal to it if those count.
ANYORDER_DEVICE int CountBefore(const int32_t* positions, int count, int32_t pos, bool or_equal) {
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

// Key number `at` of `count` keys, in sorted runs of `length`, a power of two, to its place in runs
// twice as long.
ANYORDER_DEVICE void MergeKey(const KeyRuns& from, const KeyRuns& to, int at, int length,
                              int count) {
  const int first = at & ~(2 * length - 1);
  const int middle = count - first < length ? count : first + length;
  const int end = count - middle < length ? count : middle + length;
  const int32_t pos = from.positions[at];
  const bool is_left = at < middle;
  const int others = is_left ? CountBefore(from.positions + middle, end - middle, pos, false)
                             : CountBefore(from.positions + first, length, pos, true);
  const int place = is_left ? at + others : at - length + others;
  to.positions[place] = pos;
  to.slots[place] = from.slots[at];
}

// The grid is (tiles of kKeySortTile keys; lanes). Shared memory: kKeySortBytes.
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kKeySortThreads, 4) KeyTileSortKernel(KeySortParams p) {
  const int lane = BlockY();
  if (p.lanes[lane].is_affine != 0) return;
  const int first = BlockX() * kKeySortTile;
  const int count = p.num_keys - first < kKeySortTile ? p.num_keys - first : kKeySortTile;
  const int64_t at = int64_t{lane} * p.num_keys + first;
  auto* const shared = reinterpret_cast<int32_t*>(SharedMemory());
  KeyRuns from{shared, shared + kKeySortTile};
  KeyRuns to{shared + 2 * kKeySortTile, shared + 3 * kKeySortTile};
  for (int i = Thread(); i < count; i += kKeySortThreads) {
    from.positions[i] = p.keys[at + i];
    from.slots[i] = first + i;
  }
  SyncBlock();
  for (int length = 1; length < count; length *= 2) {
    for (int i = Thread(); i < count; i += kKeySortThreads) MergeKey(from, to, i, length, count);
    SyncBlock();
    const KeyRuns next = from;
    from = to;
    to = next;
  }
  for (int i = Thread(); i < count; i += kKeySortThreads) {
    p.to.positions[at + i] = from.positions[i];
    p.to.slots[at + i] = from.slots[i];
  }
}

// The grid is (keys; lanes).
ANYORDER_KERNEL void ANYORDER_LAUNCH_BOUNDS(kKeySortThreads, 4) KeyMergeKernel(KeySortParams p) {
  const int lane = BlockY();
  if (p.lanes[lane].is_affine != 0) return;
  const int at = BlockX() * kKeySortThreads + Thread();
  if (at >= p.num_keys) return;
  const int64_t first = int64_t{lane} * p.num_keys;
  MergeKey({p.from.positions + first, p.from.slots + first},
           {p.to.positions + first, p.to.slots + first}, at, p.length, p.num_keys);
}

}  // namespace anyorder::kernels::cuda
