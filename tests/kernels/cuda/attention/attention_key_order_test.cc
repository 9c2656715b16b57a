// Where the keys are (attention_key_order.h): sorted by position, for any number of keys and any
// positions.

#include "kernels/cuda/attention/attention_key_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "core/base/philox.h"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();
constexpr int32_t kHighest = std::numeric_limits<int32_t>::max();

using Positions = std::vector<int32_t>;

// Slots in the order of their positions, by the standard library's stable sort.
std::vector<int32_t> ExpectedSlots(const Positions& positions) {
  std::vector<int32_t> slots(positions.size());
  std::iota(slots.begin(), slots.end(), 0);
  std::stable_sort(slots.begin(), slots.end(), [&](int32_t a, int32_t b) {
    return positions[static_cast<size_t>(a)] < positions[static_cast<size_t>(b)];
  });
  return slots;
}

// Lanes with as many keys each, none of them padding, and one row at position 0.
class KeyOrderRun {
 public:
  explicit KeyOrderRun(const std::vector<Positions>& lanes)
      : num_lanes_(lanes.size()), num_keys_(lanes[0].size()), lanes_(num_lanes_) {
    for (const Positions& lane : lanes) {
      for (const int32_t position : lane) positions_.push_back(position);
    }
    docs_.assign(positions_.size(), 0);
    for (std::vector<int32_t>* x : {&sorted_positions_, &sorted_slots_})
      x->assign(positions_.size(), -77);
    const auto spare = static_cast<size_t>(
        KeySortSpare(static_cast<int64_t>(num_lanes_), static_cast<int64_t>(num_keys_)));
    for (std::vector<int32_t>* x : {&spare_positions_, &spare_slots_}) x->assign(spare, -77);
    row_positions_.assign(num_lanes_, 0);
    ranges_.resize(num_lanes_);
    order_ = {lanes_.data(),
              {sorted_positions_.data(), sorted_slots_.data()},
              {spare_positions_.data(), spare_slots_.data()},
              ranges_.data()};
  }

  void Launch(uint64_t schedule) {
    AttentionProblem<float> in = {};
    in.batch_size = static_cast<int>(num_lanes_);
    in.content_rows = 1;
    in.num_keys = static_cast<int>(num_keys_);
    in.rows.pos = row_positions_.data();
    in.keys.pos = positions_.data();
    in.keys.doc = docs_.data();
    emulation::SetSchedule({schedule});
    LaunchKeyOrder(in, order_, {});
  }

  bool is_affine(size_t lane) const { return lanes_[lane].is_affine != 0; }
  Positions SlotsOf(size_t lane) const { return Part(sorted_slots_, lane); }
  Positions PositionsOf(size_t lane) const { return Part(sorted_positions_, lane); }

 private:
  Positions Part(const std::vector<int32_t>& of_lanes, size_t lane) const {
    const auto begin = of_lanes.begin() + static_cast<int64_t>(lane * num_keys_);
    return {begin, begin + static_cast<int64_t>(num_keys_)};
  }

  size_t num_lanes_;
  size_t num_keys_;
  std::vector<KeyLane> lanes_;
  Positions positions_, docs_, row_positions_;
  Positions sorted_positions_, sorted_slots_, spare_positions_, spare_slots_;
  std::vector<PositionRange> ranges_;
  KeyOrder order_;
};

// The slots are a permutation, positions rise, equal ones are in the order of slots: there is one
// such order.
void ExpectSorted(const std::vector<Positions>& lanes, uint64_t schedule) {
  KeyOrderRun run(lanes);
  run.Launch(schedule);
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    const std::vector<int32_t> slots = ExpectedSlots(lanes[lane]);
    EXPECT_EQ(run.SlotsOf(lane), slots) << "lane " << lane << " of " << slots.size() << " keys";
    Positions positions;
    for (const int32_t slot : slots) positions.push_back(lanes[lane][static_cast<size_t>(slot)]);
    EXPECT_EQ(run.PositionsOf(lane), positions) << "lane " << lane;
  }
}

// Of `range` values around 0, so that a small one has many duplicates.
Positions RandomPositions(int count, uint32_t range, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kPermutation, 0, 0);
  Positions positions;
  for (int i = 0; i < count; ++i)
    positions.push_back(static_cast<int32_t>(random.Below(range)) -
                        static_cast<int32_t>(range / 2));
  // Not by chance affine.
  if (count > 1) positions[1] = positions[0];
  return positions;
}

TEST(KeyOrderTest, SortsAnyNumberOfKeysWithDuplicates) {
  for (const int count : {2, 3, 31, 32, 33, 100, 255, 256, 257, 896, 1000})
    ExpectSorted({RandomPositions(count, static_cast<uint32_t>(count), 1),
                  RandomPositions(count, 5, 2), RandomPositions(count, 1u << 30, 3)},
                 static_cast<uint64_t>(count));
}

TEST(KeyOrderTest, SortsMoreKeysThanABlockHas) {
  for (const int count : {kKeySortTile, kKeySortTile + 1, 2 * kKeySortTile + 1000})
    ExpectSorted({RandomPositions(count, 1000, 4), RandomPositions(count, 1u << 30, 5)}, 7);
  // Two merges and three.
  ExpectSorted({RandomPositions(5 * kKeySortTile - 3, 100000, 6)}, 8);
}

TEST(KeyOrderTest, SortsWhatIsSortedFallingAndEqual) {
  Positions falling(777);
  for (int i = 0; i < 777; ++i) falling[static_cast<size_t>(i)] = -i;
  Positions rising(777);
  for (int i = 0; i < 777; ++i) rising[static_cast<size_t>(i)] = 2 * i;
  ExpectSorted({falling, rising, Positions(777, -5)}, 9);
}

TEST(KeyOrderTest, SortsTheEndsOfTheirType) {
  Positions positions;
  for (int i = 0; i < 99; ++i)
    positions.push_back(i % 3 == 0 ? kHighest - i / 9 : i % 3 == 1 ? kLowest + i / 9 : 0);
  ExpectSorted({positions}, 10);
}

// One key is affine whatever its position: nothing is sorted, and nothing need be.
TEST(KeyOrderTest, LeavesAffineLanesAlone) {
  KeyOrderRun one({{-9}, {4}});
  one.Launch(0);
  EXPECT_TRUE(one.is_affine(0) && one.is_affine(1));
  KeyOrderRun two({{-9, -8, -7}, {1, 2, 4}});
  two.Launch(0);
  EXPECT_TRUE(two.is_affine(0) && !two.is_affine(1));
  EXPECT_EQ(two.SlotsOf(0), Positions(3, -77));
  EXPECT_EQ(two.SlotsOf(1), (Positions{0, 1, 2}));
}

}  // namespace
}  // namespace anyorder::kernels::cuda
