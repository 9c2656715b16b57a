#include "tests/kernels/windowed_diagonals.h"

#include <algorithm>
#include <vector>

#include "core/base/check.h"

namespace anyorder::kernels::testing {
namespace {

class Loop final : public Diagonals {
 public:
  Loop(int64_t length, int64_t dim, const Band& band) : length_(length), dim_(dim), band_(band) {}

  int64_t count() const override { return int64_t{band_.left} + band_.right + 1; }
  int64_t offset(int64_t w) const override { return (band_.left - w) * band_.stride; }

  void Score(const float* a, const float* b, float* band) override {
    ForDiagonals([&](int64_t i, int64_t j, int64_t at) {
      float sum = 0;
      for (int64_t d = 0; d < dim_; ++d)
        sum += a[i * dim_ + d] * b[j * dim_ + d];
      band[at] = sum;
    });
  }
  void AddRows(const float* band, const float* b, float* out) override {
    ForDiagonals([&](int64_t i, int64_t j, int64_t at) {
      for (int64_t d = 0; d < dim_; ++d)
        out[i * dim_ + d] += band[at] * b[j * dim_ + d];
    });
  }
  void AddColumns(const float* band, const float* a, float* out) override {
    ForDiagonals([&](int64_t i, int64_t j, int64_t at) {
      for (int64_t d = 0; d < dim_; ++d)
        out[j * dim_ + d] += band[at] * a[i * dim_ + d];
    });
  }

 private:
  template <typename Function>
  void ForDiagonals(const Function& function) const {
    for (int64_t w = 0; w < count(); ++w) {
      const int64_t begin = std::max<int64_t>(0, offset(w));
      const int64_t end = std::min(length_, length_ + offset(w));
      for (int64_t i = begin; i < end; ++i)
        function(i, i - offset(w), i * count() + w);
    }
  }

  const int64_t length_;
  const int64_t dim_;
  const Band band_;
};

// Rows in blocks of the one-sided window w. Scores: blocks of 2w rows and keys that overlap by w,
// all kept until the band is cut out of them. Products: each block of rows against the three blocks
// of keys around it.
class Chunks final : public Diagonals {
 public:
  Chunks(int64_t length, int64_t dim, int64_t window, Backend& backend)
      : length_(length), dim_(dim), window_(window), backend_(backend) {}

  int64_t count() const override { return 2 * window_ + 1; }
  int64_t offset(int64_t w) const override { return window_ - w; }

  void Score(const float* a, const float* b, float* band) override {
    const int64_t side = 2 * window_;
    const int64_t chunks = length_ / window_ - 1;
    std::vector<float> scores(static_cast<size_t>(chunks * side * side));
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t begin = c * window_ * dim_;
      backend_.Gemm({.a = ConstTensorView(a + begin, {side, dim_}),
                     .b = ConstTensorView(b + begin, {side, dim_}),
                     .transpose_b = true,
                     .bias = {},
                     .c = TensorView(scores.data() + c * side * side, {side, side})},
                    {});
    }
    for (int64_t i = 0; i < length_; ++i) {
      const int64_t first = std::max<int64_t>(0, i - window_);
      const int64_t last = std::min(length_ - 1, i + window_);
      for (int64_t j = first; j <= last; ++j) {
        // The chunk that begins with the earlier one's block; the last block begins none.
        const int64_t c = std::min(std::min(i, j) / window_, chunks - 1);
        const int64_t row = i - c * window_;
        const int64_t column = j - c * window_;
        band[i * count() + j - i + window_] =
            scores[static_cast<size_t>((c * side + row) * side + column)];
      }
    }
  }

  void AddRows(const float* band, const float* b, float* out) override {
    const std::vector<float> blocks = Expand(band);
    std::vector<float> padded(static_cast<size_t>((length_ + 2 * window_) * dim_));
    std::copy_n(b, length_ * dim_, padded.data() + window_ * dim_);
    for (int64_t r = 0; r < length_ / window_; ++r) {
      backend_.Gemm({.a = Block(blocks, r),
                     .b = ConstTensorView(padded.data() + r * window_ * dim_, {3 * window_, dim_}),
                     .bias = {},
                     .beta = 1.0f,
                     .c = TensorView(out + r * window_ * dim_, {window_, dim_})},
                    {});
    }
  }

  void AddColumns(const float* band, const float* a, float* out) override {
    const std::vector<float> blocks = Expand(band);
    std::vector<float> padded(static_cast<size_t>((length_ + 2 * window_) * dim_));
    for (int64_t r = 0; r < length_ / window_; ++r) {
      backend_.Gemm({.a = Block(blocks, r),
                     .b = ConstTensorView(a + r * window_ * dim_, {window_, dim_}),
                     .transpose_a = true,
                     .bias = {},
                     .beta = 1.0f,
                     .c = TensorView(padded.data() + r * window_ * dim_, {3 * window_, dim_})},
                    {});
    }
    for (int64_t i = 0; i < length_ * dim_; ++i)
      out[i] += padded[static_cast<size_t>(window_ * dim_ + i)];
  }

 private:
  // [T / w][w][3 w]: column of key j in block r is j - (r - 1) w.
  std::vector<float> Expand(const float* band) const {
    std::vector<float> blocks(static_cast<size_t>(length_ * 3 * window_));
    for (int64_t i = 0; i < length_; ++i)
      std::copy_n(band + i * count(), count(), blocks.data() + i * 3 * window_ + i % window_);
    return blocks;
  }
  ConstTensorView Block(const std::vector<float>& blocks, int64_t r) const {
    return ConstTensorView(blocks.data() + r * window_ * 3 * window_, {window_, 3 * window_});
  }

  const int64_t length_;
  const int64_t dim_;
  const int64_t window_;
  Backend& backend_;
};

}  // namespace

std::unique_ptr<Diagonals> MakeLoopDiagonals(int64_t length, int64_t dim, const Band& band) {
  ANYORDER_CHECK(band.left >= 0 && band.right >= 0) << "a band without end has no diagonals";
  return std::make_unique<Loop>(length, dim, band);
}

std::unique_ptr<Diagonals> MakeChunkDiagonals(int64_t length, int64_t dim, const Band& band,
                                              Backend& backend) {
  const int64_t window = band.left;
  if (band.stride != 1 || window < 1 || band.right != window || length % (2 * window) != 0)
    return nullptr;
  return std::make_unique<Chunks>(length, dim, window, backend);
}

}  // namespace anyorder::kernels::testing
