// Attention as the backend calls it: memory is cut up, terms are prepared, then each family of kernels takes the rows that are its own.

#include <type_traits>

#include "kernels/cuda/attention_launch.h"
#include "kernels/cuda/attention_ring.h"
#include "kernels/cuda/attention_scratch.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/storage.h"

namespace anyorder::kernels::cuda {
namespace {

template <typename T>
const T* DataOrNull(const ConstTensorView& x) {
  return x.is_null() ? nullptr : x.data<T>();
}

template <typename T>
AttentionProblem<T> ProblemOf(const AttentionInputs& in) {
  const AttentionShape& s = in.shape;
  AttentionProblem<T> p = {};
  p.batch_size = static_cast<int>(s.batch_size);
  p.content_rows = static_cast<int>(s.content_rows);
  p.query_rows = static_cast<int>(s.query_rows);
  p.num_keys = static_cast<int>(s.num_keys);
  p.num_heads = static_cast<int>(s.num_heads);
  p.head_dim = static_cast<int>(s.head_dim);
  p.num_tables = static_cast<int>(s.num_tables);
  p.num_distances = static_cast<int>(s.num_distances);
  p.num_bias_distances = static_cast<int>(s.num_bias_distances);
  p.q = DataOrNull<T>(in.q);
  p.k = DataOrNull<T>(in.k);
  p.v = DataOrNull<T>(in.v);
  p.relative = DataOrNull<T>(in.relative);
  p.min_distance = in.min_distance;
  p.table_of_lane = in.table_of_lane;
  p.content_bias = DataOrNull<T>(in.content_bias);
  p.position_bias = DataOrNull<T>(in.position_bias);
  p.segment_bias = DataOrNull<T>(in.segment_bias);
  p.segment_embedding = DataOrNull<T>(in.segment_embedding);
  p.distance_bias = DataOrNull<T>(in.distance_bias);
  p.min_bias_distance = in.min_bias_distance;
  p.scale = in.scale;
  p.rows = in.rows;
  p.keys = in.keys;
  p.bands = in.bands;
  p.dropout = in.dropout;
  p.row_ids = in.row_ids;
  p.is_aligned = AreAligned(s.head_dim,
                            in.q,
                            in.k,
                            in.v,
                            in.relative,
                            in.content_bias,
                            in.position_bias,
                            in.segment_bias,
                            in.segment_embedding);
  return p;
}

template <typename T>
AttentionPrepared Prepare(const AttentionProblem<T>& in,
                          const PreparedScratch& scratch,
                          StreamView stream) {
  AttentionPrepared prepared = {};
  if (in.segment_embedding == nullptr) return prepared;
  LaunchSegmentTerms(in, scratch.segment_same, scratch.segment_difference, stream);
  prepared.segment_same = scratch.segment_same;
  prepared.segment_difference = scratch.segment_difference;
  return prepared;
}

// The plan of the ring kernels and what they prepare; false if they can have no rows, and then the general kernels have all.
bool PrepareRing(const AttentionProblem<BFloat16>& in,
                 const AttentionShape& shape,
                 const PreparedScratch& scratch,
                 AttentionPrepared* prepared,
                 RingPlan* plan,
                 StreamView stream) {
  if (!RingApplies(in)) return false;
  *plan = PlaceRingPlan(shape, scratch.ring_plan);
  MakeRingPlan(in, *plan, stream);
  prepared->forms = plan->forms;
  if (in.relative != nullptr && (in.content_bias != nullptr || in.position_bias != nullptr)) {
    LaunchDistanceTerms(in, scratch.distance_terms, stream);
    prepared->distance_terms = scratch.distance_terms;
  }
  return true;
}

}  // namespace

int64_t AttentionScratchElements(const AttentionShape& shape) {
  ScratchCutter cutter(nullptr);
  PreparedScratch(shape, cutter);
  return cutter.bytes() / static_cast<int64_t>(sizeof(float));
}

void AttentionForward(const AttentionForwardArgs& args, const Scratch& scratch, StreamView stream) {
  const AttentionShape& shape = args.in.shape;
  ANYORDER_CHECK(scratch.elements >= AttentionScratchElements(shape))
      << "scratch of " << scratch.elements << " for attention";
  WithStorage(args.in.q.dtype(), [&]<typename T>() {
    AttentionForwardParams<T> params;
    params.in = ProblemOf<T>(args.in);
    params.in.is_aligned &= AreAligned(shape.head_dim, args.out);
    params.out = args.out.data<T>();
    params.lse = args.lse.data<float>();
    ScratchCutter cutter(scratch.data);
    const PreparedScratch pieces(shape, cutter);
    params.prepared = Prepare(params.in, pieces, stream);
    if constexpr (std::is_same_v<T, BFloat16>) {
      RingPlan plan;
      if (PrepareRing(params.in, shape, pieces, &params.prepared, &plan, stream))
        AttentionRingForward(params, plan, stream);
    }
    LaunchGeneralForward(params, stream);
  });
}

}  // namespace anyorder::kernels::cuda
