// How attention cuts up the memory it is lent.

#pragma once

#include <cstdint>

#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_ring.h"

namespace anyorder::kernels::cuda {

// Hands out pieces of a stretch of memory, each at a multiple of 128 bytes. Without memory it only counts.
class ScratchCutter {
 public:
  explicit ScratchCutter(void* memory) : memory_(static_cast<unsigned char*>(memory)) {}

  template <typename T>
  T* Take(int64_t count) {
    unsigned char* const piece = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += (count * static_cast<int64_t>(sizeof(T)) + 127) / 128 * 128;
    return reinterpret_cast<T*>(piece);
  }
  int64_t bytes() const { return bytes_; }

 private:
  unsigned char* memory_;
  int64_t bytes_ = 0;
};

// What both passes prepare. Pieces are there whether the problem has their term or not: the shape alone decides.
struct PreparedScratch {
  float* distance_terms;      // [num_tables, H, R]
  float* segment_same;        // [N, H]
  float* segment_difference;  // [N, H]
  unsigned char* ring_plan;   // RingPlanBytes

  PreparedScratch(const AttentionShape& shape, ScratchCutter& cutter)
      : distance_terms(
            cutter.Take<float>(shape.num_tables * shape.num_heads * shape.num_distances)),
        segment_same(cutter.Take<float>(shape.num_rows() * shape.num_heads)),
        segment_difference(cutter.Take<float>(shape.num_rows() * shape.num_heads)),
        ring_plan(cutter.Take<unsigned char>(RingPlanBytes(shape))) {}
};

}  // namespace anyorder::kernels::cuda
