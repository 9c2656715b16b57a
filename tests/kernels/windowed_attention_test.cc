// Longformer's attention (Beltagy et al. 2020, section 3) by the product's kernel, with windows as
// data and a second call for global rows, beside masked attention over all pairs in double, with
// the visibility rule written from the paper. One lane and one head; the first `num_global` slots
// are global: local rows share one softmax over global keys and window, global rows see everything
// through projections of their own. T slots, D head size, G global slots.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/base/philox.h"
#include "kernels/backend.h"

namespace anyorder::kernels::testing {
namespace {

struct WindowedShape {
  int64_t length = 0;    // T
  int64_t head_dim = 0;  // D
  Band band;             // limited on both sides
  int64_t num_global = 0;
  bool causal = false;  // no row sees a later key, global or not

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
};

struct WindowedInputs {
  const float* q = nullptr;         // [T, D], rows of global slots are not used
  const float* k = nullptr;         // [T, D]
  const float* v = nullptr;         // [T, D]
  const float* global_q = nullptr;  // [G, D]
  const float* global_k = nullptr;  // [T, D]
  const float* global_v = nullptr;  // [T, D]
};

struct WindowedGradients {  // shapes as above; all overwritten, unused rows of dq with 0
  float* dq = nullptr;
  float* dk = nullptr;
  float* dv = nullptr;
  float* dglobal_q = nullptr;
  float* dglobal_k = nullptr;
  float* dglobal_v = nullptr;
};

// Two calls of the kernel, as core/network/layers/global_attention does.
class WindowedAttention {
 public:
  WindowedAttention(const WindowedShape& shape, Backend& backend)
      : shape_(shape), backend_(backend) {
    for (int64_t i = 0; i < shape.length; ++i) {
      pos_.push_back(static_cast<int32_t>(i));
      rank_.push_back(shape.causal ? pos_.back() : 0);
      glob_.push_back(i < shape.num_global ? 1 : 0);
      lim_.push_back(glob_.back() != 0 ? std::numeric_limits<int32_t>::min() : rank_.back());
    }
    none_.assign(pos_.size(), -1);
    zeros_.assign(pos_.size(), 0);
    lse_.resize(pos_.size());
    global_lse_.resize(static_cast<size_t>(shape.num_global));
    // Windows bind no global row.
    local_ = Call(shape.length, lim_, &shape_.band);
    global_ = Call(shape.num_global, rank_, nullptr);
    const AttentionShape largest = local_.shape;
    workspace_.resize(
        static_cast<size_t>(backend.AttentionBackwardWorkspaceBytes(largest, DType::kFloat32)));
  }

  void Forward(const WindowedInputs& in, float* out) {
    Bind(local_, in.q, in.k, in.v);
    backend_.AttentionForward({.in = local_, .out = Rows(local_, out), .lse = View(lse_)}, {});
    if (shape_.num_global == 0) return;
    Bind(global_, in.global_q, in.global_k, in.global_v);
    backend_.AttentionForward({.in = global_, .out = Rows(global_, out), .lse = View(global_lse_)},
                              {});
  }

  void Backward(const WindowedInputs& in, const float* out, const float* dout,
                const WindowedGradients& g) {
    Bind(local_, in.q, in.k, in.v);
    Run(local_, out, dout, View(lse_), {g.dq, g.dk, g.dv});
    Bind(global_, in.global_q, in.global_k, in.global_v);
    if (shape_.num_global > 0)
      return Run(global_, out, dout, View(global_lse_), {g.dglobal_q, g.dglobal_k, g.dglobal_v});
    for (float* const gradient : {g.dglobal_k, g.dglobal_v})
      std::fill_n(gradient, shape_.length * shape_.head_dim, 0.0f);
  }

 private:
  struct Outputs {
    float *dq, *dk, *dv;
  };

  AttentionInputs Call(int64_t rows, const std::vector<int32_t>& lim, const Band* band) const {
    AttentionInputs in;
    in.shape.batch_size = 1;
    in.shape.content_rows = rows;
    in.shape.num_keys = shape_.length;
    in.shape.num_heads = 1;
    in.shape.head_dim = shape_.head_dim;
    in.scale = shape_.scale();
    in.rows = {pos_.data(), lim.data(), none_.data(), zeros_.data(), zeros_.data(), glob_.data()};
    in.keys = {pos_.data(), rank_.data(), none_.data(), zeros_.data(), zeros_.data(), glob_.data()};
    in.bands = band;
    return in;
  }
  void Bind(AttentionInputs& in, const float* q, const float* k, const float* v) const {
    in.q = ConstTensorView(q, {in.shape.content_rows, shape_.head_dim});
    in.k = ConstTensorView(k, KeyShape());
    in.v = ConstTensorView(v, KeyShape());
  }
  Shape KeyShape() const { return {shape_.length, shape_.head_dim}; }
  TensorView Rows(const AttentionInputs& in, float* x) const {
    return TensorView(x, {in.shape.content_rows, shape_.head_dim});
  }
  static TensorView View(std::vector<float>& x) {
    return TensorView(x.data(), {static_cast<int64_t>(x.size()), 1});
  }

  void Run(const AttentionInputs& in, const float* out, const float* dout, ConstTensorView lse,
           const Outputs& to) {
    AttentionBackwardArgs args;
    args.in = in;
    args.out = ConstTensorView(out, in.q.shape());
    args.dout = ConstTensorView(dout, in.q.shape());
    args.lse = lse;
    args.dq = Rows(in, to.dq);
    args.dk = TensorView(to.dk, KeyShape());
    args.dv = TensorView(to.dv, KeyShape());
    args.workspace = TensorView(workspace_.data(), {static_cast<int64_t>(workspace_.size())});
    backend_.AttentionBackward(args, {});
  }

  const WindowedShape shape_;
  Backend& backend_;
  std::vector<int32_t> pos_, rank_, lim_, none_, zeros_;
  std::vector<uint8_t> glob_, workspace_;
  std::vector<float> lse_, global_lse_;
  AttentionInputs local_, global_;
};

std::vector<float> NormalValues(int64_t count, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kInit, 0, 0);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = static_cast<float>(random.Normal());
  return x;
}

struct Tensors {
  std::vector<float> q, k, v, global_q, global_k, global_v, dout;
};

Tensors MakeTensors(const WindowedShape& shape) {
  const int64_t whole = shape.length * shape.head_dim;
  return {NormalValues(whole, 1), NormalValues(whole, 2),
          NormalValues(whole, 3), NormalValues(shape.num_global * shape.head_dim, 4),
          NormalValues(whole, 5), NormalValues(whole, 6),
          NormalValues(whole, 7)};
}

// out, dq, dk, dv, dglobal_q, dglobal_k, dglobal_v.
struct Results {
  static constexpr int kCount = 7;
  std::vector<double> values[kCount];
  static const char* Name(int i) {
    static const char* const kNames[] = {"out",       "dq",        "dk",       "dv",
                                         "dglobal_q", "dglobal_k", "dglobal_v"};
    return kNames[i];
  }
};

Results SizedResults(const WindowedShape& shape) {
  Results results;
  for (int i = 0; i < Results::kCount; ++i) {
    const int64_t rows = i == 4 ? shape.num_global : shape.length;
    results.values[i].assign(static_cast<size_t>(rows * shape.head_dim), 0.0);
  }
  return results;
}

// Section 3: a token sees those within the window, every `stride`th of them, and all global tokens;
// a global token sees all.
bool Sees(const WindowedShape& shape, int64_t i, int64_t j) {
  if (shape.causal && j > i) return false;
  if (i < shape.num_global || j < shape.num_global) return true;
  const int64_t gap = std::abs(i - j);
  const int64_t side = j <= i ? shape.band.left : shape.band.right;
  return gap % shape.band.stride == 0 && gap / shape.band.stride <= side;
}

// One row of one softmax, forward and backward, and its sums.
class Oracle {
 public:
  Oracle(const WindowedShape& shape, const Tensors& x) : shape_(shape), x_(x) {}

  Results Compute() const {
    Results r = SizedResults(shape_);
    for (int64_t i = 0; i < shape_.length; ++i) AddRow(i, r);
    return r;
  }

 private:
  void AddRow(int64_t i, Results& r) const {
    const bool global = i < shape_.num_global;
    const float* const q = (global ? x_.global_q : x_.q).data() + i * shape_.head_dim;
    const std::vector<float>& k = global ? x_.global_k : x_.k;
    const std::vector<float>& v = global ? x_.global_v : x_.v;
    const double scale = 1 / std::sqrt(static_cast<double>(shape_.head_dim));
    std::vector<double> p(static_cast<size_t>(shape_.length)), dp(p.size());
    double sum = 0;
    for (int64_t j = 0; j < shape_.length; ++j) {
      if (!Sees(shape_, i, j)) continue;
      double score = 0;
      for (int64_t d = 0; d < shape_.head_dim; ++d) score += double{q[d]} * At(k, j, d);
      sum += p[static_cast<size_t>(j)] = std::exp(scale * score);
    }
    double delta = 0;
    for (int64_t j = 0; j < shape_.length; ++j) {
      p[static_cast<size_t>(j)] /= sum;
      for (int64_t d = 0; d < shape_.head_dim; ++d) {
        r.values[0][Place(i, d)] += p[static_cast<size_t>(j)] * At(v, j, d);
        dp[static_cast<size_t>(j)] += At(x_.dout, i, d) * At(v, j, d);
      }
      delta += p[static_cast<size_t>(j)] * dp[static_cast<size_t>(j)];
    }
    for (int64_t j = 0; j < shape_.length; ++j) {
      const double ds = scale * p[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - delta);
      for (int64_t d = 0; d < shape_.head_dim; ++d) {
        r.values[global ? 4 : 1][Place(i, d)] += ds * At(k, j, d);
        r.values[global ? 5 : 2][Place(j, d)] += ds * q[d];
        r.values[global ? 6 : 3][Place(j, d)] += p[static_cast<size_t>(j)] * At(x_.dout, i, d);
      }
    }
  }
  size_t Place(int64_t i, int64_t d) const { return static_cast<size_t>(i * shape_.head_dim + d); }
  double At(const std::vector<float>& x, int64_t i, int64_t d) const {
    return double{x[Place(i, d)]};
  }

  const WindowedShape& shape_;
  const Tensors& x_;
};

Results RunWindowed(WindowedAttention& attention, const WindowedShape& shape, const Tensors& x) {
  std::vector<float> found[Results::kCount];
  Results results = SizedResults(shape);
  for (int i = 0; i < Results::kCount; ++i)
    found[i].assign(results.values[i].size(), std::nanf(""));
  const WindowedInputs in = {x.q.data(),        x.k.data(),        x.v.data(),
                             x.global_q.data(), x.global_k.data(), x.global_v.data()};
  attention.Forward(in, found[0].data());
  attention.Backward(in, found[0].data(), x.dout.data(),
                     {found[1].data(), found[2].data(), found[3].data(), found[4].data(),
                      found[5].data(), found[6].data()});
  for (int i = 0; i < Results::kCount; ++i)
    results.values[i].assign(found[i].begin(), found[i].end());
  return results;
}

// 1e-5 of the tensor's largest value: the agreement that the paper's successors ask of fp32.
void ExpectAgreement(const Results& found, const Results& exact, const std::string& what) {
  for (int i = 0; i < Results::kCount; ++i) {
    double largest = 0;
    for (const double value : exact.values[i]) largest = std::max(largest, std::abs(value));
    for (size_t at = 0; at < exact.values[i].size(); ++at)
      ASSERT_NEAR(found.values[i][at], exact.values[i][at], 1e-5 * largest)
          << what << ": " << Results::Name(i) << " at " << at;
  }
}

struct Case {
  std::string name;
  WindowedShape shape;
};

std::vector<Case> Cases() {
  return {
      {"local_only", {192, 32, {16, 16, 1}, 0, false}},
      {"one_global_slot", {192, 32, {16, 16, 1}, 1, false}},
      {"as_many_global_slots_as_a_window", {128, 8, {4, 4, 1}, 8, false}},
      {"the_smallest_window", {96, 16, {1, 1, 1}, 2, false}},
      {"the_window_is_the_text", {96, 16, {48, 48, 1}, 1, false}},
      {"dilated", {160, 16, {5, 5, 3}, 2, false}},
      {"more_to_the_left", {160, 16, {9, 3, 1}, 1, false}},
      {"causal", {160, 16, {20, 0, 1}, 0, true}},
      {"causal_dilated_with_global_slots", {160, 16, {7, 0, 2}, 3, true}},
      {"a_length_that_no_block_divides", {157, 16, {8, 8, 1}, 1, false}},
  };
}

TEST(WindowedAttention, GivesWhatMaskedDenseAttentionGives) {
  const std::unique_ptr<Backend> backend = *MakeCpuBackend({});
  for (const Case& c : Cases()) {
    const Tensors tensors = MakeTensors(c.shape);
    WindowedAttention attention(c.shape, *backend);
    ExpectAgreement(RunWindowed(attention, c.shape, tensors), Oracle(c.shape, tensors).Compute(),
                    c.name);
  }
}

}  // namespace
}  // namespace anyorder::kernels::testing
