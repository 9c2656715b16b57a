// Embeddings and the linear cross-entropy against the reference.

#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

using test::ExpectClose;
using test::ExpectRounded;
using test::Gamma;
using test::HostTensor;
using test::kU;
using test::RandomTensor;

void CheckForward(Backend& backend, Backend& reference, const MatrixSize& size, DType dtype) {
  const HostTensor table = RandomTensor(dtype, {13, size.columns}, 1);
  const auto ids = test::RandomIds(size.rows, 13, 2);
  const auto row_ids = test::RowIds(size.rows);
  const auto run = [&](Backend& on, const HostTensor& of) {
    HostTensor y(of.dtype(), {size.rows, size.columns});
    on.EmbeddingForward(
        {of.view(), ids.data(), 1.7f, MakeDropout(11, 5, 3, 0.1), row_ids.data(), y.view()}, {});
    return y.Values();
  };
  const auto expected = run(reference, Wide(table));
  std::vector<double> error(expected.size());
  for (size_t i = 0; i < error.size(); ++i) error[i] = 2 * kU * std::fabs(expected[i]);
  ExpectRounded(run(backend, table), expected, error, dtype, "embedding");
}

// Bound: a sum of at most rows + 1 terms, each a product of three; the reference sums magnitudes.
void CheckBackward(Backend& backend, Backend& reference, const MatrixSize& size, DType dtype,
                   int64_t vocab, const Dropout& dropout) {
  const HostTensor dy = RandomTensor(dtype, {size.rows, size.columns}, 1);
  const HostTensor old = RandomTensor(GradientDType(dtype), {vocab, size.columns}, 2);
  const auto ids = test::RandomIds(size.rows, vocab, 2);
  const auto row_ids = test::RowIds(size.rows);
  const auto run = [&](Backend& on, const HostTensor& of, HostTensor dtable) {
    on.EmbeddingBackward({of.view(), ids.data(), 1.7f, dropout, row_ids.data(), dtable.view()}, {});
    return dtable.Values();
  };
  const auto magnitude = run(reference, Absolute(Wide(dy)), Absolute(Wide(old)));
  ExpectClose(run(backend, dy, old), run(reference, Wide(dy), Wide(old)),
              test::Scaled(magnitude, Gamma(size.rows + 3)), "embedding gradient");
}

TEST_P(BackendTest, EmbeddingForwardMatchesReference) {
  for (const MatrixSize& size : kMatrixSizes) CheckForward(backend(), reference(), size, dtype());
}

TEST_P(BackendTest, EmbeddingBackwardMatchesReference) {
  for (const MatrixSize& size : kMatrixSizes) {
    for (const int64_t vocab : {1, 13}) {
      for (const bool dropped : {false, true})
        CheckBackward(backend(), reference(), size, dtype(), vocab, TestDropout(dropped));
    }
  }
}

// Whole numbers add up without rounding: the reference's bits, whatever the order. One id has all
// rows, or all but every 61st: runs that begin and end anywhere and are many times as long as any
// piece of work; the table's other rows keep their bits.
TEST_P(BackendTest, EmbeddingBackwardAddsLongRunsExactly) {
  constexpr int64_t kVocab = 70;
  for (const int64_t rows : {63, 64, 65, 700}) {
    for (const int64_t columns : {5, 16}) {
      for (const bool all : {true, false}) {
        HostTensor dy(dtype(), {rows, columns});
        for (int64_t i = 0; i < dy.size(); ++i) dy.Set(i, static_cast<double>(i * 7 % 17 - 8));
        std::vector<int32_t> ids(rows, 31);
        for (int64_t r = 0; !all && r < rows; r += 61) ids[r] = static_cast<int32_t>(r % kVocab);
        HostTensor actual(gradient_dtype(), {kVocab, columns});
        for (int64_t i = 0; i < actual.size(); ++i) actual.Set(i, static_cast<double>(i % 5));
        HostTensor expected = actual;
        backend().EmbeddingBackward(
            {dy.view(), ids.data(), 2.0f, Dropout{}, nullptr, actual.view()}, {});
        reference().EmbeddingBackward(
            {dy.view(), ids.data(), 2.0f, Dropout{}, nullptr, expected.view()}, {});
        EXPECT_TRUE(actual.SameBits(expected)) << rows << " x " << columns;
      }
    }
  }
}

TEST_P(BackendTest, EmbeddingBackwardOfNoRowsAddsNothing) {
  HostTensor dtable = RandomTensor(gradient_dtype(), {3, 8}, 1);
  const HostTensor before = dtable;
  const TensorView none(dtable.view().raw(), dtype(), {0, 8});
  backend().EmbeddingBackward({none, nullptr, 1.0f, Dropout{}, nullptr, dtable.view()}, {});
  EXPECT_TRUE(dtable.SameBits(before));
}

struct CrossEntropy {
  HostTensor x, weight, bias, dweight, dbias;
  std::vector<int32_t> labels;
  std::vector<float> row_weights;
};
struct CrossEntropyResult {
  HostTensor loss, dx, dweight, dbias;
};

CrossEntropyResult RunCrossEntropy(Backend& backend, const CrossEntropy& in, bool gradients) {
  const DType dtype = in.x.dtype();
  const int64_t rows = in.x.shape()[0];
  const int64_t columns = in.x.shape()[1];
  const int64_t vocab = in.weight.shape()[0];
  CrossEntropyResult result;
  result.loss = HostTensor(GradientDType(dtype), {rows});
  if (gradients) {
    result.dx = HostTensor(dtype, in.x.shape());
    result.dweight = in.dweight;
    result.dbias = in.bias.size() > 0 ? in.dbias : HostTensor();
  }
  const int64_t bytes = backend.LinearCrossEntropyWorkspaceBytes(rows, columns, vocab, dtype);
  HostTensor workspace(DType::kUint8, {bytes + 1});
  backend.LinearCrossEntropy({in.x.view(), in.weight.view(), in.bias.view(), in.labels.data(),
                              in.row_weights.data(), result.loss.view(), result.dx.view(),
                              result.dweight.view(), result.dbias.view(), workspace.view()},
                             {});
  return result;
}

CrossEntropy MakeCrossEntropy(DType dtype, int64_t rows, int64_t columns, int64_t vocab,
                              bool bias) {
  CrossEntropy in;
  const DType gradient = GradientDType(dtype);
  in.x = RandomTensor(dtype, {rows, columns}, 1);
  in.weight = RandomTensor(dtype, {vocab, columns}, 2, 2 / std::sqrt(static_cast<double>(columns)));
  if (bias) in.bias = RandomTensor(dtype, {vocab}, 3);
  in.dweight = RandomTensor(gradient, {vocab, columns}, 4, 0.01);
  in.dbias = RandomTensor(gradient, {vocab}, 5, 0.01);
  in.labels = test::RandomIds(rows, vocab, 6);
  in.row_weights.resize(rows);
  for (int64_t r = 0; r < rows; ++r)
    in.row_weights[r] = r % 3 == 2 ? 0.0f : 0.5f + 0.25f * static_cast<float>(r % 4);
  return in;
}

CrossEntropy Widened(const CrossEntropy& in) {
  return {Wide(in.x),     Wide(in.weight), Wide(in.bias), Wide(in.dweight),
          Wide(in.dbias), in.labels,       in.row_weights};
}

// Bounds, per row. A logit is a product of length `columns`: off by e = Gamma(columns + 2) |x| .
// |w|. That moves the log-sum-exp by at most max e; exp is good to 4 u, its argument rounds by u
// |logit - max|, and the sum of `vocab` terms adds Gamma(512) within a block and nothing visible
// between blocks. A probability is then off by the factor `relative`, twice the logits' error and
// what the sum and its own exp add. Its gradient is weight (p - target), rounded to the operands'
// dtype where that is bf16; dx and dweight are products of it.
void CheckCrossEntropy(const CrossEntropy& in, const CrossEntropyResult& actual,
                       const CrossEntropyResult& exact) {
  const DType dtype = in.x.dtype();
  const int64_t rows = in.x.shape()[0];
  const int64_t columns = in.x.shape()[1];
  const int64_t vocab = in.weight.shape()[0];
  const double u_operand = dtype == DType::kBFloat16 ? test::UnitRoundoff(dtype) : 0;
  std::vector<double> loss_bound(rows, 0.0);
  std::vector<double> dx_error(rows * columns, 0.0);
  std::vector<double> dweight_bound(vocab * columns);
  std::vector<double> dbias_bound(vocab);
  for (int64_t i = 0; i < vocab * columns; ++i)
    dweight_bound[i] = Gamma(rows + 2) * std::fabs(in.dweight.At(i));
  for (int64_t j = 0; j < vocab; ++j) dbias_bound[j] = Gamma(rows + 2) * std::fabs(in.dbias.At(j));
  for (int64_t r = 0; r < rows; ++r) {
    const double weight = in.row_weights[r];
    if (weight == 0) continue;
    std::vector<double> logits(vocab);
    double logit_error = 0;
    double largest = 0;
    for (int64_t j = 0; j < vocab; ++j) {
      double magnitude = in.bias.size() > 0 ? std::fabs(in.bias.At(j)) : 0;
      logits[j] = in.bias.size() > 0 ? in.bias.At(j) : 0;
      for (int64_t c = 0; c < columns; ++c) {
        const double product = in.x.At(r * columns + c) * in.weight.At(j * columns + c);
        logits[j] += product;
        magnitude += std::fabs(product);
      }
      logit_error = std::max(logit_error, Gamma(columns + 2) * magnitude);
      largest = std::max(largest, std::fabs(logits[j]));
    }
    const double sum_error = 8 * kU + 2 * kU * largest + Gamma(std::min<double>(vocab, 512));
    const double relative = 2 * (2 * logit_error + sum_error + 8 * kU);
    loss_bound[r] = 2 * logit_error + sum_error + 2 * kU * (largest + std::fabs(exact.loss.At(r)));
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    for (int64_t j = 0; j < vocab; ++j) {
      const double p = std::exp(logits[j]) / sum;
      const double target = j == in.labels[r] ? 1 : 0;
      const double gradient = weight * std::fabs(p - target);
      const double gradient_error = weight * (p * relative + kU * (p + target));
      const double error = gradient_error + u_operand * (gradient + gradient_error);
      dbias_bound[j] += gradient_error + Gamma(rows + 2) * gradient;
      for (int64_t c = 0; c < columns; ++c) {
        const double w = std::fabs(in.weight.At(j * columns + c));
        const double x = std::fabs(in.x.At(r * columns + c));
        dx_error[r * columns + c] += w * (error + Gamma(vocab + 2) * gradient);
        dweight_bound[j * columns + c] += x * (error + Gamma(rows + 2) * gradient);
      }
    }
  }
  ExpectClose(actual.loss.Values(), exact.loss.Values(), loss_bound, "loss");
  ExpectRounded(actual.dx.Values(), exact.dx.Values(), dx_error, dtype, "dx");
  ExpectClose(actual.dweight.Values(), exact.dweight.Values(), dweight_bound, "dweight");
  if (in.bias.size() > 0) {
    ExpectClose(actual.dbias.Values(), exact.dbias.Values(), dbias_bound, "dbias");
  }
}

TEST_P(BackendTest, LinearCrossEntropyMatchesReference) {
  struct Size {
    int64_t rows, columns, vocab;
  };
  for (const Size size : {Size{1, 1, 1}, Size{3, 7, 2}, Size{85, 16, 100}, Size{33, 9, 257},
                          Size{5, 24, 1500}, Size{150, 3, 40}, Size{2, 3, 2051}}) {
    for (const bool bias : {false, true}) {
      SCOPED_TRACE(std::to_string(size.rows) + "x" + std::to_string(size.vocab));
      const CrossEntropy in = MakeCrossEntropy(dtype(), size.rows, size.columns, size.vocab, bias);
      const CrossEntropyResult actual = RunCrossEntropy(backend(), in, true);
      CheckCrossEntropy(in, actual, RunCrossEntropy(reference(), Widened(in), true));
      EXPECT_TRUE(RunCrossEntropy(backend(), in, false).loss.SameBits(actual.loss))
          << "evaluation differs";
    }
  }
}

// More logits than the workspace holds at a time: of many words, and of many rows.
TEST_P(BackendTest, LinearCrossEntropyMatchesReferenceInSeveralChunks) {
  CheckCrossEntropy(backend(), reference(), {3100, 2}, 5, dtype());
  // Where the logits of so many rows are held at once, they are no other case than fewer.
  if (backend().LinearCrossEntropyWorkspaceBytes(250, 2, 70000, dtype()) < 250 * 70000 * 4)
    CheckCrossEntropy(backend(), reference(), {250, 2}, 70000, dtype());
}

TEST_P(BackendTest, LinearCrossEntropyHoldsNotAllLogits) {
  const auto bytes = [&](int64_t rows) {
    return backend().LinearCrossEntropyWorkspaceBytes(rows, 64, 70000, dtype());
  };
  EXPECT_EQ(bytes(1'000'000), bytes(2'000'000));
  EXPECT_LE(bytes(1'000'000), int64_t{400} << 20);
  // LLaDA's vocabulary over a sequence of its context: all logits would be 1.9 GiB.
  EXPECT_LE(backend().LinearCrossEntropyWorkspaceBytes(4096, 4096, 126464, dtype()),
            int64_t{256} << 20);
}

TEST_P(BackendTest, LinearCrossEntropyOfNoRowsAddsNothing) {
  const CrossEntropy in = MakeCrossEntropy(dtype(), 0, 8, 50, true);
  const CrossEntropyResult result = RunCrossEntropy(backend(), in, true);
  EXPECT_TRUE(result.dweight.SameBits(in.dweight));
  EXPECT_TRUE(result.dbias.SameBits(in.dbias));
}

// As of frozen weights.
TEST_P(BackendTest, LinearCrossEntropyLeavesOutGradientsThatAreNotAskedFor) {
  const CrossEntropy in = MakeCrossEntropy(dtype(), 33, 9, 257, true);
  const CrossEntropyResult all = RunCrossEntropy(backend(), in, true);
  for (const bool weight_alone : {false, true}) {
    CrossEntropy part = in;
    (weight_alone ? part.dbias : part.dweight) = HostTensor();
    const CrossEntropyResult result = RunCrossEntropy(backend(), part, true);
    EXPECT_TRUE(result.loss.SameBits(all.loss) && result.dx.SameBits(all.dx));
    EXPECT_TRUE(weight_alone ? result.dweight.SameBits(all.dweight)
                             : result.dbias.SameBits(all.dbias));
  }
}

TEST_P(BackendTest, RowsOfWeightZeroHaveNoLossAndNoGradient) {
  CrossEntropy in = MakeCrossEntropy(dtype(), 4, 8, 50, true);
  in.row_weights.assign(4, 0.0f);
  // Their labels must not even be looked up.
  in.labels.assign(4, -1);
  const CrossEntropyResult result = RunCrossEntropy(backend(), in, true);
  for (int64_t r = 0; r < 4; ++r) EXPECT_EQ(result.loss.At(r), 0);
  for (int64_t i = 0; i < result.dx.size(); ++i) EXPECT_EQ(result.dx.At(i), 0);
  EXPECT_TRUE(result.dweight.SameBits(in.dweight));
  EXPECT_TRUE(result.dbias.SameBits(in.dbias));
}

TEST_P(BackendTest, LinearCrossEntropyOfARowThatIsNotANumberIsNan) {
  CrossEntropy in = MakeCrossEntropy(dtype(), 3, 16, 9, false);
  in.row_weights.assign(3, 1.0f);
  in.x.Set(16 + 5, double{NAN});
  for (const bool gradients : {false, true}) {
    const HostTensor loss = RunCrossEntropy(backend(), in, gradients).loss;
    for (int64_t r = 0; r < 3; ++r) EXPECT_EQ(std::isnan(loss.At(r)), r == 1) << "row " << r;
  }
}

// exp of these logits overflows unless the row's maximum is taken out first.
TEST_P(BackendTest, LinearCrossEntropySurvivesLargeLogits) {
  CrossEntropy in = MakeCrossEntropy(dtype(), 2, 1, 3, false);
  in.x.Set(0, 1);
  in.x.Set(1, 1);
  in.weight.Set(0, 1000);
  in.weight.Set(1, 0);
  in.weight.Set(2, -1000);
  in.labels = {0, 1};
  const CrossEntropyResult result = RunCrossEntropy(backend(), in, true);
  EXPECT_EQ(result.loss.At(0), 0);
  EXPECT_EQ(result.loss.At(1), 1000);
}

}  // namespace

void CheckEmbedding(Backend& backend, Backend& reference, const MatrixSize& size, DType dtype) {
  CheckForward(backend, reference, size, dtype);
  CheckBackward(backend, reference, size, dtype, 13, MakeDropout(11, 5, 3, 0.1));
}

void CheckCrossEntropy(Backend& backend, Backend& reference, const MatrixSize& size, int64_t vocab,
                       DType dtype) {
  const CrossEntropy in = MakeCrossEntropy(dtype, size.rows, size.columns, vocab, true);
  CheckCrossEntropy(in, RunCrossEntropy(backend, in, true),
                    RunCrossEntropy(reference, Widened(in), true));
}

}  // namespace anyorder::kernels
