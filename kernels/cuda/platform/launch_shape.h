// How many blocks and threads a kernel is started with, and the most that each of our chips takes.

#pragma once

#include <cstdint>
#include <limits>

namespace anyorder::kernels::cuda {

struct LaunchShape {
  int64_t blocks_x = 1;
  int blocks_y = 1;
  int blocks_z = 1;
  int threads = 128;         // a block; a multiple of 32
  int64_t shared_bytes = 0;  // above 48 KiB: the kernel's limit is raised first
};

constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// So many threads at least, in blocks of `block`.
constexpr LaunchShape ShapeOfThreads(int64_t threads, int block) {
  return {.blocks_x = CeilDivide(threads, block), .threads = block};
}

// sm_80 has the least shared memory of our chips.
inline constexpr int64_t kMostBlocksX = std::numeric_limits<int32_t>::max();
inline constexpr int kMostBlocksYZ = 65535;
inline constexpr int kMostThreads = 1024;
inline constexpr int64_t kMostSharedBytes = 163 * 1024;

}  // namespace anyorder::kernels::cuda
