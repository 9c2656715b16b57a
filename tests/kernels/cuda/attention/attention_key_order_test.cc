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
  std::stable_sort(slots.begin(), slots.end(),
                   [&](int32_t a, int32_t b) { return positions[a] < positions[b]; });
  return slots;
}

// The order of the keys of lanes with as many keys each, none of them padding, and one row at
// position 0.
class KeyOrderRun {
 public:
  KeyOrderRun(const std::vector<Positions>& lanes, uint64_t schedule)
      : num_keys_(lanes[0].size()), lanes_(lanes.size()) {
    Positions positions;
    for (const Positions& lane : lanes) positions.insert(positions.end(), lane.begin(), lane.end());
    sorted_positions_ = sorted_slots_ = Positions(positions.size(), -77);
    const auto num_lanes = static_cast<int64_t>(lanes.size());
    Positions spare_positions(KeySortSpare(num_lanes, static_cast<int64_t>(num_keys_)), -77);
    Positions spare_slots = spare_positions;
    const Positions docs(positions.size(), 0), row_positions(lanes.size(), 0);
    std::vector<PositionRange> ranges(lanes.size());
    AttentionProblem<float> in = {};
    in.batch_size = static_cast<int>(num_lanes);
    in.content_rows = 1;
    in.num_keys = static_cast<int>(num_keys_);
    in.rows.pos = row_positions.data();
    in.keys.pos = positions.data();
    in.keys.doc = docs.data();
    emulation::SetSchedule({schedule});
    LaunchKeyOrder(in,
                   {lanes_.data(),
                    {sorted_positions_.data(), sorted_slots_.data()},
                    {spare_positions.data(), spare_slots.data()},
                    ranges.data()},
                   {});
  }

  bool is_affine(size_t lane) const { return lanes_[lane].is_affine != 0; }
  Positions SlotsOf(size_t lane) const { return Part(sorted_slots_, lane); }
  Positions PositionsOf(size_t lane) const { return Part(sorted_positions_, lane); }

 private:
  Positions Part(const std::vector<int32_t>& of_lanes, size_t lane) const {
    const auto begin = of_lanes.begin() + static_cast<int64_t>(lane * num_keys_);
    return {begin, begin + static_cast<int64_t>(num_keys_)};
  }

  size_t num_keys_;
  std::vector<KeyLane> lanes_;
  Positions sorted_positions_, sorted_slots_;
};

// The slots are a permutation, positions rise, equal ones are in the order of slots: there is one
// such order.
void ExpectSorted(const std::vector<Positions>& lanes, uint64_t schedule) {
  const KeyOrderRun run(lanes, schedule);
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    const std::vector<int32_t> slots = ExpectedSlots(lanes[lane]);
    EXPECT_EQ(run.SlotsOf(lane), slots) << "lane " << lane << " of " << slots.size() << " keys";
    Positions positions;
    for (const int32_t slot : slots) positions.push_back(lanes[lane][slot]);
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
  for (int i = 0; i < 777; ++i) falling[i] = -i;
  Positions rising(777);
  for (int i = 0; i < 777; ++i) rising[i] = 2 * i;
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
  const KeyOrderRun one({{-9}, {4}}, 0);
  EXPECT_TRUE(one.is_affine(0) && one.is_affine(1));
  const KeyOrderRun two({{-9, -8, -7}, {1, 2, 4}}, 0);
  EXPECT_TRUE(two.is_affine(0) && !two.is_affine(1));
  EXPECT_EQ(two.SlotsOf(0), Positions(3, -77));
  EXPECT_EQ(two.SlotsOf(1), (Positions{0, 1, 2}));
}

}  // namespace
}  // namespace anyorder::kernels::cuda
