#include "dist/gradient_windows.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace anyorder::dist {
namespace {

// Numbers slices so that those which one rank adds up for its node touch each other: by the ranks'
// numbers within their nodes.
std::vector<int> PlacesOfRanks(const RankGroups& groups) {
  std::vector<std::pair<int64_t, int>> order;
  for (int rank = 0; rank < groups.world_size(); ++rank)
    order.emplace_back(rank - groups[groups.GroupOf(rank)].begin, rank);
  if (groups.has_two_levels()) std::stable_sort(order.begin(), order.end());
  std::vector<int> places(order.size());
  for (size_t place = 0; place < order.size(); ++place)
    places[order[place].second] = static_cast<int>(place);
  return places;
}

}  // namespace

GradientWindows::GradientWindows(const Sizes& sizes, const RankGroups& groups, int rank)
    : world_size_(groups.world_size()),
      min_slice_elements_(NumUnits(sizes.min_slice_elements) * kUnitElements),
      place_of_rank_(PlacesOfRanks(groups)) {
  AddWindows(sizes);
  AddBuckets(std::clamp<int64_t>(sizes.bucket_elements, 1, sizes.num_elements), rank);
}

// Backward finishes the last one first, and so they join from there.
void GradientWindows::AddWindows(const Sizes& sizes) {
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
    elements = std::max(elements, window.offset() + window.range.size());
  }
  std::reverse(windows_.begin(), windows_.end());
}

void GradientWindows::AddBuckets(int64_t bucket_elements, int rank) {
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

int64_t GradientWindows::LengthOf(Range bucket) const {
  return std::max(SliceLength(bucket, world_size_), min_slice_elements_);
}

Range GradientWindows::Slice(int64_t bucket, int rank) const {
  const Range range = Bucket(bucket);
  return SliceAt(range, LengthOf(range), place_of_rank_[rank]);
}

}  // namespace anyorder::dist
