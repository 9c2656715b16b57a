// Attention as the backend calls it: memory is cut up, terms are prepared, then each family of
// kernels takes the rows that are its own.

#include <algorithm>
#include <optional>
#include <type_traits>

#include "kernels/arguments.h"
#include "kernels/cuda/attention/attention_launch.h"
#include "kernels/cuda/attention/attention_ring.h"
#include "kernels/cuda/attention/attention_scratch.h"
#include "kernels/cuda/operations/operations.h"
#include "kernels/cuda/platform/launch.h"

namespace anyorder::kernels::cuda {
namespace {

template <typename T>
AttentionProblem<T> SizesOf(const AttentionShape& s) {
  AttentionProblem<T> p = {};
  p.batch_size = static_cast<int>(s.batch_size);
  p.content_rows = static_cast<int>(s.content_rows);
  p.query_rows = static_cast<int>(s.query_rows);
  p.num_keys = static_cast<int>(s.num_keys);
  p.num_heads = static_cast<int>(s.num_heads);
  p.num_kv_heads = static_cast<int>(s.kv_heads());
  p.heads_per_kv = static_cast<int>(s.heads_per_kv());
  p.head_dim = static_cast<int>(s.head_dim);
  p.num_tables = static_cast<int>(s.num_tables);
  p.num_distances = static_cast<int>(s.num_distances);
  p.num_bias_distances = static_cast<int>(s.num_bias_distances);
  return p;
}

template <typename T>
AttentionProblem<T> ProblemOf(const AttentionInputs& in) {
  const AttentionShape& s = in.shape;
  AttentionProblem<T> p = SizesOf<T>(s);
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
  p.is_aligned = AreAligned(s.head_dim, in.q, in.k, in.v, in.relative, in.content_bias,
                            in.position_bias, in.segment_bias, in.segment_embedding);
  return p;
}

template <typename T>
AttentionPrepared Prepare(const AttentionProblem<T>& in, const PreparedScratch& scratch,
                          StreamView stream) {
  AttentionPrepared prepared = {};
  if (in.segment_embedding == nullptr) return prepared;
  LaunchSegmentTerms(in, scratch.segment_same, scratch.segment_difference, stream);
  prepared.segment_same = scratch.segment_same;
  prepared.segment_difference = scratch.segment_difference;
  return prepared;
}

// What was planned ahead of the call, if it was.
std::optional<PlanPieces> PlannedAhead(const AttentionInputs& in) {
  if (in.plan == nullptr) return std::nullopt;
  CheckArguments(*in.plan, AttentionPlanBytes(in.shape, in.q.dtype()));
  ScratchCutter cutter(in.plan->memory.raw());
  return PlanPieces(in.shape, in.q.dtype(), cutter);
}

// The plan of the ring kernels and what they prepare; false if they can have no rows, and then the
// general kernels have all.
bool PrepareRing(const AttentionProblem<BFloat16>& in, const AttentionInputs& inputs,
                 const PreparedScratch& scratch, AttentionPrepared* prepared, RingPlan* plan,
                 StreamView stream) {
  if (!RingApplies(in)) return false;
  const std::optional<PlanPieces> ahead = PlannedAhead(inputs);
  *plan = PlaceRingPlan(inputs.shape, ahead ? ahead->ring : scratch.ring_plan);
  if (!ahead) MakeRingPlan(in, *plan, stream);
  prepared->forms = plan->forms;
  if (in.relative != nullptr && (in.content_bias != nullptr || in.position_bias != nullptr)) {
    LaunchDistanceTerms(in, scratch.distance_terms, stream);
    prepared->distance_terms = scratch.distance_terms;
  }
  return true;
}

template <typename T>
class BackwardPass {
 public:
  BackwardPass(const AttentionBackwardArgs& args, int64_t most_bytes, StreamView stream)
      : args_(args),
        shape_(args.in.shape),
        sizes_(GroupSizes::Of(shape_, args.in.q.dtype(), most_bytes)),
        cutter_(args.workspace.raw()),
        scratch_(shape_, sizes_, cutter_),
        stream_(stream) {
    in_ = ProblemOf<T>(args.in);
    in_.is_aligned &=
        AreAligned(shape_.head_dim, args.out, args.dout, args.dq, args.dk, args.dv, args.drelative);
  }

  void Run() {
    BeginAttentionPass("prepare", stream_);
    LaunchDelta(in_, args_.out.data<T>(), args_.dout.data<T>(), scratch_.delta, stream_);
    prepared_ = Prepare(in_, scratch_.prepared, stream_);
    if constexpr (std::is_same_v<T, BFloat16>)
      has_ring_ = PrepareRing(in_, args_.in, scratch_.prepared, &prepared_, &plan_, stream_);
    order_ = PrepareOrder();
    for (int head = 0; head < in_.num_heads; head = sizes_.EndHead(shape_, head)) {
      // Once even without lanes: sums over none of them are 0.
      int lane = 0;
      do {
        RunGroup({lane, std::min(sizes_.lanes, in_.batch_size - lane), head,
                  sizes_.EndHead(shape_, head) - head});
        lane += sizes_.lanes;
      } while (lane < in_.batch_size);
    }
    BeginAttentionPass("parameters", stream_);
    FinishParameters();
    BeginAttentionPass("", stream_);
  }

 private:
  KeyOrder PrepareOrder() const {
    if (const std::optional<PlanPieces> ahead = PlannedAhead(args_.in)) return ahead->order;
    if (HasDistances(shape_)) LaunchKeyOrder(in_, scratch_.order, stream_);
    return scratch_.order;
  }

  void RunGroup(const AttentionGroup& group) {
    AttentionBackwardParams<T> params;
    params.in = in_;
    params.prepared = prepared_;
    params.scores = {group,
                     group.NumRows(in_),
                     PaddedKeys(in_.num_keys),
                     scratch_.probabilities,
                     scratch_.gradients,
                     scratch_.hulls,
                     in_.segment_embedding == nullptr ? nullptr : scratch_.other_segment};
    params.lse = args_.lse.data<float>();
    params.delta = scratch_.delta;
    params.dout = args_.dout.data<T>();
    params.dq = args_.dq.data<T>();
    BeginAttentionPass("a", stream_);
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (has_ring_) AttentionRingBackward(params, plan_, stream_);
    }
    LaunchGeneralBackward(params, stream_);
    BeginAttentionPass("keys", stream_);
    LaunchKeyGradients<T>(
        {in_, params.scores, params.dout, args_.dk.data<T>(), args_.dv.data<T>(), scratch_.key_sums,
         args_.dcontent_bias.is_null() ? nullptr : scratch_.content_sums},
        stream_);
    BeginAttentionPass("distances", stream_);
    if (in_.relative != nullptr)
      LaunchDistanceSums(in_, params.scores, order_, scratch_.distance_sums,
                         scratch_.distance_weights, stream_);
    if (in_.distance_bias != nullptr)
      LaunchBiasLanes(in_, params.scores, order_, scratch_.bias_lanes, stream_);
  }

  void FinishParameters() {
    const int64_t m = in_.model_dim();
    if (!args_.dcontent_bias.is_null())
      LaunchSumRows(scratch_.content_sums, in_.batch_size * KeyTiles(in_), m,
                    scratch_.content_parts, args_.dcontent_bias.data<float>(), stream_);
    if (in_.relative != nullptr) {
      const bool has_bias = !args_.dposition_bias.is_null();
      LaunchRelativeGradient(in_, scratch_.distance_sums, scratch_.distance_weights,
                             args_.drelative.data<T>(), has_bias ? scratch_.position_sums : nullptr,
                             stream_);
      if (has_bias)
        LaunchSumRows(scratch_.position_sums,
                      TableParts(int64_t{in_.num_tables} * in_.num_distances), m,
                      scratch_.position_parts, args_.dposition_bias.data<float>(), stream_);
    }
    if (in_.segment_embedding != nullptr)
      LaunchSegmentGradients(in_, scratch_.other_segment, scratch_.segment_parts,
                             args_.dsegment_embedding.data<float>(),
                             DataOrNull<float>(args_.dsegment_bias), stream_);
    if (in_.distance_bias != nullptr)
      LaunchBiasGradient(in_, scratch_.bias_lanes, args_.ddistance_bias.data<float>(), stream_);
  }

  const AttentionBackwardArgs& args_;
  const AttentionShape& shape_;
  const GroupSizes sizes_;
  ScratchCutter cutter_;
  const BackwardScratch<T> scratch_;
  const StreamView stream_;
  AttentionProblem<T> in_;
  AttentionPrepared prepared_;
  RingPlan plan_ = {};
  KeyOrder order_ = {};
  bool has_ring_ = false;
};

}  // namespace

void PlanAttention(const AttentionPlan& plan, StreamView stream) {
  CheckArguments(plan, AttentionPlanBytes(plan.shape, plan.dtype));
  ScratchCutter cutter(plan.memory.raw());
  const PlanPieces pieces(plan.shape, plan.dtype, cutter);
  WithStorage(plan.dtype, [&]<typename T>() {
    AttentionProblem<T> in = SizesOf<T>(plan.shape);
    in.min_distance = plan.min_distance;
    in.rows = plan.rows;
    in.keys = plan.keys;
    in.is_aligned = true;  // if the call's tensors are not, it does not look
    if constexpr (std::is_same_v<T, BFloat16>) {
      if (RingApplies(in)) MakeRingPlan(in, PlaceRingPlan(plan.shape, pieces.ring), stream);
    }
    if (plan.is_for_backward && HasDistances(plan.shape)) LaunchKeyOrder(in, pieces.order, stream);
  });
}

void Run(const AttentionForwardArgs& args, float* scratch, StreamView stream) {
  const AttentionShape& shape = args.in.shape;
  WithStorage(args.in.q.dtype(), [&]<typename T>() {
    AttentionForwardParams<T> params;
    params.in = ProblemOf<T>(args.in);
    params.in.is_aligned &= AreAligned(shape.head_dim, args.out);
    params.out = args.out.data<T>();
    params.lse = args.lse.data<float>();
    ScratchCutter cutter(scratch);
    const PreparedScratch pieces(shape, cutter);
    params.prepared = Prepare(params.in, pieces, stream);
    if constexpr (std::is_same_v<T, BFloat16>) {
      RingPlan plan;
      if (PrepareRing(params.in, args.in, pieces, &params.prepared, &plan, stream))
        AttentionRingForward(params, plan, stream);
    }
    LaunchGeneralForward(params, stream);
  });
}

void AttentionBackwardWithin(const AttentionBackwardArgs& args, int64_t most_bytes,
                             StreamView stream) {
  const int64_t bytes = AttentionBackwardBytesWithin(args.in.shape, args.in.q.dtype(), most_bytes);
  ANYORDER_CHECK(args.workspace.num_bytes() >= bytes)
      << "workspace of " << args.workspace.num_bytes() << " bytes, attention needs " << bytes;
  WithStorage(args.in.q.dtype(),
              [&]<typename T>() { BackwardPass<T>(args, most_bytes, stream).Run(); });
}

void Run(const AttentionBackwardArgs& args, StreamView stream) {
  AttentionBackwardWithin(args, kMostScoreBytes, stream);
}

}  // namespace anyorder::kernels::cuda
