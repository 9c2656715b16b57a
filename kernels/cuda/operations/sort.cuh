// Stable sort of (key, value) pairs by small integer keys: a counting sort of 5 bits at a time,
// lowest first (Knuth, volume 3, 5.2.5).
//
// Each pass counts digits in tiles of neighbours, turns the counts into first places (digits
// outermost, tiles within), and moves the pairs there, tile by tile and neighbour by neighbour.
// Nothing depends on timing, so the order is the stable one on every run.

#pragma once

#include <bit>

#include "kernels/cuda/operations/scratch.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {

// Counters of one thread in shared memory, padded: threads that count the same digit meet in
// different banks.
inline constexpr int kCounterPitch = kDigits + 1;
inline constexpr int kScanThreads = 256;

static_assert(kDigits == kWarp && kSortThreads >= kWarp);

struct SortParams {
  const int32_t* keys;
  const int32_t* values;  // null: a pair's value is its place
  int32_t* sorted_keys;
  int32_t* sorted_values;
  uint32_t* counts;  // [kDigits, tiles]
  int64_t n;
  int64_t tiles;
  int shift;
  int32_t num_keys;
};

ANYORDER_DEVICE uint32_t DigitOf(int32_t key, int shift) {
  return (static_cast<uint32_t>(key) >> shift) & (kDigits - 1);
}

// Visit(digit, place) for the pairs of this thread, in order.
template <typename Visitor>
ANYORDER_DEVICE void ForEachPair(const SortParams& p, Visitor&& visit) {
  const int64_t begin = int64_t{BlockX()} * kSortTile + Thread() * kSortItems;
  ANYORDER_UNROLL
  for (int i = 0; i < kSortItems; ++i) {
    if (begin + i < p.n) visit(DigitOf(p.keys[begin + i], p.shift), begin + i);
  }
}

// Leaves in counters[thread][digit] how many of the tile's pairs with that digit the threads before
// have, and returns to thread d < kDigits the tile's number of digit d. Barriers inside and before
// return.
ANYORDER_DEVICE uint32_t CountDigits(const SortParams& p, uint32_t* counters) {
  for (int i = Thread(); i < kSortThreads * kCounterPitch; i += kSortThreads) counters[i] = 0;
  SyncBlock();
  uint32_t* const mine = counters + Thread() * kCounterPitch;
  ForEachPair(p, [&](uint32_t digit, int64_t) { ++mine[digit]; });
  SyncBlock();
  uint32_t total = 0;
  if (Thread() < kDigits) {
    for (int thread = 0; thread < kSortThreads; ++thread) {
      uint32_t& counter = counters[thread * kCounterPitch + Thread()];
      const uint32_t count = counter;
      counter = total;
      total += count;
    }
  }
  SyncBlock();
  return total;
}

// A tile a block. Shared memory: kSortSharedBytes. The first pass refuses keys outside [0,
// num_keys).
inline constexpr int64_t kSortSharedBytes =
    kSortThreads * kCounterPitch * static_cast<int64_t>(sizeof(uint32_t));
ANYORDER_KERNEL void CountKernel(SortParams p) {
  if (p.values == nullptr) {
    ForEachPair(p, [&](uint32_t, int64_t at) {
      if (p.keys[at] < 0 || p.keys[at] >= p.num_keys)
        Trap("an id is outside the table: check vocabulary and data");
    });
  }
  const uint32_t total = CountDigits(p, reinterpret_cast<uint32_t*>(SharedMemory()));
  if (Thread() < kDigits) p.counts[Thread() * p.tiles + BlockX()] = total;
}

struct ScanParams {
  uint32_t* counts;
  int64_t n;
};
// counts[i] becomes the sum of those before. One block; each thread has neighbours. Shared memory:
// one number a thread.
ANYORDER_KERNEL void ScanKernel(ScanParams p) {
  auto* const sums = reinterpret_cast<uint32_t*>(SharedMemory());
  const int64_t share = (p.n + kScanThreads - 1) / kScanThreads;
  const int64_t begin = Thread() * share;
  const int64_t end = begin + share < p.n ? begin + share : p.n;
  uint32_t own = 0;
  for (int64_t i = begin; i < end; ++i) own += p.counts[i];
  sums[Thread()] = own;
  SyncBlock();
  // Sums of the 2, 4, 8, ... threads up to this one (Hillis & Steele 1986).
  for (int distance = 1; distance < kScanThreads; distance *= 2) {
    const uint32_t before = Thread() >= distance ? sums[Thread() - distance] : 0;
    SyncBlock();
    sums[Thread()] += before;
    SyncBlock();
  }
  uint32_t sum = sums[Thread()] - own;
  for (int64_t i = begin; i < end; ++i) {
    const uint32_t count = p.counts[i];
    p.counts[i] = sum;
    sum += count;
  }
}

ANYORDER_KERNEL void MovePairsKernel(SortParams p) {
  auto* const counters = reinterpret_cast<uint32_t*>(SharedMemory());
  CountDigits(p, counters);
  uint32_t* const mine = counters + Thread() * kCounterPitch;
  ForEachPair(p, [&](uint32_t digit, int64_t at) {
    const uint32_t rank = mine[digit]++;
    const int64_t to = int64_t{p.counts[digit * p.tiles + BlockX()]} + rank;
    p.sorted_keys[to] = p.keys[at];
    p.sorted_values[to] = p.values == nullptr ? static_cast<int32_t>(at) : p.values[at];
  });
}

// Where the sort works: two sets of arrays, [n] each, and the counts.
struct SortBuffers {
  int32_t* keys[2];
  int32_t* values[2];
  uint32_t* counts;  // [SortCounts(n)]
};

// Sorts the places 0 ... n - 1 by keys[place], equal keys in increasing place. Returns the set that
// has the result. Keys must be in [0, num_keys); others trap.
inline int SortPlaces(const int32_t* keys, int64_t n, int32_t num_keys, const SortBuffers& buffers,
                      StreamView stream) {
  const int64_t tiles = CeilDivide(n, kSortTile);
  const int bits = std::bit_width(static_cast<uint32_t>(num_keys - 1));
  SortParams p{keys,  nullptr, buffers.keys[0], buffers.values[0], buffers.counts, n,
               tiles, 0,       num_keys};
  const LaunchShape by_tile{
      .blocks_x = tiles, .threads = kSortThreads, .shared_bytes = kSortSharedBytes};
  // A single key still needs its places written, and its ids looked at.
  for (int to = 0;; to = 1 - to) {
    Launch(CountKernel, by_tile, p, stream);
    Launch(ScanKernel,
           {.threads = kScanThreads,
            .shared_bytes = kScanThreads * static_cast<int64_t>(sizeof(uint32_t))},
           ScanParams{p.counts, kDigits * tiles}, stream);
    Launch(MovePairsKernel, by_tile, p, stream);
    p.shift += kDigitBits;
    if (p.shift >= bits) return to;
    p.keys = buffers.keys[to];
    p.values = buffers.values[to];
    p.sorted_keys = buffers.keys[1 - to];
    p.sorted_values = buffers.values[1 - to];
  }
}

}  // namespace anyorder::kernels::cuda
