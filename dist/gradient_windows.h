// How the flat gradient is cut where it is summed: into windows, which exist one after the other,
// these into buckets, which travel at once, and these into a slice for each rank, which adds it up.
// Pure functions of sizes and of where ranks are.
//
// A bucket is cut into slices whatever the ranks own: a bucket's elements have few owners, and
// these would receive from all others while the rest of the machine waits. When all is summed,
// slices move on to their owners.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "dist/parameter_partition.h"

namespace anyorder::dist {

// Numbers slices so that those which one rank adds up for its node touch each other: by the ranks'
// numbers within their nodes.
inline std::vector<int> PlacesOfRanks(const RankGroups& groups) {
  std::vector<std::pair<int64_t, int>> order;
  for (int rank = 0; rank < groups.world_size(); ++rank)
    order.emplace_back(rank - groups[groups.GroupOf(rank)].begin, rank);
  if (groups.has_two_levels()) std::stable_sort(order.begin(), order.end());
  std::vector<int> places(order.size());
  for (size_t place = 0; place < order.size(); ++place)
    places[order[place].second] = static_cast<int>(place);
  return places;
}

class GradientWindows {
 public:
  static constexpr int kBuffers = 3;

  struct Window {
    Range range;
    Range buckets;  // their numbers
    // The first window has one of its own; the others, from the last on, take turns.
    int buffer = 0;
  };
  struct Sizes {
    int64_t num_elements = 0;
    std::vector<int64_t> begins;  // of the windows, from 0 on
    int64_t bucket_elements = 0;
    // Neighbours become one window until slices are as long, and what is smaller has fewer slices.
    int64_t min_slice_elements = 0;
  };

  GradientWindows(const Sizes& sizes, const RankGroups& groups, int rank)
      : world_size_(groups.world_size()),
        min_slice_elements_(NumUnits(sizes.min_slice_elements) * kUnitElements),
        place_of_rank_(PlacesOfRanks(groups)) {
    AddWindows(sizes);
    AddBuckets(std::clamp<int64_t>(sizes.bucket_elements, 1, sizes.num_elements), rank);
  }

  // From left to right.
  const std::vector<Window>& windows() const { return windows_; }
  // 0: no window has it.
  int64_t buffer_elements(int buffer) const { return buffer_elements_[buffer]; }
  int64_t num_buckets() const { return static_cast<int64_t>(buckets_.size()); }
  Range Bucket(int64_t bucket) const { return buckets_[bucket].range; }
  // In the flat space.
  Range Slice(int64_t bucket, int rank) const {
    const Range range = Bucket(bucket);
    return SliceAt(range, LengthOf(range), place_of_rank_[rank]);
  }
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

  // Backward finishes the last one first, and so they join from there.
  void AddWindows(const Sizes& sizes) {
    ANYORDER_CHECK(!sizes.begins.empty() && sizes.begins[0] == 0 &&
                   std::is_sorted(sizes.begins.begin(), sizes.begins.end()) &&
                   sizes.begins.back() <= sizes.num_elements);
    const int64_t least = std::max<int64_t>(1, world_size_ * sizes.min_slice_elements);
    int64_t end = sizes.num_elements;
    for (auto begin = sizes.begins.rbegin(); begin != sizes.begins.rend(); ++begin) {
      if (end - *begin < least) continue;
      windows_.push_back({.range = {*begin, end}});
      end = *begin;
    }
    if (windows_.empty()) windows_.push_back({.range = {end, end}});
    windows_.back().range.begin = 0;
    for (size_t i = 0; i < windows_.size(); ++i) {
      Window& window = windows_[i];
      window.buffer = i + 1 == windows_.size() ? 0 : 1 + static_cast<int>(i % 2);
      int64_t& elements = buffer_elements_[window.buffer];
      elements = std::max(elements, OffsetOf(window.range) + window.range.size());
    }
    std::reverse(windows_.begin(), windows_.end());
  }

  void AddBuckets(int64_t bucket_elements, int rank) {
    const int64_t size = NumUnits(bucket_elements) * kUnitElements;
    for (Window& window : windows_) {
      window.buckets.begin = num_buckets();
      for (int64_t begin = window.range.begin; begin < window.range.end; begin += size) {
        buckets_.push_back({{begin, std::min(begin + size, window.range.end)}, layout_elements_});
        const int64_t bucket = num_buckets() - 1;
        largest_slice_ = std::max(largest_slice_, LengthOf(Bucket(bucket)));
        // One rank's slices are the flat space.
        const int64_t slice = Slice(bucket, rank).size();
        layout_elements_ += world_size_ == 1 ? slice : NumUnits(slice) * kUnitElements;
      }
      window.buckets.end = num_buckets();
    }
  }

  // Of its slices.
  int64_t LengthOf(Range bucket) const {
    return std::max(SliceLength(bucket, world_size_), min_slice_elements_);
  }

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
