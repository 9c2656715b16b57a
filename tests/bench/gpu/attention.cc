// Both streams of XLNet's attention at the pretraining shape.

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/philox.h"
#include "kernels/cuda/attention_passes.h"
#include "tests/bench/gpu/cases.h"
#include "tests/kernels/attention_scenarios.h"

namespace anyorder::bench {
namespace {

using kernels::testing::Slots;

constexpr DType kType = DType::kBFloat16;

// As XLNet's sampler draws them: two halves, each with an order of its masked tokens, which see the unmasked ones of their half, the
// masked ones before them, and all that stood before the half. Targets are masked tokens, `targets` of them as far as they go.
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

// One problem in device memory; forward has run where backward begins.
class Problem {
 public:
  Problem(Bench& bench, const XlnetSize& size, int64_t batch, double dropout)
      : backend_(bench.backend()), memory_(bench.backend()) {
    SetShape(size, batch);
    SetVisibility(DrawLanes(size, batch), batch, dropout);
    SetTensors();
    SetPlan();
    backend_.AttentionForward(forward_, {});
  }

  const kernels::AttentionForwardArgs& forward() const { return forward_; }
  const kernels::AttentionBackwardArgs& backward() const { return backward_; }
  const kernels::AttentionPlan& plan() const { return plan_; }

 private:
  void SetShape(const XlnetSize& size, int64_t batch) {
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

  void SetVisibility(const Lanes& lanes, int64_t batch, double dropout) {
    Slots rows = lanes.content;
    rows.Append(lanes.query);
    const auto upload = [this](const auto& values) { return memory_.Array(values); };
    in_.rows = {upload(rows.pos),
                upload(rows.order),
                upload(rows.grp),
                upload(rows.doc),
                upload(rows.seg),
                upload(rows.glob)};
    const Slots& keys = lanes.keys;
    in_.keys = {upload(keys.pos),
                upload(keys.order),
                upload(keys.grp),
                upload(keys.doc),
                upload(keys.seg),
                upload(keys.glob)};
    std::vector<int32_t> tables(static_cast<size_t>(batch));
    for (size_t lane = 0; lane < tables.size(); ++lane)
      tables[lane] = static_cast<int32_t>(lane % 2);
    in_.table_of_lane = upload(tables);
    std::vector<int32_t> row_ids(rows.pos.size());
    for (size_t row = 0; row < row_ids.size(); ++row)
      row_ids[row] = static_cast<int32_t>(row);
    in_.row_ids = upload(row_ids);
    in_.dropout = kernels::MakeDropout(1, 2, 3, dropout);
  }

  void SetTensors() {
    const kernels::AttentionShape& s = in_.shape;
    const int64_t width = s.model_dim();
    const Shape rows{s.num_rows(), width};
    const Shape keys{s.batch_size, s.num_keys, width};
    const Shape tables{s.num_tables, s.num_distances, width};
    in_.q = memory_.Random(kType, rows, 1);
    in_.k = memory_.Random(kType, keys, 2);
    in_.v = memory_.Random(kType, keys, 3);
    in_.relative = memory_.Random(kType, tables, 4);
    in_.content_bias = memory_.Random(kType, {width}, 5, 0.1);
    in_.position_bias = memory_.Random(kType, {width}, 6, 0.1);
    in_.segment_bias = memory_.Random(kType, {width}, 7, 0.1);
    in_.segment_embedding = memory_.Random(kType, {2, width}, 8, 0.1);
    forward_.in = in_;
    forward_.out = memory_.Tensor(kType, rows);
    forward_.lse = memory_.Tensor(DType::kFloat32, {s.num_rows(), s.num_heads});
    backward_.in = in_;
    backward_.out = forward_.out;
    backward_.lse = forward_.lse;
    backward_.dout = memory_.Random(kType, rows, 9);
    backward_.dq = memory_.Tensor(kType, rows);
    backward_.dk = memory_.Tensor(kType, keys);
    backward_.dv = memory_.Tensor(kType, keys);
    backward_.drelative = memory_.Tensor(kType, tables);
    backward_.dcontent_bias = memory_.Tensor(DType::kFloat32, {width});
    backward_.dposition_bias = memory_.Tensor(DType::kFloat32, {width});
    backward_.dsegment_bias = memory_.Tensor(DType::kFloat32, {width});
    backward_.dsegment_embedding = memory_.Tensor(DType::kFloat32, {2, width});
    backward_.workspace =
        memory_.Tensor(DType::kUint8, {backend_.AttentionBackwardWorkspaceBytes(s, kType)});
  }

  // Ahead, as a network's layers share it.
  void SetPlan() {
    const int64_t bytes = backend_.AttentionPlanBytes(in_.shape, kType);
    if (bytes == 0) return;
    plan_ = {.shape = in_.shape,
             .dtype = kType,
             .min_distance = in_.min_distance,
             .rows = in_.rows,
             .keys = in_.keys,
             .is_for_backward = true,
             .memory = memory_.Tensor(DType::kUint8, {bytes})};
    backend_.PlanAttention(plan_, {});
    forward_.in.plan = backward_.in.plan = &plan_;
  }

  kernels::Backend& backend_;
  DeviceMemory memory_;
  kernels::AttentionInputs in_;
  kernels::AttentionPlan plan_;
  kernels::AttentionForwardArgs forward_;
  kernels::AttentionBackwardArgs backward_;
};

// Milliseconds of each pass of one backward, by name.
class PassTimes {
 public:
  PassTimes(kernels::Backend& backend, Timer& timer) : backend_(backend), timer_(timer) {}

  std::map<std::string, double> Of(const kernels::AttentionBackwardArgs& args) {
    passes_.clear();
    kernels::cuda::AttentionPassObserver() = [this](const char* pass, StreamView) { Mark(pass); };
    backend_.AttentionBackward(args, {});
    kernels::cuda::AttentionPassObserver() = nullptr;
    backend_.Synchronize({});
    std::map<std::string, double> times;
    for (size_t i = 0; i + 1 < passes_.size(); ++i)
      times[passes_[i]] += timer_.Milliseconds(static_cast<int>(i));
    return times;
  }

 private:
  void Mark(const char* pass) {
    const auto next = static_cast<int>(passes_.size());
    if (next > 0) timer_.End(next - 1);
    if (*pass != '\0') timer_.Begin(next);
    passes_.emplace_back(pass);
  }

  kernels::Backend& backend_;
  Timer& timer_;
  std::vector<std::string> passes_;
};

// Products that each pass runs, in units: a recomputes two of forward's and has three of its own.
double UnitsOf(const std::string& pass) {
  if (pass == "a") return 5;
  if (pass == "keys") return 2;
  return pass == "distances" ? 1 : 0;
}

void MeasurePasses(Bench& bench,
                   const std::vector<std::unique_ptr<Problem>>& problems,
                   const std::string& suffix,
                   const std::string& shape,
                   double unit) {
  PassTimes passes(bench.backend(), bench.timer());
  std::map<std::string, std::vector<double>> samples;
  for (int sample = 0; sample < bench.samples(); ++sample) {
    const Problem& problem = *problems[static_cast<size_t>(sample) % problems.size()];
    for (const auto& [pass, ms] : passes.Of(problem.backward()))
      samples[pass].push_back(ms * 1e-3);
  }
  for (const auto& [pass, seconds] : samples) {
    Case what{absl::StrCat("attention_backward_", pass, suffix),
              shape,
              Work::kFlops,
              UnitsOf(pass) * unit};
    what.value_is_time = what.work == 0;
    bench.Report(what, Summarise(seconds), 1);
  }
}

}  // namespace

void MeasureAttention(Bench& bench, const XlnetSize& size, int64_t batch, double dropout) {
  const double unit = AttentionUnit(size) * static_cast<double>(batch);
  const double bytes = 4 * kBytesOfBf16 * static_cast<double>(batch * size.rows() * size.model_dim);
  const int sets = Bench::SetsFor(bytes);
  std::vector<std::unique_ptr<Problem>> problems;
  for (int set = 0; set < sets; ++set)
    problems.push_back(std::make_unique<Problem>(bench, size, batch, dropout));
  const std::string suffix = batch == kGoalBatch ? "" : absl::StrCat("_b", batch);
  const std::string shape = absl::StrCat("B",
                                         batch,
                                         " H",
                                         size.heads,
                                         " D",
                                         size.head_dim(),
                                         " C",
                                         size.length,
                                         " Q",
                                         size.targets,
                                         " K",
                                         size.keys());
  if (!problems.front()->plan().memory.is_null()) {
    Case plan{"attention_plan" + suffix, shape};
    plan.value_is_time = true;
    bench.Measure(plan, sets, [&](int set) {
      bench.backend().PlanAttention(problems[static_cast<size_t>(set)]->plan(), {});
    });
  }
  bench.Measure({"attention_forward" + suffix, shape, Work::kFlops, kForwardUnits * unit},
                sets,
                [&](int set) {
                  bench.backend().AttentionForward(problems[static_cast<size_t>(set)]->forward(),
                                                   {});
                });
  bench.Measure({"attention_backward" + suffix, shape, Work::kFlops, kBackwardUnits * unit},
                sets,
                [&](int set) {
                  bench.backend().AttentionBackward(problems[static_cast<size_t>(set)]->backward(),
                                                    {});
                });
  MeasurePasses(bench, problems, suffix, shape, unit);
}

}  // namespace anyorder::bench
