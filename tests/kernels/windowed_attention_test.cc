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

// q, k and v of all slots, then those that global slots have of their own: [T, D] each but
// global_q, [G, D]. Rows of global slots in the first q are not used.
constexpr const char* kNames[] = {"q", "k", "v", "global_q", "global_k", "global_v"};
constexpr int kInputs = 6;
constexpr int kOwn = 3;  // the first input of global slots' own

struct WindowedShape {
  int64_t length = 0;    // T
  int64_t head_dim = 0;  // D
  Band band;             // limited on both sides
  int64_t num_global = 0;
  bool causal = false;  // no row sees a later key, global or not

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  // Rows of input `i`, one of kNames.
  int64_t rows(int i) const { return i == kOwn ? num_global : length; }
};

struct Inputs {
  std::vector<float> x[kInputs];
  std::vector<float> dout;  // [T, D]
};

template <typename T>
struct Results {
  Results(const WindowedShape& shape, T value) {
    out.assign(static_cast<size_t>(shape.length * shape.head_dim), value);
    for (int i = 0; i < kInputs; ++i)
      dx[i].assign(static_cast<size_t>(shape.rows(i) * shape.head_dim), value);
  }
  std::vector<T> out;
  std::vector<T> dx[kInputs];
};

// Two calls of the kernel, forth and back, as core/network/layers/attention_block does.
class WindowedAttention {
 public:
  WindowedAttention(const WindowedShape& shape, const Inputs& inputs, Backend& backend)
      : shape_(shape), inputs_(inputs), backend_(backend), found_(shape, std::nanf("")) {
    for (int64_t i = 0; i < shape.length; ++i) {
      pos_.push_back(static_cast<int32_t>(i));
      rank_.push_back(shape.causal ? pos_.back() : 0);
      glob_.push_back(i < shape.num_global ? 1 : 0);
      lim_.push_back(glob_.back() != 0 ? std::numeric_limits<int32_t>::min() : rank_.back());
    }
    none_.assign(pos_.size(), -1);
    zeros_.assign(pos_.size(), 0);
    for (std::vector<float>& lse : lse_) lse.resize(pos_.size());
  }

  Results<float> Run() {
    const bool has_global = shape_.num_global > 0;
    Forward(0);
    if (has_global) Forward(kOwn);
    Backward(0);
    if (has_global) Backward(kOwn);
    for (int i = kOwn; i < kInputs && !has_global; ++i)
      std::fill(found_.dx[i].begin(), found_.dx[i].end(), 0.0f);
    return found_;
  }

 private:
  // Of the call whose inputs begin at `first`.
  AttentionInputs Call(int first) const {
    AttentionInputs in;
    in.shape.batch_size = 1;
    in.shape.content_rows = shape_.rows(first);
    in.shape.num_keys = shape_.length;
    in.shape.num_heads = 1;
    in.shape.head_dim = shape_.head_dim;
    in.scale = shape_.scale();
    const std::vector<int32_t>& lim = first == 0 ? lim_ : rank_;
    in.rows = {pos_.data(), lim.data(), none_.data(), zeros_.data(), zeros_.data(), glob_.data()};
    in.keys = {pos_.data(), rank_.data(), none_.data(), zeros_.data(), zeros_.data(), glob_.data()};
    // Windows bind no global row.
    in.bands = first == 0 ? &shape_.band : nullptr;
    in.q = Read(inputs_.x[first], first);
    in.k = Read(inputs_.x[first + 1], first + 1);
    in.v = Read(inputs_.x[first + 2], first + 2);
    return in;
  }
  // As the rows of input `i`.
  ConstTensorView Read(const std::vector<float>& x, int i) const {
    return ConstTensorView(x.data(), {shape_.rows(i), shape_.head_dim});
  }
  TensorView Write(std::vector<float>& x, int i) const {
    return TensorView(x.data(), {shape_.rows(i), shape_.head_dim});
  }
  TensorView Lse(int first) {
    return TensorView(lse_[first == 0 ? 0 : 1].data(), {shape_.rows(first), 1});
  }

  void Forward(int first) {
    backend_.AttentionForward(
        {.in = Call(first), .out = Write(found_.out, first), .lse = Lse(first)}, {});
  }
  void Backward(int first) {
    AttentionBackwardArgs args;
    args.in = Call(first);
    args.out = Read(found_.out, first);
    args.dout = Read(inputs_.dout, first);
    args.lse = Lse(first);
    args.dq = Write(found_.dx[first], first);
    args.dk = Write(found_.dx[first + 1], first + 1);
    args.dv = Write(found_.dx[first + 2], first + 2);
    std::vector<uint8_t> workspace(static_cast<size_t>(
        backend_.AttentionBackwardWorkspaceBytes(args.in.shape, DType::kFloat32)));
    args.workspace = TensorView(workspace.data(), {static_cast<int64_t>(workspace.size())});
    backend_.AttentionBackward(args, {});
  }

  const WindowedShape shape_;
  const Inputs& inputs_;
  Backend& backend_;
  std::vector<int32_t> pos_, rank_, lim_, none_, zeros_;
  std::vector<uint8_t> glob_;
  std::vector<float> lse_[2];
  Results<float> found_;
};

std::vector<float> NormalValues(int64_t count, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kInit, 0, 0);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x) value = static_cast<float>(random.Normal());
  return x;
}

Inputs MakeInputs(const WindowedShape& shape) {
  Inputs inputs;
  for (int i = 0; i < kInputs; ++i)
    inputs.x[i] = NormalValues(shape.rows(i) * shape.head_dim, static_cast<uint64_t>(i + 1));
  inputs.dout = NormalValues(shape.length * shape.head_dim, 7);
  return inputs;
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

// Adds row i's softmax, forward and backward, to the exact results.
void AddRow(const WindowedShape& shape, const Inputs& inputs, int64_t i, Results<double>& r) {
  const int first = i < shape.num_global ? kOwn : 0;
  const auto place = [&](int64_t row, int64_t d) {
    return static_cast<size_t>(row * shape.head_dim + d);
  };
  const auto at = [&](const std::vector<float>& x, int64_t row, int64_t d) {
    return double{x[place(row, d)]};
  };
  const std::vector<float>&q = inputs.x[first], &k = inputs.x[first + 1], &v = inputs.x[first + 2];
  const double scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  std::vector<double> p(static_cast<size_t>(shape.length)), dp(p.size());
  double sum = 0;
  for (int64_t j = 0; j < shape.length; ++j) {
    if (!Sees(shape, i, j)) continue;
    double score = 0;
    for (int64_t d = 0; d < shape.head_dim; ++d) score += at(q, i, d) * at(k, j, d);
    sum += p[static_cast<size_t>(j)] = std::exp(scale * score);
  }
  double delta = 0;
  for (int64_t j = 0; j < shape.length; ++j) {
    p[static_cast<size_t>(j)] /= sum;
    for (int64_t d = 0; d < shape.head_dim; ++d) {
      r.out[place(i, d)] += p[static_cast<size_t>(j)] * at(v, j, d);
      dp[static_cast<size_t>(j)] += at(inputs.dout, i, d) * at(v, j, d);
    }
    delta += p[static_cast<size_t>(j)] * dp[static_cast<size_t>(j)];
  }
  for (int64_t j = 0; j < shape.length; ++j) {
    const double ds = scale * p[static_cast<size_t>(j)] * (dp[static_cast<size_t>(j)] - delta);
    for (int64_t d = 0; d < shape.head_dim; ++d) {
      r.dx[first][place(i, d)] += ds * at(k, j, d);
      r.dx[first + 1][place(j, d)] += ds * at(q, i, d);
      r.dx[first + 2][place(j, d)] += p[static_cast<size_t>(j)] * at(inputs.dout, i, d);
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
    const Inputs inputs = MakeInputs(shape);
    const Results<float> found = WindowedAttention(shape, inputs, *backend).Run();
    Results<double> exact(shape, 0);
    for (int64_t i = 0; i < shape.length; ++i) AddRow(shape, inputs, i, exact);
    SCOPED_TRACE(name);
    ExpectAgreement(found.out, exact.out);
    for (int i = 0; i < kInputs; ++i) {
      SCOPED_TRACE(kNames[i]);
      ExpectAgreement(found.dx[i], exact.dx[i]);
    }
  }
}

}  // namespace
}  // namespace anyorder::kernels::testing
