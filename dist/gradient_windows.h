// How the flat gradient is cut where it is summed: into windows, which exist one after the other,
// these into buckets, which travel at once, and these into a slice for each rank, which adds it up.
// Pure functions of sizes and of where ranks are.
//
// A bucket is cut into slices whatever the ranks own: a bucket's elements have few owners, and
// these would receive from all others while the rest of the machine waits. When all is summed,
// slices move on to their owners.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dist/parameter_partition.h"

namespace anyorder::dist {

class GradientWindows {
 public:
  static constexpr int kBuffers = 3;

  struct Window {
    Range range;
    Range buckets;  // their numbers
    // The first window has one of its own; the others, from the last on, take turns.
    int buffer = 0;
    // Where its elements begin there: aligned as in the flat space, so that libraries, which look
    // at addresses, do the same with them wherever they lie.
    int64_t offset() const { return range.begin % kUnitElements; }
  };
  struct Sizes {
    int64_t num_elements = 0;
    std::vector<int64_t> begins;  // of the windows, from 0 on
    int64_t bucket_elements = 0;
    // Neighbours become one window until slices are as long, and what is smaller has fewer slices.
    int64_t min_slice_elements = 0;
  };

  GradientWindows(const Sizes& sizes, const RankGroups& groups, int rank);

  // From left to right.
  const std::vector<Window>& windows() const { return windows_; }
  // 0: no window has it.
  int64_t buffer_elements(int buffer) const { return buffer_elements_[buffer]; }
  int64_t num_buckets() const { return static_cast<int64_t>(buckets_.size()); }
  Range Bucket(int64_t bucket) const { return buckets_[bucket].range; }
  // In the flat space.
  Range Slice(int64_t bucket, int rank) const;
  // This rank's slices of all buckets lie side by side: where one begins, and the length of all.
  int64_t PlaceOf(int64_t bucket) const { return buckets_[bucket].place; }
  int64_t layout_elements() const { return layout_elements_; }
  // Of any rank, at most.
  int64_t largest_slice() const { return largest_slice_; }

 private:
  struct BucketInfo {
    Range range;
    int64_t place;
  };

  void AddWindows(const Sizes& sizes);
  void AddBuckets(int64_t bucket_elements, int rank);
  // Of its slices.
  int64_t LengthOf(Range bucket) const;

  int world_size_;
  int64_t min_slice_elements_;
  std::vector<int> place_of_rank_;  // its slice's in a bucket
  std::vector<Window> windows_;
  std::vector<BucketInfo> buckets_;
  std::array<int64_t, kBuffers> buffer_elements_{};
  int64_t layout_elements_ = 0;
  int64_t largest_slice_ = 0;
};

}  // namespace anyorder::dist
