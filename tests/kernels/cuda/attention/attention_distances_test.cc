// Which block of the distance pass has which lanes.

#include "kernels/cuda/attention/attention_distances.cuh"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr int kLanes = 11;
constexpr int kSlots = 4;
constexpr int kTables = 2;

struct WalkParams {
  DistanceGradientParams<float> call;
  int32_t* slot_of;    // [kLanes]
  int32_t* visits_of;  // [kLanes]
};
ANYORDER_KERNEL void WalkKernel(WalkParams p) {
  if (Thread() != 0) return;
  for (DistanceWalk<float> walk(p.call, 64); !walk.IsAtEnd(); walk.Next()) {
    p.slot_of[walk.lane] = walk.slot;
    ++p.visits_of[walk.lane];
  }
}

// The slots of lanes.
std::vector<int32_t> SlotsOf(const std::vector<int32_t>& tables) {
  std::vector<PositionRange> rows(kLanes, {0, 10});
  std::vector<KeyLane> keys(kLanes, {0, 0, 10, 1});
  WalkParams params = {};
  params.call.in.num_tables = kTables;
  params.call.in.table_of_lane = tables.data();
  params.call.in.content_rows = 1;
  params.call.in.min_distance = -10;
  params.call.in.num_distances = 21;
  params.call.scores.group = {0, kLanes, 0, 1};
  params.call.order.lanes = keys.data();
  params.call.order.row_ranges = rows.data();
  params.call.slots = kSlots;
  std::vector<int32_t> slots(kLanes, -1);
  std::vector<int32_t> visits(kLanes, 0);
  params.slot_of = slots.data();
  params.visits_of = visits.data();
  Launch(WalkKernel, {.blocks_z = kSlots * kTables, .threads = 32}, params, {});
  EXPECT_THAT(visits, ::testing::Each(1));
  return slots;
}

// Reading directions alternate: slots by the lane's number would leave half of the blocks without
// any.
TEST(DistanceWalkTest, EverySlotOfATableHasLanes) {
  std::vector<int32_t> alternating(kLanes);
  for (size_t lane = 0; lane < alternating.size(); ++lane)
    alternating[lane] = static_cast<int32_t>(lane % 2);
  EXPECT_THAT(SlotsOf(alternating), ::testing::ElementsAre(0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1));
}

}  // namespace
}  // namespace anyorder::kernels::cuda
