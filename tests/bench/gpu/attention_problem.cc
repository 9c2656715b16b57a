#include "tests/bench/gpu/attention_problem.h"

#include <cmath>
#include <numeric>

#include "core/base/philox.h"
#include "tests/kernels/attention_scenarios.h"

namespace anyorder::bench {
namespace {

using kernels::testing::AttentionCase;
using kernels::testing::Slots;

// As XLNet's sampler draws them: two halves, each with an order of its masked tokens, which see the
// unmasked ones of their half, the masked ones before them, and all that stood before the half.
// Targets are masked tokens, `targets` of them as far as they go.
AttentionCase DrawCase(const XlnetSize& size, int64_t batch) {
  AttentionCase drawn;
  RandomStream random(5, RandomPurpose::kPermutation, 0, 0);
  const auto length = static_cast<int32_t>(size.length);
  const int32_t half = length / 2;
  for (int64_t lane = 0; lane < batch; ++lane) {
    Slots& content = drawn.content.emplace_back();
    Slots& query = drawn.query.emplace_back();
    Slots& keys = drawn.keys.emplace_back();
    kernels::testing::AddMemory(static_cast<int32_t>(size.memory), &keys);
    const std::vector<int32_t> places = kernels::testing::Permutation(length, &random);
    std::vector<int32_t> rank(static_cast<size_t>(length), 0);
    for (int64_t target = 0; target < size.targets; ++target)
      rank[static_cast<size_t>(places[static_cast<size_t>(target)])] =
          static_cast<int32_t>(target) + 1;
    for (int32_t i = 0; i < length; ++i) {
      const int32_t order = (i < half ? 0 : length) + rank[static_cast<size_t>(i)];
      const int32_t segment = i < length / 3 ? 0 : 1;
      content.Add(i, order, -1, 0, segment);
      keys.Add(i, order, -1, 0, segment);
      if (rank[static_cast<size_t>(i)] > 0) query.Add(i, order - 1, -1, 0, segment);
    }
  }
  drawn.Finish(size.heads, size.head_dim(), /*tables=*/2);
  return drawn;
}

AttentionCase PlainCase(const PlainSize& size, int64_t batch) {
  AttentionCase drawn;
  drawn.biases = drawn.segments = false;
  Slots slots;
  for (int32_t i = 0; i < size.length; ++i) slots.Add(i, size.is_causal ? i : 0);
  for (int64_t lane = 0; lane < batch; ++lane) drawn.AddLane(slots, {}, slots);
  drawn.Finish(size.heads, size.head_dim, /*tables=*/0);
  drawn.shape.num_kv_heads = size.kv_heads;
  return drawn;
}

}  // namespace

AttentionProblem::AttentionProblem(kernels::Backend& backend, const XlnetSize& size, int64_t batch,
                                   double dropout, ProblemValues values)
    : AttentionProblem(backend, DrawCase(size, batch), dropout, values) {}

AttentionProblem::AttentionProblem(kernels::Backend& backend, const PlainSize& size, int64_t batch)
    : AttentionProblem(backend, PlainCase(size, batch), /*dropout=*/0, ProblemValues::kBf16) {}

AttentionProblem::AttentionProblem(kernels::Backend& backend, const AttentionCase& drawn,
                                   double dropout, ProblemValues values)
    : backend_(backend),
      values_(values),
      dtype_(values == ProblemValues::kBf16 ? DType::kBFloat16 : DType::kFloat32),
      memory_(backend) {
  SetCase(drawn, dropout);
  SetTensors(drawn);
  SetPlan();
}

void AttentionProblem::SetCase(const AttentionCase& drawn, double dropout) {
  in_.shape = drawn.shape;
  in_.min_distance = drawn.min_distance;
  in_.scale = 1.0f / std::sqrt(static_cast<float>(drawn.shape.head_dim));
  Slots rows, keys;
  for (const Slots& lane : drawn.content) rows.Append(lane);
  for (const Slots& lane : drawn.query) rows.Append(lane);
  for (const Slots& lane : drawn.keys) keys.Append(lane);
  const auto upload = [this](const auto& values) { return memory_.Array(values); };
  in_.rows = rows.As<kernels::RowVisibility>(upload);
  in_.keys = keys.As<kernels::KeyVisibility>(upload);
  in_.table_of_lane = upload(drawn.table_of_lane);
  std::vector<int32_t> row_ids(rows.pos.size());
  std::iota(row_ids.begin(), row_ids.end(), 0);
  in_.row_ids = upload(row_ids);
  in_.dropout = kernels::MakeDropout(1, 2, 3, dropout);
}

void AttentionProblem::SetTensors(const AttentionCase& drawn) {
  const kernels::AttentionShape& s = in_.shape;
  const int64_t width = s.model_dim();
  const Shape rows{s.num_rows(), width};
  const Shape keys{s.batch_size, s.num_keys, s.keys_dim()};
  in_.q = Random(rows, 1);
  in_.k = Random(keys, 2);
  in_.v = Random(keys, 3);
  forward_.out = memory_.Tensor(dtype_, rows);
  forward_.lse = memory_.Tensor(DType::kFloat32, {s.num_rows(), s.num_heads});
  backward_.out = forward_.out;
  backward_.lse = forward_.lse;
  backward_.dout = Random(rows, 9);
  backward_.dq = memory_.Tensor(dtype_, rows);
  backward_.dk = memory_.Tensor(dtype_, keys);
  backward_.dv = memory_.Tensor(dtype_, keys);
  backward_.workspace =
      memory_.Tensor(DType::kUint8, {backend_.AttentionBackwardWorkspaceBytes(s, dtype_)});
  if (s.num_tables > 0) {
    const Shape tables{s.num_tables, s.num_distances, width};
    in_.relative = Random(tables, 4);
    in_.position_bias = Random({width}, 6, 0.1);
    backward_.drelative = memory_.Tensor(dtype_, tables);
    backward_.dposition_bias = memory_.Tensor(DType::kFloat32, {width});
  }
  if (drawn.biases) {
    in_.content_bias = Random({width}, 5, 0.1);
    backward_.dcontent_bias = memory_.Tensor(DType::kFloat32, {width});
  }
  if (drawn.segments) {
    in_.segment_bias = Random({width}, 7, 0.1);
    in_.segment_embedding = Random({2, width}, 8, 0.1);
    backward_.dsegment_bias = memory_.Tensor(DType::kFloat32, {width});
    backward_.dsegment_embedding = memory_.Tensor(DType::kFloat32, {2, width});
  }
  forward_.in = backward_.in = in_;
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
  return memory_.Random(dtype_, shape, seed, deviation,
                        /*dithered=*/values_ == ProblemValues::kDitheredInFp32);
}

}  // namespace anyorder::bench
