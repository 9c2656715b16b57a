#include "tests/kernels/windowed_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "tests/kernels/windowed_diagonals.h"

namespace anyorder::kernels::testing {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Softmax of `count` scores in place; hidden ones become 0.
void Softmax(float* scores, int64_t count, float scale) {
  const float largest = *std::max_element(scores, scores + count);
  double sum = 0;
  for (int64_t j = 0; j < count; ++j) {
    scores[j] = largest == kHidden ? 0.0f : std::exp(scale * (scores[j] - largest));
    sum += scores[j];
  }
  const auto factor = static_cast<float>(sum > 0 ? 1 / sum : 0);
  for (int64_t j = 0; j < count; ++j)
    scores[j] *= factor;
}

float Dot(const float* a, const float* b, int64_t count) {
  float sum = 0;
  for (int64_t d = 0; d < count; ++d)
    sum += a[d] * b[d];
  return sum;
}

// dp becomes the gradient of the unscaled scores: scale * p * (dp - delta).
void SoftmaxBackward(const float* p, float* dp, int64_t count, float delta, float scale) {
  for (int64_t j = 0; j < count; ++j)
    dp[j] = scale * p[j] * (dp[j] - delta);
}

// Rows of their own over all keys, scores kept whole: global rows of every way, and all rows of the
// dense one.
class WholeRows {
 public:
  WholeRows(const WindowedShape& shape, int64_t rows, Backend& backend)
      : shape_(shape), rows_(rows), backend_(backend) {}

  template <typename Visible>
  void Forward(const float* q, const float* k, const float* v, const Visible& visible, float* out) {
    if (rows_ == 0) return;
    p_.resize(static_cast<size_t>(rows_ * shape_.length));
    Product(Rows(q), Keys(k), /*transpose_b=*/true, Scores(p_));
    for (int64_t i = 0; i < rows_; ++i) {
      float* const row = p_.data() + i * shape_.length;
      for (int64_t j = 0; j < shape_.length; ++j)
        if (!visible(i, j)) row[j] = kHidden;
      Softmax(row, shape_.length, shape_.scale());
    }
    Product(Scores(p_), Keys(v), /*transpose_b=*/false, TensorView(out, RowShape()));
  }

  struct Operands {
    const float *q, *k, *v, *out, *dout;
    float *dq, *dk, *dv;
  };
  void Backward(const Operands& x) {
    const size_t keys = static_cast<size_t>(shape_.length * shape_.head_dim);
    if (rows_ == 0) {
      std::fill_n(x.dk, keys, 0.0f);
      std::fill_n(x.dv, keys, 0.0f);
      return;
    }
    std::vector<float> ds(p_.size());
    Product(Rows(x.dout), Keys(x.v), /*transpose_b=*/true, Scores(ds));
    for (int64_t i = 0; i < rows_; ++i) {
      const int64_t at = i * shape_.head_dim;
      const float delta = Dot(x.dout + at, x.out + at, shape_.head_dim);
      const int64_t begin = i * shape_.length;
      SoftmaxBackward(p_.data() + begin, ds.data() + begin, shape_.length, delta, shape_.scale());
    }
    Product(Scores(ds), Keys(x.k), /*transpose_b=*/false, TensorView(x.dq, RowShape()));
    TransposedProduct(Scores(ds), Rows(x.q), x.dk);
    TransposedProduct(Scores(p_), Rows(x.dout), x.dv);
  }

 private:
  Shape RowShape() const { return {rows_, shape_.head_dim}; }
  ConstTensorView Rows(const float* x) const { return ConstTensorView(x, RowShape()); }
  ConstTensorView Keys(const float* x) const {
    return ConstTensorView(x, {shape_.length, shape_.head_dim});
  }
  TensorView Scores(std::vector<float>& x) const {
    return TensorView(x.data(), {rows_, shape_.length});
  }
  void Product(ConstTensorView a, ConstTensorView b, bool transpose_b, TensorView c) {
    backend_.Gemm({.a = a, .b = b, .transpose_b = transpose_b, .bias = {}, .c = c}, {});
  }
  void TransposedProduct(ConstTensorView a, ConstTensorView b, float* c) {
    const TensorView view(c, {shape_.length, shape_.head_dim});
    backend_.Gemm({.a = a, .b = b, .transpose_a = true, .bias = {}, .c = view}, {});
  }

  const WindowedShape shape_;
  const int64_t rows_;
  Backend& backend_;
  std::vector<float> p_;  // [rows, T]
};

// The global rows, which all ways but the fused one treat alike.
class WithGlobalRows : public WindowedAttention {
 public:
  WithGlobalRows(const WindowedShape& shape, Backend& backend)
      : shape_(shape), globals_(shape, shape.num_global, backend) {}

  void Forward(const WindowedInputs& in, float* out) final {
    LocalForward(in, out);
    globals_.Forward(
        in.global_q, in.global_k, in.global_v,
        [this](int64_t i, int64_t j) { return shape_.IsVisibleToGlobal(i, j); }, out);
  }

  void Backward(const WindowedInputs& in, const float* out, const float* dout,
                const WindowedGradients& g) final {
    LocalBackward(in, out, dout, g);
    globals_.Backward(
        {in.global_q, in.global_k, in.global_v, out, dout, g.dglobal_q, g.dglobal_k, g.dglobal_v});
  }

 protected:
  virtual void LocalForward(const WindowedInputs& in, float* out) = 0;
  virtual void LocalBackward(const WindowedInputs& in, const float* out, const float* dout,
                             const WindowedGradients& g) = 0;
  const WindowedShape shape_;

 private:
  WholeRows globals_;
};

class Dense final : public WithGlobalRows {
 public:
  Dense(const WindowedShape& shape, Backend& backend)
      : WithGlobalRows(shape, backend), rows_(shape, shape.length, backend) {}

 private:
  void LocalForward(const WindowedInputs& in, float* out) override {
    rows_.Forward(
        in.q, in.k, in.v, [this](int64_t i, int64_t j) { return shape_.IsVisible(i, j); }, out);
  }
  void LocalBackward(const WindowedInputs& in, const float* out, const float* dout,
                     const WindowedGradients& g) override {
    // A global row's probabilities are 0 here, and so are its gradients.
    rows_.Backward({in.q, in.k, in.v, out, dout, g.dq, g.dk, g.dv});
  }

  WholeRows rows_;
};

// Loop and chunks: probabilities by diagonal [T, W] and of global keys [T, G].
class Banded final : public WithGlobalRows {
 public:
  Banded(const WindowedShape& shape, std::unique_ptr<Diagonals> diagonals, Backend& backend)
      : WithGlobalRows(shape, backend), diagonals_(std::move(diagonals)) {}

 private:
  int64_t width() const { return diagonals_->count(); }
  int64_t dim() const { return shape_.head_dim; }

  void LocalForward(const WindowedInputs& in, float* out) override {
    band_.resize(static_cast<size_t>(shape_.length * width()));
    columns_.resize(static_cast<size_t>(shape_.length * shape_.num_global));
    diagonals_->Score(in.q, in.k, band_.data());
    std::vector<float> row(static_cast<size_t>(width() + shape_.num_global));
    for (int64_t i = 0; i < shape_.length; ++i) {
      for (int64_t g = 0; g < shape_.num_global; ++g) {
        row[static_cast<size_t>(g)] =
            shape_.IsVisible(i, g) ? Dot(in.q + i * dim(), in.k + g * dim(), dim()) : kHidden;
      }
      float* const local = row.data() + shape_.num_global;
      for (int64_t w = 0; w < width(); ++w) {
        const int64_t j = i - diagonals_->offset(w);
        const bool is_seen = j >= shape_.num_global && j < shape_.length && shape_.IsVisible(i, j);
        local[w] = is_seen ? band_[static_cast<size_t>(i * width() + w)] : kHidden;
      }
      Softmax(row.data(), static_cast<int64_t>(row.size()), shape_.scale());
      std::copy_n(row.data(), shape_.num_global, columns_.data() + i * shape_.num_global);
      std::copy_n(local, width(), band_.data() + i * width());
    }
    std::fill_n(out, shape_.length * dim(), 0.0f);
    diagonals_->AddRows(band_.data(), in.v, out);
    ForGlobalKeys([&](int64_t i, int64_t g, int64_t at) {
      Axpy(columns_[static_cast<size_t>(at)], in.v + g * dim(), out + i * dim());
    });
  }

  void LocalBackward(const WindowedInputs& in, const float* out, const float* dout,
                     const WindowedGradients& g) override {
    std::vector<float> band(band_.size()), columns(columns_.size());
    diagonals_->Score(dout, in.v, band.data());
    ForGlobalKeys([&](int64_t i, int64_t key, int64_t at) {
      columns[static_cast<size_t>(at)] = Dot(dout + i * dim(), in.v + key * dim(), dim());
    });
    for (int64_t i = 0; i < shape_.length; ++i) {
      const float delta = Dot(dout + i * dim(), out + i * dim(), dim());
      const int64_t local = i * width();
      const int64_t global = i * shape_.num_global;
      SoftmaxBackward(band_.data() + local, band.data() + local, width(), delta, shape_.scale());
      SoftmaxBackward(columns_.data() + global, columns.data() + global, shape_.num_global, delta,
                      shape_.scale());
    }
    for (float* const gradient : {g.dq, g.dk, g.dv})
      std::fill_n(gradient, shape_.length * dim(), 0.0f);
    diagonals_->AddRows(band.data(), in.k, g.dq);
    diagonals_->AddColumns(band.data(), in.q, g.dk);
    diagonals_->AddColumns(band_.data(), dout, g.dv);
    ForGlobalKeys([&](int64_t i, int64_t key, int64_t at) {
      Axpy(columns[static_cast<size_t>(at)], in.k + key * dim(), g.dq + i * dim());
      Axpy(columns[static_cast<size_t>(at)], in.q + i * dim(), g.dk + key * dim());
      Axpy(columns_[static_cast<size_t>(at)], dout + i * dim(), g.dv + key * dim());
    });
  }

  template <typename Function>
  void ForGlobalKeys(const Function& function) const {
    for (int64_t i = 0; i < shape_.length; ++i)
      for (int64_t g = 0; g < shape_.num_global; ++g)
        function(i, g, i * shape_.num_global + g);
  }
  void Axpy(float a, const float* x, float* y) const {
    for (int64_t d = 0; d < dim(); ++d)
      y[d] += a * x[d];
  }

  std::unique_ptr<Diagonals> diagonals_;
  std::vector<float> band_;     // [T, W]
  std::vector<float> columns_;  // [T, G]
};

// Two calls of the kernel, as core/network/layers/global_attention does.
class Fused final : public WindowedAttention {
 public:
  Fused(const WindowedShape& shape, Backend& backend) : shape_(shape), backend_(backend) {
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
    dq_.resize(static_cast<size_t>(shape.num_global * shape.head_dim));
    // Windows bind no global row.
    local_ = Call(shape.length, lim_, &shape_.band);
    global_ = Call(shape.num_global, rank_, nullptr);
    const AttentionShape largest = local_.shape;
    workspace_.resize(
        static_cast<size_t>(backend.AttentionBackwardWorkspaceBytes(largest, DType::kFloat32)));
  }

  void Forward(const WindowedInputs& in, float* out) override {
    Bind(local_, in.q, in.k, in.v);
    backend_.AttentionForward({.in = local_, .out = Rows(local_, out), .lse = View(lse_)}, {});
    if (shape_.num_global == 0) return;
    Bind(global_, in.global_q, in.global_k, in.global_v);
    backend_.AttentionForward({.in = global_, .out = Rows(global_, out), .lse = View(global_lse_)},
                              {});
  }

  void Backward(const WindowedInputs& in, const float* out, const float* dout,
                const WindowedGradients& g) override {
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
  std::vector<float> lse_, global_lse_, dq_;
  AttentionInputs local_, global_;
};

}  // namespace

float WindowedShape::scale() const {
  return 1.0f / std::sqrt(static_cast<float>(head_dim));
}

bool WindowedShape::IsVisible(int64_t i, int64_t j) const {
  if (i < num_global || (causal && j > i)) return false;
  return j < num_global || band.Contains(i - j);
}

std::vector<float> NormalValues(int64_t count, uint64_t seed) {
  RandomStream random(seed, RandomPurpose::kInit, 0, 0);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& value : x)
    value = static_cast<float>(random.Normal());
  return x;
}

std::unique_ptr<WindowedAttention> MakeWindowedAttention(Way way, const WindowedShape& shape,
                                                         Backend& backend) {
  std::unique_ptr<Diagonals> diagonals;
  switch (way) {
    case Way::kDense:
      return std::make_unique<Dense>(shape, backend);
    case Way::kFused:
      return std::make_unique<Fused>(shape, backend);
    case Way::kLoop:
      diagonals = MakeLoopDiagonals(shape.length, shape.head_dim, shape.band);
      break;
    case Way::kChunks:
      if (!shape.causal)
        diagonals = MakeChunkDiagonals(shape.length, shape.head_dim, shape.band, backend);
      break;
  }
  if (diagonals == nullptr) return nullptr;
  return std::make_unique<Banded>(shape, std::move(diagonals), backend);
}

}  // namespace anyorder::kernels::testing
