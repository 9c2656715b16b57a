// Losses of heads against the reference, and against formulas of their own.

#include <algorithm>

#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

using test::ExpectRounded;
using test::Gamma;
using test::HostTensor;
using test::kU;
using test::RandomTensor;

struct Head {
  HeadLossKind kind = HeadLossKind::kSoftmax;
  HostTensor logits;
  std::vector<uint8_t> valid;  // empty: null
  std::vector<int32_t> labels;
  std::vector<float> targets;
  std::vector<float> row_weights;
  double smoothing = 0;

  int64_t rows() const { return logits.shape()[0]; }
  int64_t columns() const { return logits.shape()[1]; }
  bool IsValid(int64_t i) const { return valid.empty() || valid[i] != 0; }
};
struct HeadResult {
  HostTensor loss, dlogits;
};

HeadLossArgs ArgsOf(const Head& in, HeadResult& result) {
  const auto data = [](const auto& values) { return values.empty() ? nullptr : values.data(); };
  return {in.kind,         in.logits.view(),   data(in.valid),
          data(in.labels), data(in.targets),   in.row_weights.data(),
          in.smoothing,    result.loss.view(), result.dlogits.view()};
}

HeadResult RunHead(Backend& backend, const Head& in) {
  HeadResult result{HostTensor(GradientDType(in.logits.dtype()), {in.rows()}),
                    RandomTensor(in.logits.dtype(), in.logits.shape(), 9)};  // overwritten
  backend.HeadLoss(ArgsOf(in, result), {});
  return result;
}

Head Widened(Head in) {
  in.logits = Wide(in.logits);
  return in;
}

// Every third row has no weight, and a label and logits that must not be looked at.
Head MakeHead(HeadLossKind kind, DType dtype, int64_t rows, int64_t columns, bool masks,
              double smoothing, double deviation) {
  Head in{.kind = kind, .smoothing = smoothing};
  in.logits = RandomTensor(dtype, {rows, columns}, 1, deviation);
  const int64_t classes = kind == HeadLossKind::kSoftmax ? columns : 2;
  in.labels = test::RandomIds(rows, classes, 2);
  if (masks) in.valid.assign(rows * columns, 1);
  for (int64_t r = 0; r < rows; ++r) {
    in.targets.push_back(static_cast<float>(r % 7) - 2.5f);
    in.row_weights.push_back(r % 3 == 2 ? 0.0f : 0.5f + 0.25f * static_cast<float>(r % 4));
    // All valid, about two thirds, the label alone.
    for (int64_t c = 0; masks && r % 4 != 0 && c < columns; ++c)
      in.valid[r * columns + c] = c == in.labels[r] || (r % 4 != 1 && (r + 5 * c) % 3 != 0);
    for (int64_t c = 0; c < columns; ++c) {
      const bool is_read = in.row_weights[r] != 0 && in.IsValid(r * columns + c);
      if (!is_read) in.logits.Set(r * columns + c, c % 2 == 0 ? double{NAN} : double{INFINITY});
    }
    if (in.row_weights[r] == 0) in.labels[r] = -7;
  }
  return in;
}

struct HeadBounds {
  std::vector<double> loss, dlogits;
};

// Of one row of softmax. z = logit - largest rounds once; exp is good to 4 u, so a term is off by
// the factor (4 + |z|) u, and the sum, of at most 512 terms one after the other, by the mean of
// that and Gamma(512). The loss is log(sum) - (1 - e) z[label] - e / n * sum z, and a probability a
// term over the sum.
void AddSoftmaxBounds(const Head& in, int64_t row, HeadBounds* bounds) {
  std::vector<int64_t> valid;
  double largest = -INFINITY;
  for (int64_t i = row * in.columns(); i < (row + 1) * in.columns(); ++i) {
    if (!in.IsValid(i)) continue;
    valid.push_back(i);
    largest = std::max(largest, in.logits.At(i));
  }
  const auto n = static_cast<double>(valid.size());
  double sum = 0, below = 0, error = 0;
  for (const int64_t i : valid) {
    const double z = std::fabs(in.logits.At(i) - largest);
    sum += std::exp(-z);
    below += z;
    error += std::exp(-z) * (4 + z) * kU;
  }
  const double share = in.smoothing / n;
  const double sum_error = error / sum + Gamma(std::min(n, 512.0));
  const int64_t label = row * in.columns() + in.labels[row];
  const double z_label = std::fabs(in.logits.At(label) - largest);
  bounds->loss[row] = sum_error + 4 * kU * std::log(sum) + 6 * kU * z_label +
                      share * below * (Gamma(std::min(n, 512.0)) + 7 * kU);
  const double weight = in.row_weights[row];
  for (const int64_t i : valid) {
    const double z = std::fabs(in.logits.At(i) - largest);
    const double p = std::exp(-z) / sum;
    const double target = (i == label ? 1 - in.smoothing : 0.0) + share;
    const double error_of_p = p * ((4 + z) * kU + sum_error + 2 * kU);
    bounds->dlogits[i] =
        weight * (error_of_p + 4 * kU * target + 2 * kU * (std::fabs(p - target) + error_of_p));
  }
}

// Of one logit: exp to 4 u and log1p to 2 u, a sum and a quotient, the product with the weight; a
// difference, its square, doubled.
HeadBounds BoundsOf(const Head& in, const HeadResult& exact) {
  HeadBounds bounds{std::vector<double>(in.rows()), std::vector<double>(in.logits.size())};
  for (int64_t r = 0; r < in.rows(); ++r) {
    if (in.row_weights[r] == 0) continue;
    if (in.kind == HeadLossKind::kSoftmax) {
      AddSoftmaxBounds(in, r, &bounds);
    } else {
      bounds.loss[r] = 8 * kU * exact.loss.At(r);
      bounds.dlogits[r] = 8 * kU * std::fabs(exact.dlogits.At(r));
    }
  }
  return bounds;
}

void CheckHead(Backend& backend, Backend& reference, const Head& in) {
  const HeadResult actual = RunHead(backend, in);
  const HeadResult exact = RunHead(reference, Widened(in));
  const HeadBounds bounds = BoundsOf(in, exact);
  ExpectRounded(actual.loss.Values(), exact.loss.Values(), bounds.loss, actual.loss.dtype(),
                "loss");
  ExpectRounded(actual.dlogits.Values(), exact.dlogits.Values(), bounds.dlogits, in.logits.dtype(),
                "dlogits");
  for (int64_t i = 0; i < in.logits.size(); ++i) {
    const bool has_none = in.row_weights[i / in.columns()] == 0 || !in.IsValid(i);
    ASSERT_TRUE(!has_none || actual.dlogits.At(i) == 0) << i;
  }

  HeadResult evaluation{actual.loss, {}};
  backend.HeadLoss(ArgsOf(in, evaluation), {});
  EXPECT_TRUE(evaluation.loss.SameBits(actual.loss)) << "evaluation differs";

  Head in_place = in;
  HeadResult over{actual.loss, {}};
  HeadLossArgs args = ArgsOf(in_place, over);
  args.dlogits = in_place.logits.view();
  backend.HeadLoss(args, {});
  EXPECT_TRUE(over.loss.SameBits(actual.loss) && in_place.logits.SameBits(actual.dlogits))
      << "gradients over the logits differ";
}

constexpr HeadLossKind kOneLogit[] = {HeadLossKind::kSigmoid, HeadLossKind::kSquaredError};

TEST_P(BackendTest, HeadLossOfChoicesMatchesReference) {
  // Few rows of many columns, and many of few.
  for (const MatrixSize size : {MatrixSize{1, 1}, MatrixSize{5, 3}, MatrixSize{7, 33},
                                MatrixSize{5, 4096}, MatrixSize{403, 4}}) {
    for (const bool masks : {false, true}) {
      for (const double smoothing : {0.0, 0.1}) {
        SCOPED_TRACE(std::to_string(size.rows) + "x" + std::to_string(size.columns));
        CheckHead(backend(), reference(),
                  MakeHead(HeadLossKind::kSoftmax, dtype(), size.rows, size.columns, masks,
                           smoothing, 3));
      }
    }
  }
}

TEST_P(BackendTest, HeadLossOfOneLogitMatchesReference) {
  for (const HeadLossKind kind : kOneLogit) {
    for (const int64_t rows : {1, 6, 403}) {
      for (const double deviation : {3.0, 1e4})
        CheckHead(backend(), reference(), MakeHead(kind, dtype(), rows, 1, false, 0, deviation));
    }
  }
}

TEST_P(BackendTest, HeadLossSurvivesLargeLogits) {
  for (const bool masks : {false, true}) {
    for (const double smoothing : {0.0, 0.1})
      CheckHead(backend(), reference(),
                MakeHead(HeadLossKind::kSoftmax, dtype(), 12, 7, masks, smoothing, 1e4));
  }
  Head in{.logits = HostTensor(dtype(), {2, 2}), .labels = {0, 1}, .row_weights = {1, 1}};
  for (int64_t i = 0; i < 4; ++i) in.logits.Set(i, i % 2 == 0 ? 8192 : -8192);
  const HeadResult choice = RunHead(backend(), in);
  EXPECT_EQ(choice.loss.Values(), (std::vector<double>{0, 16384}));
  EXPECT_EQ(choice.dlogits.Values(), (std::vector<double>{0, 0, 1, -1}));
  in.kind = HeadLossKind::kSigmoid;
  in.logits = HostTensor(dtype(), {2, 1});
  for (int64_t i = 0; i < 2; ++i) in.logits.Set(i, 8192);
  const HeadResult answer = RunHead(backend(), in);
  EXPECT_EQ(answer.loss.Values(), (std::vector<double>{8192, 0}));
  EXPECT_EQ(answer.dlogits.Values(), (std::vector<double>{1, 0}));
}

// Alone, a label is certain, whatever its logit and the smoothing; so is nothing's gradient.
TEST_P(BackendTest, HeadLossOfOneValidColumnIsNothing) {
  for (const double logit : {-1e4, 0.0, 1e4}) {
    Head in{.logits = RandomTensor(dtype(), {3, 5}, 1),
            .valid = std::vector<uint8_t>(15, 0),
            .labels = {0, 3, 4},
            .row_weights = {1, 2, 3},
            .smoothing = 0.1};
    for (int64_t r = 0; r < 3; ++r) {
      in.valid[r * 5 + in.labels[r]] = 1;
      in.logits.Set(r * 5 + in.labels[r], logit);
    }
    const HeadResult result = RunHead(backend(), in);
    EXPECT_EQ(result.loss.Values(), std::vector<double>(3, 0.0));
    EXPECT_EQ(result.dlogits.Values(), std::vector<double>(15, 0.0));
  }
}

TEST_P(BackendTest, HeadLossShowsWhatIsNotFinite) {
  for (const HeadLossKind kind : {HeadLossKind::kSoftmax, kOneLogit[0], kOneLogit[1]}) {
    const int64_t columns = kind == HeadLossKind::kSoftmax ? 70 : 1;
    for (const int64_t column : {int64_t{0}, columns - 1}) {
      Head in = MakeHead(kind, dtype(), 8, columns, false, 0, 3);
      in.logits.Set(4 * columns + column, double{NAN});
      const HeadResult result = RunHead(backend(), in);
      for (int64_t r = 0; r < 8; ++r) EXPECT_EQ(std::isnan(result.loss.At(r)), r == 4) << r;
    }
  }
  // A choice that is ruled out by its logit is no error.
  Head in = MakeHead(HeadLossKind::kSoftmax, dtype(), 1, 3, false, 0, 1);
  in.labels = {1};
  in.logits.Set(2, -double{INFINITY});
  EXPECT_TRUE(std::isfinite(RunHead(backend(), in).loss.At(0)));
}

TEST_P(BackendTest, HeadLossOfNoRowsIsNothing) {
  const HostTensor logits(dtype(), {0, 3});
  HostTensor loss(gradient_dtype(), {0});
  backend().HeadLoss({.logits = logits.view(), .loss = loss.view()}, {});
}

}  // namespace

void CheckHeadLoss(Backend& backend, Backend& reference, const MatrixSize& size, DType dtype) {
  for (const double smoothing : {0.0, 0.1})
    CheckHead(backend, reference,
              MakeHead(HeadLossKind::kSoftmax, dtype, size.rows, size.columns, true, smoothing, 3));
  for (const HeadLossKind kind : kOneLogit)
    CheckHead(backend, reference, MakeHead(kind, dtype, size.rows, 1, false, 0, 3));
}

}  // namespace anyorder::kernels
