// The sums of columns of partial sums, the second step of sums over rows.
//
// A block has 32 columns, one a lane, and cuts the parts into kShares contiguous shares of equal
// length, one a warp; each warp adds its share in order, then the shares are added in order. The
// order depends on the number of parts alone, that is, on the shape.

#pragma once

#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {

inline constexpr int kShares = 16;
inline constexpr int kShareThreads = kShares * kWarp;
inline constexpr int64_t kShareBytes = kShareThreads * static_cast<int64_t>(sizeof(float));

// The launch of a kernel that calls SumParts.
inline LaunchShape ShapeOfSums(int64_t columns) {
  return {.blocks_x = CeilDivide(columns, kWarp),
          .threads = kShareThreads,
          .shared_bytes = kShareBytes};
}

struct ShareOfSums {
  bool is_whole = false;  // for the thread that has its column's sum
  int64_t column = 0;
  float sum = 0;
};

// All threads of a block of kShareThreads with kShareBytes of shared memory. `partials` is [parts,
// columns].
ANYORDER_DEVICE ShareOfSums SumParts(const float* partials, int64_t parts, int64_t columns) {
  const int warp = Thread() / kWarp;
  const int64_t column = int64_t{BlockX()} * kWarp + Lane();
  const int64_t length = (parts + kShares - 1) / kShares;
  const int64_t begin = warp * length;
  const int64_t end = begin + length < parts ? begin + length : parts;
  float sum = 0;
  if (column < columns) {
    for (int64_t part = begin; part < end; ++part) sum += partials[part * columns + column];
  }
  float* const shares = reinterpret_cast<float*>(SharedMemory());
  shares[Thread()] = sum;
  SyncBlock();
  if (warp != 0 || column >= columns) return {};
  for (int share = 1; share < kShares; ++share) sum += shares[share * kWarp + Lane()];
  return {true, column, sum};
}

}  // namespace anyorder::kernels::cuda
