// What attention takes of memory, and where in it its ring kernels' plan lies.

#include "kernels/cuda/attention/attention_ring.h"
#include "kernels/cuda/attention/attention_scratch.h"
#include "kernels/cuda/operations/operation_sizes.h"
#include "kernels/cuda/platform/launch_shape.h"

namespace anyorder::kernels::cuda {
namespace {

constexpr int64_t kPlanAlignment = 16;

// Sorted query rows over the positions of the keys need no more tiles: each is closed by its last
// row or by the end of a span.
int64_t QueryTiles(const AttentionShape& shape) {
  if (shape.num_tables == 0 || shape.num_distances == 0)
    return CeilDivide(shape.query_rows, UnplacedTile::kRows);
  const int64_t by_rows = CeilDivide(shape.query_rows, TableTile::kRows);
  const int64_t most = by_rows + CeilDivide(shape.num_keys, TableTile::kSpan) + 1;
  return most < shape.query_rows ? most : shape.query_rows;
}

RingPlan Place(const AttentionShape& shape, ScratchCutter* cutter) {
  RingPlan plan;
  const int64_t lanes = shape.batch_size;
  plan.key_tiles = static_cast<int>(CeilDivide(shape.num_keys, kKeyTile));
  plan.capacity[0] = static_cast<int>(CeilDivide(shape.content_rows, ContentTile::kRows));
  plan.capacity[1] = static_cast<int>(QueryTiles(shape));
  const int64_t slots = lanes * plan.key_tiles * kKeyTile;
  plan.forms = cutter->Take<int32_t>(2 * lanes);
  for (int stream = 0; stream < 2; ++stream)
    plan.tiles[stream] = cutter->Take<RingRowTile>(lanes * plan.capacity[stream]);
  plan.work = cutter->Take<RingRowTile>(lanes * (plan.capacity[0] + plan.capacity[1]));
  plan.keys = cutter->Take<SlotSummary>(lanes * plan.key_tiles);
  plan.orders = cutter->Take<RingKeyOrder>(slots);
  plan.rules = cutter->Take<RingKeyRule>(slots);
  return plan;
}

}  // namespace

int64_t RingPlanBytes(const AttentionShape& shape) {
  if (shape.head_dim != kRingHeadDim || shape.num_bias_distances > 0) return 0;
  ScratchCutter cutter(nullptr, kPlanAlignment);
  Place(shape, &cutter);
  return cutter.bytes();
}

RingPlan PlaceRingPlan(const AttentionShape& shape, void* memory) {
  ScratchCutter cutter(memory, kPlanAlignment);
  return Place(shape, &cutter);
}

int64_t AttentionScratchElements(const AttentionShape& shape) {
  ScratchCutter cutter(nullptr);
  PreparedScratch(shape, cutter);
  return cutter.bytes() / static_cast<int64_t>(sizeof(float));
}

int64_t AttentionPlanBytes(const AttentionShape& shape, DType dtype) {
  ScratchCutter cutter(nullptr);
  PlanPieces(shape, dtype, cutter);
  return cutter.bytes();
}

int64_t AttentionBackwardBytesWithin(const AttentionShape& shape, DType dtype, int64_t most_bytes) {
  ScratchCutter cutter(nullptr);
  const GroupSizes sizes = GroupSizes::Of(shape, dtype, most_bytes);
  if (dtype == DType::kBFloat16) {
    BackwardScratch<BFloat16>(shape, sizes, cutter);
  } else {
    BackwardScratch<float>(shape, sizes, cutter);
  }
  return cutter.bytes();
}

int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape, DType dtype) {
  return AttentionBackwardBytesWithin(shape, dtype, kMostScoreBytes);
}

}  // namespace anyorder::kernels::cuda
