#include "tests/bench/gpu/attention_problem.h"

#include <cmath>

#include "core/base/philox.h"
#include "tests/kernels/attention_scenarios.h"

namespace anyorder::bench {
namespace {

using kernels::testing::Slots;

// As XLNet's sampler draws them: two halves, each with an order of its masked tokens, which see the
// unmasked ones of their half, the masked ones before them, and all that stood before the half.
// Targets are masked tokens, `targets` of them as far as they go.
struct Lanes {
  Slots content, query, keys;
};
Lanes DrawLanes(const XlnetSize& size, int64_t batch) {
  Lanes lanes;
  RandomStream random(5, RandomPurpose::kPermutation, 0, 0);
  const auto length = static_cast<int32_t>(size.length);
  const int32_t half = length / 2;
  for (int64_t lane = 0; lane < batch; ++lane) {
    kernels::testing::AddMemory(static_cast<int32_t>(size.memory), &lanes.keys);
    const std::vector<int32_t> places = kernels::testing::Permutation(length, &random);
    std::vector<int32_t> rank(static_cast<size_t>(length), 0);
    for (int64_t target = 0; target < size.targets; ++target)
      rank[static_cast<size_t>(places[static_cast<size_t>(target)])] =
          static_cast<int32_t>(target) + 1;
    for (int32_t i = 0; i < length; ++i) {
      const int32_t order = (i < half ? 0 : length) + rank[static_cast<size_t>(i)];
      const int32_t segment = i < length / 3 ? 0 : 1;
      lanes.content.Add(i, order, -1, 0, segment);
      lanes.keys.Add(i, order, -1, 0, segment);
      if (rank[static_cast<size_t>(i)] > 0) lanes.query.Add(i, order - 1, -1, 0, segment);
    }
  }
  return lanes;
}

}  // namespace

AttentionProblem::AttentionProblem(kernels::Backend& backend, const XlnetSize& size, int64_t batch,
                                   double dropout, ProblemValues values)
    : backend_(backend),
      values_(values),
      dtype_(values == ProblemValues::kBf16 ? DType::kBFloat16 : DType::kFloat32),
      memory_(backend) {
  SetShape(size, batch);
  SetVisibility(size, batch, dropout);
  SetTensors();
  SetPlan();
}

void AttentionProblem::SetShape(const XlnetSize& size, int64_t batch) {
  kernels::AttentionShape& shape = in_.shape;
  shape.batch_size = batch;
  shape.content_rows = size.length;
  shape.query_rows = size.targets;
  shape.num_keys = size.keys();
  shape.num_heads = size.heads;
  shape.head_dim = size.head_dim();
  shape.num_tables = 2;
  shape.num_distances = size.distances();
  in_.min_distance = 1 - size.length;
  in_.scale = 1.0f / std::sqrt(static_cast<float>(size.head_dim()));
}

void AttentionProblem::SetVisibility(const XlnetSize& size, int64_t batch, double dropout) {
  const Lanes lanes = DrawLanes(size, batch);
  Slots rows = lanes.content;
  rows.Append(lanes.query);
  const auto upload = [this](const auto& values) { return memory_.Array(values); };
  in_.rows = rows.As<kernels::RowVisibility>(upload);
  in_.keys = lanes.keys.As<kernels::KeyVisibility>(upload);
  std::vector<int32_t> tables(static_cast<size_t>(batch));
  for (size_t lane = 0; lane < tables.size(); ++lane) tables[lane] = static_cast<int32_t>(lane % 2);
  in_.table_of_lane = upload(tables);
  std::vector<int32_t> row_ids(rows.pos.size());
  for (size_t row = 0; row < row_ids.size(); ++row) row_ids[row] = static_cast<int32_t>(row);
  in_.row_ids = upload(row_ids);
  in_.dropout = kernels::MakeDropout(1, 2, 3, dropout);
}

void AttentionProblem::SetTensors() {
  const kernels::AttentionShape& s = in_.shape;
  const int64_t width = s.model_dim();
  const Shape rows{s.num_rows(), width};
  const Shape keys{s.batch_size, s.num_keys, width};
  const Shape tables{s.num_tables, s.num_distances, width};
  in_.q = Random(rows, 1);
  in_.k = Random(keys, 2);
  in_.v = Random(keys, 3);
  in_.relative = Random(tables, 4);
  in_.content_bias = Random({width}, 5, 0.1);
  in_.position_bias = Random({width}, 6, 0.1);
  in_.segment_bias = Random({width}, 7, 0.1);
  in_.segment_embedding = Random({2, width}, 8, 0.1);
  forward_.in = in_;
  forward_.out = memory_.Tensor(dtype_, rows);
  forward_.lse = memory_.Tensor(DType::kFloat32, {s.num_rows(), s.num_heads});
  backward_.in = in_;
  backward_.out = forward_.out;
  backward_.lse = forward_.lse;
  backward_.dout = Random(rows, 9);
  backward_.dq = memory_.Tensor(dtype_, rows);
  backward_.dk = memory_.Tensor(dtype_, keys);
  backward_.dv = memory_.Tensor(dtype_, keys);
  backward_.drelative = memory_.Tensor(dtype_, tables);
  backward_.dcontent_bias = memory_.Tensor(DType::kFloat32, {width});
  backward_.dposition_bias = memory_.Tensor(DType::kFloat32, {width});
  backward_.dsegment_bias = memory_.Tensor(DType::kFloat32, {width});
  backward_.dsegment_embedding = memory_.Tensor(DType::kFloat32, {2, width});
  backward_.workspace =
      memory_.Tensor(DType::kUint8, {backend_.AttentionBackwardWorkspaceBytes(s, dtype_)});
}

// Ahead, as a network's layers share it.
void AttentionProblem::SetPlan() {
  const int64_t bytes = backend_.AttentionPlanBytes(in_.shape, dtype_);
  if (bytes == 0) return;
  plan_ = {.shape = in_.shape,
           .dtype = dtype_,
           .min_distance = in_.min_distance,
           .rows = in_.rows,
           .keys = in_.keys,
           .is_for_backward = true,
           .memory = memory_.Tensor(DType::kUint8, {bytes})};
  backend_.PlanAttention(plan_, {});
  forward_.in.plan = backward_.in.plan = &plan_;
}

TensorView AttentionProblem::Random(Shape shape, uint64_t seed, double deviation) {
  if (values_ == ProblemValues::kDitheredInFp32)
    return memory_.Random(dtype_, shape, seed, deviation, /*dithered=*/true);
  const TensorView narrow = memory_.Random(DType::kBFloat16, shape, seed, deviation);
  if (values_ == ProblemValues::kBf16) return narrow;
  const TensorView wide = memory_.Tensor(dtype_, shape);
  backend_.Cast(narrow, wide, {});
  return wide;
}

}  // namespace anyorder::bench
