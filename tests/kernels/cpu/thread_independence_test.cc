// The CPU backend's results have the same bits for 1, 2 and 3 threads: every operation, at sizes
// that are cut into several pieces.

#include <gtest/gtest.h>

#include <functional>

#include "kernels/backend.h"
#include "tests/testing/host_tensor.h"

namespace anyorder::kernels {
namespace {

using test::HostTensor;
using test::RandomTensor;

// An operation: from a backend to everything it wrote.
using Operation = std::function<std::vector<HostTensor>(Backend&)>;

class ThreadIndependenceTest : public ::testing::TestWithParam<DType> {
 protected:
  DType dtype() const { return GetParam(); }

  void Check(const Operation& operation) {
    const auto one = MakeCpuBackend({.num_threads = 1}).value();
    const std::vector<HostTensor> expected = operation(*one);
    for (const int threads : {2, 3}) {
      const auto backend = MakeCpuBackend({.num_threads = threads}).value();
      const std::vector<HostTensor> actual = operation(*backend);
      for (size_t i = 0; i < actual.size(); ++i)
        EXPECT_TRUE(actual[i].SameBits(expected[i])) << threads << " threads, output " << i;
    }
  }

  HostTensor Random(Shape shape, uint64_t seed) const { return RandomTensor(dtype(), shape, seed); }
  HostTensor Empty(Shape shape) const { return HostTensor(dtype(), shape); }
  static HostTensor Gradient(Shape shape) { return HostTensor(DType::kFloat32, shape); }

  static constexpr int64_t kRows = 700;
  static constexpr int64_t kColumns = 130;
  const std::vector<int32_t> row_ids_ = test::RowIds(kRows);
  const Dropout dropout_ = MakeDropout(1, 2, 3, 0.1);
};

INSTANTIATE_TEST_SUITE_P(DTypes, ThreadIndependenceTest,
                         ::testing::Values(DType::kFloat32, DType::kBFloat16),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(ThreadIndependenceTest, Gemm) {
  struct Size {
    int64_t m, n, k;
  };
  // The last: few blocks and a long sum, where a library would split the sum among its threads.
  for (const Size s : {Size{300, 2100, 40}, Size{700, 260, 300}, Size{40, 50, 20000}}) {
    for (const bool transpose : {false, true}) {
      Check([&](Backend& backend) {
        const HostTensor a = Random(transpose ? Shape{s.k, s.m} : Shape{s.m, s.k}, 1);
        const HostTensor b = Random(transpose ? Shape{s.n, s.k} : Shape{s.k, s.n}, 2);
        HostTensor c = Gradient({s.m, s.n});
        GemmArgs args = {.a = a.view(), .b = b.view()};
        args.transpose_a = args.transpose_b = transpose;
        args.c = c.view();
        backend.Gemm(args, {});
        return std::vector<HostTensor>{c};
      });
    }
  }
}

TEST_P(ThreadIndependenceTest, ColumnSum) {
  Check([&](Backend& backend) {
    const HostTensor x = Random({kRows, kColumns}, 1);
    HostTensor y = Gradient({kColumns});
    backend.ColumnSum({x.view(), 0.0f, y.view()}, {});
    return std::vector<HostTensor>{y};
  });
}

TEST_P(ThreadIndependenceTest, Pointwise) {
  Check([&](Backend& backend) {
    const HostTensor x = Random({kRows, kColumns}, 1);
    HostTensor y = Empty(x.shape()), dx = Empty(x.shape()), dropped = Empty(x.shape());
    backend.ActivationForward(
        {Activation::kGeluTanh, x.view(), dropout_, row_ids_.data(), y.view()}, {});
    backend.ActivationBackward(
        {Activation::kGeluTanh, x.view(), y.view(), dropout_, row_ids_.data(), dx.view()}, {});
    backend.DropoutApply({x.view(), dropout_, row_ids_.data(), dropped.view()}, {});
    HostTensor gated = Empty(x.shape()), dgate = gated, dfactor = gated;
    backend.ActivationForward(
        {Activation::kSilu, x.view(), dropout_, row_ids_.data(), gated.view(), y.view()}, {});
    backend.ActivationBackward({Activation::kSilu, x.view(), y.view(), dropout_, row_ids_.data(),
                                dgate.view(), y.view(), dfactor.view()},
                               {});
    return std::vector<HostTensor>{y, dx, dropped, gated, dgate, dfactor};
  });
}

TEST_P(ThreadIndependenceTest, LayerNorm) {
  Check([&](Backend& backend) {
    const HostTensor x = Random({kRows, kColumns}, 1);
    const HostTensor gamma = Random({kColumns}, 2);
    HostTensor sum = Empty(x.shape()), y = Empty(x.shape()), dx = y, dresidual = y;
    HostTensor mean = Gradient({kRows}), rstd = mean;
    HostTensor dgamma = Gradient({kColumns}), dbeta = dgamma;
    backend.LayerNormForward({x.view(), x.view(), gamma.view(), gamma.view(), 1e-12f, dropout_,
                              row_ids_.data(), sum.view(), mean.view(), rstd.view(), y.view()},
                             {});
    backend.LayerNormBackward(
        {x.view(), sum.view(), mean.view(), rstd.view(), gamma.view(), dropout_, row_ids_.data(),
         dx.view(), dresidual.view(), dgamma.view(), dbeta.view()},
        {});
    HostTensor rms_y = y, rms_dx = dx, rms_dgamma = dgamma;
    backend.LayerNormForward({x.view(), x.view(), gamma.view(), ConstTensorView(), 1e-5f, dropout_,
                              row_ids_.data(), sum.view(), TensorView(), rstd.view(), rms_y.view()},
                             {});
    backend.LayerNormBackward(
        {x.view(), sum.view(), ConstTensorView(), rstd.view(), gamma.view(), dropout_,
         row_ids_.data(), rms_dx.view(), TensorView(), rms_dgamma.view(), TensorView()},
        {});
    return std::vector<HostTensor>{sum,    mean,  rstd,  y,      dx,        dresidual,
                                   dgamma, dbeta, rms_y, rms_dx, rms_dgamma};
  });
}

TEST_P(ThreadIndependenceTest, Rotary) {
  Check([&](Backend& backend) {
    const HostTensor x = Random({kRows, kColumns}, 1);
    const HostTensor angles = RandomTensor(DType::kFloat32, {kRows, 26}, 2);
    HostTensor y = Empty(x.shape());
    backend.RotaryApply({x.view(), angles.view(), /*inverse=*/true, y.view()}, {});
    return std::vector<HostTensor>{y};
  });
}

TEST_P(ThreadIndependenceTest, Embedding) {
  Check([&](Backend& backend) {
    const HostTensor table = Random({9, kColumns}, 1);
    const auto ids = test::RandomIds(kRows, 9, 2);
    HostTensor y = Empty({kRows, kColumns});
    HostTensor dtable = Gradient({9, kColumns});
    backend.EmbeddingForward({table.view(), ids.data(), 2.0f, dropout_, row_ids_.data(), y.view()},
                             {});
    backend.EmbeddingBackward(
        {y.view(), ids.data(), 2.0f, dropout_, row_ids_.data(), dtable.view()}, {});
    return std::vector<HostTensor>{y, dtable};
  });
}

TEST_P(ThreadIndependenceTest, LinearCrossEntropy) {
  Check([&](Backend& backend) {
    constexpr int64_t kVocab = 3000;
    const HostTensor x = Random({kRows, 16}, 1);
    const HostTensor weight = Random({kVocab, 16}, 2);
    const HostTensor bias = Random({kVocab}, 3);
    const auto labels = test::RandomIds(kRows, kVocab, 4);
    const std::vector<float> row_weights(kRows, 0.5f);
    HostTensor loss = Gradient({kRows}), dx = Empty(x.shape());
    HostTensor dweight = Gradient(weight.shape()), dbias = Gradient({kVocab});
    HostTensor workspace(DType::kUint8,
                         {backend.LinearCrossEntropyWorkspaceBytes(kRows, 16, kVocab, dtype())});
    backend.LinearCrossEntropy(
        {x.view(), weight.view(), bias.view(), labels.data(), row_weights.data(), loss.view(),
         dx.view(), dweight.view(), dbias.view(), workspace.view()},
        {});
    return std::vector<HostTensor>{loss, dx, dweight, dbias};
  });
}

TEST_P(ThreadIndependenceTest, HeadLoss) {
  for (const HeadLossKind kind : {HeadLossKind::kSoftmax, HeadLossKind::kSigmoid}) {
    Check([&](Backend& backend) {
      // Enough rows of one logit for several pieces.
      const bool is_softmax = kind == HeadLossKind::kSoftmax;
      const int64_t rows = is_softmax ? kRows : 40000;
      const HostTensor logits = Random({rows, is_softmax ? kColumns : 1}, 1);
      const auto labels = test::RandomIds(rows, 2, 2);
      const std::vector<float> row_weights(rows, 0.5f);
      HostTensor loss = Gradient({rows}), dlogits = Empty(logits.shape());
      backend.HeadLoss({.kind = kind,
                        .logits = logits.view(),
                        .labels = labels.data(),
                        .row_weights = row_weights.data(),
                        .loss = loss.view(),
                        .dlogits = dlogits.view()},
                       {});
      return std::vector<HostTensor>{loss, dlogits};
    });
  }
}

TEST_P(ThreadIndependenceTest, FlatRanges) {
  Check([&](Backend& backend) {
    constexpr int64_t kCount = 200003;
    const HostTensor grad = RandomTensor(DType::kFloat32, {kCount}, 1);
    HostTensor master = grad, m = grad, v = Absolute(grad), weights = Empty({kCount});
    AdamWArgs adamw = {.grad = grad.view(),
                       .master = master.view(),
                       .m = m.view(),
                       .v = v.view(),
                       .weights = weights.view(),
                       .learning_rate = 0.01};
    backend.AdamW(adamw, {});
    HostTensor sums(DType::kFloat64, {(kCount + kNormBlockElements - 1) / kNormBlockElements});
    backend.SumOfSquares(grad.view(), sums.view(), {});
    HostTensor added = Empty({kCount}), cast = Empty({kCount});
    backend.Add(weights.view(), weights.view(), added.view(), {});
    backend.Cast(grad.view(), cast.view(), {});
    return std::vector<HostTensor>{master, m, v, weights, sums, added, cast};
  });
}

TEST_P(ThreadIndependenceTest, Rows) {
  Check([&](Backend& backend) {
    const HostTensor x = Random({kRows, kColumns}, 1);
    std::vector<int32_t> backwards(kRows);
    for (int64_t r = 0; r < kRows; ++r) backwards[r] = static_cast<int32_t>(kRows - 1 - r);
    HostTensor gathered = Empty(x.shape()), copied = Empty(x.shape()), scattered = x;
    backend.GatherRows({x.view(), backwards.data(), kRows, false, gathered.view()}, {});
    backend.GatherRows({x.view(), backwards.data(), kRows, true, scattered.view()}, {});
    backend.CopyRows({x.view(), 0, kColumns, copied.view(), 0, kColumns, kRows, kColumns}, {});
    return std::vector<HostTensor>{gathered, copied, scattered};
  });
}

}  // namespace
}  // namespace anyorder::kernels
