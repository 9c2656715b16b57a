// Splitting work over the OpenMP threads of a rank. How work is cut into pieces depends on its size
// only; threads decide merely who computes a piece, so results are the same bits for any number of
// threads.

#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace anyorder::kernels::cpu {

// Calls body(piece) for pieces 0..count-1; `count` may be smaller than num_threads.
template <typename Body>
void ParallelFor(int64_t count, int num_threads, const Body& body) {
  const int threads = static_cast<int>(std::min<int64_t>(num_threads, count));
  if (threads <= 1) {
    for (int64_t piece = 0; piece < count; ++piece) body(piece);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t piece = 0; piece < count; ++piece) body(piece);
}

// Calls body(begin, end) on ranges of at most `grain` of `count` items.
template <typename Body>
void ParallelForRanges(int64_t count, int64_t grain, int num_threads, const Body& body) {
  ParallelFor((count + grain - 1) / grain, num_threads,
              [&](int64_t piece) { body(piece * grain, std::min(count, (piece + 1) * grain)); });
}

// Rows of `columns` elements that make a piece worth a thread's while.
inline int64_t RowGrain(int64_t columns) {
  constexpr int64_t kElementsPerPiece = 16384;
  return std::max<int64_t>(1, kElementsPerPiece / std::max<int64_t>(1, columns));
}

}  // namespace anyorder::kernels::cpu
