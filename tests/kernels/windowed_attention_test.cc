// Longformer's attention (Beltagy et al. 2020, section 3) by the product's kernel, with windows as
// data and a second call for global rows, beside masked attention over all pairs in double, with
// the visibility rule written from the paper. One lane and one head; the first `num_global` slots
// are global: local rows share one softmax over global keys and window, global rows see everything
// through projections of their own. T slots, D head size, G global slots.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tests/kernels/attention_bounds.h"

namespace anyorder::kernels::testing {
namespace {

struct WindowedShape {
  int64_t length = 0;    // T
  int64_t head_dim = 0;  // D
  Band band;             // limited on both sides
  int64_t num_global = 0;
  bool causal = false;  // no row sees a later key, global or not
};

// One of the two calls of the kernel, as core/network/layers/attention_block makes them: that of
// global rows, which windows do not bind, or that of all rows, of which the global ones see
// nothing. Each has projections of its own.
AttentionData<float, float> MakeCall(const WindowedShape& shape, bool is_global) {
  AttentionCase c;
  c.biases = c.segments = false;
  Slots rows, keys;
  for (int32_t i = 0; i < shape.length; ++i) {
    const int32_t rank = shape.causal ? i : 0;
    const bool is_global_slot = i < shape.num_global;
    const bool is_blind = is_global_slot && !is_global;
    keys.Add(i, rank, -1, 0, 0, is_global_slot);
    if (is_global && !is_global_slot) continue;
    rows.Add(i, is_blind ? std::numeric_limits<int32_t>::min() : rank, -1, 0, 0, is_global_slot);
  }
  c.AddLane(rows, {}, keys);
  c.Finish(/*heads=*/1, shape.head_dim, /*tables=*/0);
  if (!is_global) c.bands = {shape.band};
  return MakeData<float, float>(c, is_global ? 4 : 1);
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

// Adds row i's softmax, forward and backward, to the exact results of a call.
void AddRow(const WindowedShape& shape, int64_t i, AttentionData<double, double>* x) {
  const auto place = [&](int64_t row, int64_t d) { return row * shape.head_dim + d; };
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  std::vector<double> p(shape.length), dp(shape.length);
  double sum = 0;
  for (int64_t j = 0; j < shape.length; ++j) {
    if (!Sees(shape, i, j)) continue;
    double score = 0;
    for (int64_t d = 0; d < shape.head_dim; ++d) score += x->q[place(i, d)] * x->k[place(j, d)];
    sum += p[j] = std::exp(scale * score);
  }
  double delta = 0;
  for (int64_t j = 0; j < shape.length; ++j) {
    p[j] /= sum;
    for (int64_t d = 0; d < shape.head_dim; ++d) {
      x->out[place(i, d)] += p[j] * x->v[place(j, d)];
      dp[j] += x->dout[place(i, d)] * x->v[place(j, d)];
    }
    delta += p[j] * dp[j];
  }
  for (int64_t j = 0; j < shape.length; ++j) {
    const double ds = scale * p[j] * (dp[j] - delta);
    for (int64_t d = 0; d < shape.head_dim; ++d) {
      x->dq[place(i, d)] += ds * x->k[place(j, d)];
      x->dk[place(j, d)] += ds * x->q[place(i, d)];
      x->dv[place(j, d)] += p[j] * x->dout[place(i, d)];
    }
  }
}

// 1e-5 of the tensor's largest value: the agreement that the paper's successors ask of fp32.
void ExpectAgreement(const std::vector<float>& found, const std::vector<double>& exact) {
  double largest = 0;
  for (const double value : exact) largest = std::max(largest, std::abs(value));
  for (size_t at = 0; at < exact.size(); ++at)
    ASSERT_NEAR(found[at], exact[at], 1e-5 * largest) << "at " << at;
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
  for (const auto& [name, shape] : Cases()) {
    for (const bool is_global : {false, true}) {
      if (is_global && shape.num_global == 0) continue;
      SCOPED_TRACE(name + (is_global ? ", global rows" : ", local rows"));
      AttentionData<float, float> call = MakeCall(shape, is_global);
      AttentionData<double, double> exact = InDouble(call);
      const int64_t end = call.shape.content_rows;
      for (int64_t i = is_global ? 0 : shape.num_global; i < end; ++i) AddRow(shape, i, &exact);
      RunOn(*backend, &call);
      const auto expect = [](const char* result, const auto& found, const auto& right) {
        SCOPED_TRACE(result);
        if (result != std::string_view("lse")) ExpectAgreement(found, right);
      };
      VisitResults(expect, call, exact);
    }
  }
}

}  // namespace
}  // namespace anyorder::kernels::testing
