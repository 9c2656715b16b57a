// Loop, chunks, dense and the product's kernel beside masked attention over all pairs in double,
// with the visibility rule written from the paper.

#include "tests/kernels/windowed_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace anyorder::kernels::testing {
namespace {

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
    for (int64_t i = 0; i < shape_.length; ++i)
      AddRow(i, r);
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
      for (int64_t d = 0; d < shape_.head_dim; ++d)
        score += double{q[d]} * At(k, j, d);
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

Results RunWay(WindowedAttention& way, const WindowedShape& shape, const Tensors& x) {
  std::vector<float> found[Results::kCount];
  Results results = SizedResults(shape);
  for (int i = 0; i < Results::kCount; ++i)
    found[i].assign(results.values[i].size(), std::nanf(""));
  const WindowedInputs in = {x.q.data(),        x.k.data(),        x.v.data(),
                             x.global_q.data(), x.global_k.data(), x.global_v.data()};
  way.Forward(in, found[0].data());
  way.Backward(in, found[0].data(), x.dout.data(),
               {found[1].data(), found[2].data(), found[3].data(), found[4].data(), found[5].data(),
                found[6].data()});
  for (int i = 0; i < Results::kCount; ++i)
    results.values[i].assign(found[i].begin(), found[i].end());
  return results;
}

// 1e-5 of the tensor's largest value: the agreement that the paper's successors ask of fp32.
void ExpectAgreement(const Results& found, const Results& exact, const std::string& what) {
  for (int i = 0; i < Results::kCount; ++i) {
    double largest = 0;
    for (const double value : exact.values[i])
      largest = std::max(largest, std::abs(value));
    for (size_t at = 0; at < exact.values[i].size(); ++at)
      ASSERT_NEAR(found.values[i][at], exact.values[i][at], 1e-5 * largest)
          << what << ": " << Results::Name(i) << " at " << at;
  }
}

struct Case {
  std::string name;
  WindowedShape shape;
  bool in_chunks = true;
};

std::vector<Case> Cases() {
  return {
      {"local_only", {192, 32, {16, 16, 1}, 0, false}},
      {"one_global_slot", {192, 32, {16, 16, 1}, 1, false}},
      {"as_many_global_slots_as_a_window", {128, 8, {4, 4, 1}, 8, false}},
      {"the_smallest_window", {96, 16, {1, 1, 1}, 2, false}},
      {"the_window_is_the_text", {96, 16, {48, 48, 1}, 1, false}},
      {"dilated", {160, 16, {5, 5, 3}, 2, false}, false},
      {"more_to_the_left", {160, 16, {9, 3, 1}, 1, false}, false},
      {"causal", {160, 16, {20, 0, 1}, 0, true}, false},
      {"causal_dilated_with_global_slots", {160, 16, {7, 0, 2}, 3, true}, false},
      {"a_length_that_no_block_divides", {157, 16, {8, 8, 1}, 1, false}, false},
  };
}

TEST(WindowedAttention, AllWaysGiveWhatMaskedDenseAttentionGives) {
  const std::unique_ptr<Backend> backend = *MakeCpuBackend({});
  for (const Case& c : Cases()) {
    const Tensors tensors = MakeTensors(c.shape);
    const Results exact = Oracle(c.shape, tensors).Compute();
    for (const Way way : {Way::kDense, Way::kLoop, Way::kChunks, Way::kFused}) {
      const std::unique_ptr<WindowedAttention> attention =
          MakeWindowedAttention(way, c.shape, *backend);
      const bool can = way != Way::kChunks || c.in_chunks;
      ASSERT_EQ(attention != nullptr, can) << c.name;
      if (!can) continue;
      const std::string what = c.name + ", way " + std::to_string(static_cast<int>(way));
      ExpectAgreement(RunWay(*attention, c.shape, tensors), exact, what);
    }
  }
}

}  // namespace
}  // namespace anyorder::kernels::testing
