#include "kernels/cuda/attention/attention_plan.cuh"
#include "kernels/cuda/attention/attention_ring.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {
namespace {

int64_t KeyTiles(int64_t num_keys) { return CeilDivide(num_keys, kKeyTile); }

// Sorted query rows over the positions of the keys need no more tiles: each is closed by its last
// row or by the end of a span.
int64_t QueryTiles(const AttentionShape& shape) {
  if (shape.num_tables == 0 || shape.num_distances == 0)
    return CeilDivide(shape.query_rows, UnplacedTile::kRows);
  const int64_t by_rows = CeilDivide(shape.query_rows, TableTile::kRows);
  const int64_t most = by_rows + CeilDivide(shape.num_keys, TableTile::kSpan) + 1;
  return most < shape.query_rows ? most : shape.query_rows;
}

int64_t Round16(int64_t bytes) { return CeilDivide(bytes, 16) * 16; }

// Places of arrays one behind the other; with null memory, only their size.
class Places {
 public:
  explicit Places(void* memory) : memory_(static_cast<unsigned char*>(memory)) {}

  template <typename T>
  T* Next(int64_t count) {
    T* const at = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += Round16(count * static_cast<int64_t>(sizeof(T)));
    return at;
  }
  int64_t bytes() const { return bytes_; }

 private:
  unsigned char* memory_;
  int64_t bytes_ = 0;
};

RingPlan Place(const AttentionShape& shape, Places* places) {
  RingPlan plan;
  const int64_t lanes = shape.batch_size;
  plan.key_tiles = static_cast<int>(KeyTiles(shape.num_keys));
  plan.capacity[0] = static_cast<int>(CeilDivide(shape.content_rows, ContentTile::kRows));
  plan.capacity[1] = static_cast<int>(QueryTiles(shape));
  const int64_t slots = lanes * plan.key_tiles * kKeyTile;
  plan.forms = places->Next<int32_t>(2 * lanes);
  for (int stream = 0; stream < 2; ++stream)
    plan.tiles[stream] = places->Next<RingRowTile>(lanes * plan.capacity[stream]);
  plan.work = places->Next<RingRowTile>(lanes * (plan.capacity[0] + plan.capacity[1]));
  plan.keys = places->Next<SlotSummary>(lanes * plan.key_tiles);
  plan.orders = places->Next<RingKeyOrder>(slots);
  plan.rules = places->Next<RingKeyRule>(slots);
  return plan;
}

}  // namespace

bool RingApplies(const AttentionProblem<BFloat16>& in) {
  return in.head_dim == kRingHeadDim && in.num_bias_distances == 0 && in.is_aligned &&
         KeyTiles(in.num_keys) <= kMostKeyTiles;
}

int64_t RingPlanBytes(const AttentionShape& shape) {
  if (shape.head_dim != kRingHeadDim || shape.num_bias_distances > 0) return 0;
  Places places(nullptr);
  Place(shape, &places);
  return places.bytes();
}

RingPlan PlaceRingPlan(const AttentionShape& shape, void* memory) {
  Places places(memory);
  return Place(shape, &places);
}

void MakeRingPlan(const AttentionProblem<BFloat16>& in, const RingPlan& plan, StreamView stream) {
  Launch(AttentionPlanKernel,
         {.blocks_x = in.batch_size,
          .threads = kPlanThreads,
          .shared_bytes = static_cast<int64_t>(sizeof(PlanShared))},
         AttentionPlanParams{in, plan}, stream);
}

}  // namespace anyorder::kernels::cuda
