// LayerNorm and RMSNorm against the reference.
//
// Forward is checked in two steps, so that the rounding of `sum` to its dtype, which moves
// everything after it, is not counted twice: first sum against residual + dropout(x), then mean,
// rstd and y against the reference's LayerNorm of the sum that was stored.

#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

using test::ExpectClose;
using test::ExpectRounded;
using test::Gamma;
using test::HostTensor;
using test::kU;
using test::RandomTensor;

struct Result {
  HostTensor sum, mean, rstd, y;
};

struct Inputs {
  HostTensor x, residual, gamma;
  HostTensor beta;  // empty: RMSNorm
  Dropout dropout;
  std::vector<int32_t> row_ids;

  bool is_rms() const { return beta.size() == 0; }
};

enum class Kind { kLayerNorm, kRmsNorm };
constexpr Kind kKinds[] = {Kind::kLayerNorm, Kind::kRmsNorm};

Result Forward(Backend& backend, const Inputs& in, float epsilon) {
  const DType dtype = in.x.dtype();
  const int64_t rows = in.x.shape()[0];
  const HostTensor of_rows(GradientDType(dtype), {rows});
  Result result{HostTensor(dtype, in.x.shape()), in.is_rms() ? HostTensor() : of_rows, of_rows,
                HostTensor(dtype, in.x.shape())};
  backend.LayerNormForward({in.x.view(), in.residual.view(), in.gamma.view(), in.beta.view(),
                            epsilon, in.dropout, in.row_ids.data(), result.sum.view(),
                            result.mean.view(), result.rstd.view(), result.y.view()},
                           {});
  return result;
}

Inputs Widened(const Inputs& in) {
  return {Wide(in.x), Wide(in.residual), Wide(in.gamma), Wide(in.beta), in.dropout, in.row_ids};
}

// Bounds of mean, rstd and y of one row of n stored sums.
//
// The first mean is off by e0 <= Gamma(n) mean|x|; the corrected one by the rounding of n
// deviations and of its own sum. The variance, a sum of n squares less the square of the
// correction, is off by a factor Gamma(n + 6) of both; rstd by half of that and three roundings.
struct RowBounds {
  double mean;
  double rstd;
  std::vector<double> y;
};
// An RMSNorm's mean square is a sum of n squares, and the quotient is rounded to dtype before it is
// multiplied.
RowBounds RmsBoundsOf(const Inputs& wide, const Result& exact, int64_t row, DType dtype) {
  const int64_t n = wide.x.shape()[1];
  const double rstd = exact.rstd.At(row);
  const double u = test::UnitRoundoff(dtype);
  RowBounds bounds{0, rstd * (0.5 * Gamma(n + 2) + 4 * kU), {}};
  for (int64_t c = 0; c < n; ++c) {
    const double x = std::fabs(wide.x.At(row * n + c));
    const double gamma = std::fabs(wide.gamma.At(c));
    const double xhat = x * (bounds.rstd + kU * rstd);
    const double rounded = xhat + u * (x * rstd + xhat);
    const double y = std::fabs(exact.y.At(row * n + c));
    bounds.y.push_back(gamma * rounded + (kU + u) * (y + gamma * rounded));
  }
  return bounds;
}
RowBounds BoundsOf(const Inputs& wide, const Result& exact, int64_t row, double epsilon,
                   DType dtype) {
  if (wide.is_rms()) return RmsBoundsOf(wide, exact, row, dtype);
  const int64_t n = wide.x.shape()[1];
  const double mean = exact.mean.At(row);
  const double rstd = exact.rstd.At(row);
  double mean_abs = 0;
  double mean_deviation = 0;
  for (int64_t c = 0; c < n; ++c) {
    mean_abs += std::fabs(wide.x.At(row * n + c)) / static_cast<double>(n);
    mean_deviation += std::fabs(wide.x.At(row * n + c) - mean) / static_cast<double>(n);
  }
  const double first = Gamma(n + 1) * mean_abs;
  RowBounds bounds;
  bounds.mean = 2 * kU * (mean_abs + first) + Gamma(n + 2) * (mean_deviation + first);
  const double variance = 1 / (rstd * rstd) - epsilon;
  const double relative =
      Gamma(n + 6) * (std::max(variance, 0.0) + 2 * first * first) * rstd * rstd;
  bounds.rstd = rstd * (0.5 * relative / (1 - relative) + 4 * kU);
  for (int64_t c = 0; c < n; ++c) {
    const double gamma = std::fabs(wide.gamma.At(c));
    const double deviation = std::fabs(wide.x.At(row * n + c) - mean);
    const double xhat = bounds.mean * rstd + deviation * bounds.rstd + 3 * kU * deviation * rstd;
    const double y = exact.y.At(row * n + c);
    const double error = gamma * xhat + 2 * kU * (gamma * deviation * rstd + std::fabs(y));
    bounds.y.push_back(error + test::UnitRoundoff(dtype) * (std::fabs(y) + error));
  }
  return bounds;
}

void CheckForward(Backend& backend, Backend& reference, const Inputs& in, float epsilon,
                  DType dtype) {
  const Result actual = Forward(backend, in, epsilon);
  const Inputs wide = Widened(in);
  const auto sum = Forward(reference, wide, epsilon).sum.Values();
  std::vector<double> sum_error(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) {
    const double residual = in.residual.size() > 0 ? std::fabs(in.residual.At(i)) : 0;
    sum_error[i] = 2 * kU * (residual + 1.2 * std::fabs(in.x.At(i)));
  }
  ExpectRounded(actual.sum.Values(), sum, sum_error, dtype, "sum");

  const Inputs stored{Wide(actual.sum), {}, wide.gamma, wide.beta, {}, {}};
  const Result exact = Forward(reference, stored, epsilon);
  RowBounds all{0, 0, {}};
  std::vector<double> mean_bound;
  std::vector<double> rstd_bound;
  for (int64_t row = 0; row < in.x.shape()[0]; ++row) {
    const RowBounds bounds = BoundsOf(stored, exact, row, epsilon, dtype);
    if (!in.is_rms()) mean_bound.push_back(bounds.mean);
    rstd_bound.push_back(bounds.rstd);
    all.y.insert(all.y.end(), bounds.y.begin(), bounds.y.end());
  }
  ExpectClose(actual.mean.Values(), exact.mean.Values(), mean_bound, "mean");
  ExpectClose(actual.rstd.Values(), exact.rstd.Values(), rstd_bound, "rstd");
  ExpectClose(actual.y.Values(), exact.y.Values(), all.y, "y");
}

Inputs MakeInputs(DType dtype, const MatrixSize& size, bool residual, bool dropout, double shift,
                  Kind kind = Kind::kLayerNorm) {
  Inputs in;
  const Shape shape{size.rows, size.columns};
  in.x = RandomTensor(dtype, shape, 1);
  for (int64_t i = 0; i < in.x.size(); ++i) in.x.Set(i, in.x.At(i) + shift);
  if (residual) in.residual = RandomTensor(dtype, shape, 2);
  in.gamma = RandomTensor(dtype, {size.columns}, 3);
  if (kind == Kind::kLayerNorm) in.beta = RandomTensor(dtype, {size.columns}, 4);
  in.dropout = dropout ? MakeDropout(11, 5, 3, 0.1) : Dropout{};
  in.row_ids = test::RowIds(size.rows);
  return in;
}

TEST_P(BackendTest, LayerNormForwardMatchesReference) {
  for (const MatrixSize& size : kMatrixSizes) {
    for (const bool residual : {false, true}) {
      for (const bool dropout : {false, true}) {
        SCOPED_TRACE(std::to_string(size.rows) + "x" + std::to_string(size.columns));
        for (const Kind kind : kKinds) {
          const Inputs in = MakeInputs(dtype(), size, residual, dropout, 0, kind);
          CheckForward(backend(), reference(), in, kind == Kind::kRmsNorm ? 1e-5f : 1e-12f,
                       dtype());
        }
      }
    }
  }
}

// A mean far above the deviations is where a one-pass variance in fp32 would lose every digit.
TEST_P(BackendTest, LayerNormForwardSurvivesALargeMean) {
  const Inputs in = MakeInputs(dtype(), {5, 700}, false, false, 1000);
  CheckForward(backend(), reference(), in, 1e-12f, dtype());
}

// RMSNorm by its formula, in the order of the released Llama code: to fp32, times 1 / root mean
// square, to dtype, times gamma. On powers of two times small numbers every step is exact but the
// roundings to dtype.
TEST_P(BackendTest, RmsNormRoundsBeforeItMultiplies) {
  Inputs in = {.x = HostTensor(dtype(), {1, 4}), .gamma = HostTensor(dtype(), {4})};
  constexpr double kValues[] = {1, -7, 1, 7};  // mean square 25
  for (int64_t i = 0; i < 4; ++i) {
    in.x.Set(i, kValues[i]);
    in.gamma.Set(i, 1.25);
  }
  const Result result = Forward(backend(), in, 0.0f);
  EXPECT_EQ(result.rstd.At(0), static_cast<double>(0.2f));
  for (int64_t i = 0; i < 4; ++i) {
    HostTensor rounded(dtype(), {1});
    rounded.Set(0, static_cast<double>(static_cast<float>(kValues[i]) * 0.2f));
    rounded.Set(0, rounded.At(0) * 1.25);
    EXPECT_EQ(result.y.At(i), rounded.At(0)) << i;
  }
}

TEST_P(BackendTest, LayerNormOfAConstantRowIsBeta) {
  Inputs in = MakeInputs(dtype(), {2, 64}, false, false, 0);
  for (int64_t i = 0; i < in.x.size(); ++i) in.x.Set(i, 3.0);
  const Result result = Forward(backend(), in, 1e-12f);
  for (int64_t i = 0; i < in.x.size(); ++i) EXPECT_EQ(result.y.At(i), in.beta.At(i % 64));
}

struct Gradients {
  HostTensor dx, dresidual, dgamma, dbeta;
};
Gradients Backward(Backend& backend, const HostTensor& dy, const Result& forward,
                   const HostTensor& gamma, const Dropout& dropout,
                   const std::vector<int32_t>& row_ids, bool residual) {
  const DType dtype = dy.dtype();
  const HostTensor of_columns(GradientDType(dtype), {dy.shape()[1]});
  Gradients gradients{HostTensor(dtype, dy.shape()),
                      residual ? HostTensor(dtype, dy.shape()) : HostTensor(), of_columns,
                      forward.mean.size() == 0 ? HostTensor() : of_columns};
  backend.LayerNormBackward(
      {dy.view(), forward.sum.view(), forward.mean.view(), forward.rstd.view(), gamma.view(),
       dropout, row_ids.data(), gradients.dx.view(), gradients.dresidual.view(),
       gradients.dgamma.view(), gradients.dbeta.view()},
      {});
  return gradients;
}

// Bounds: dsum is three terms, two of them means of n products of up to four roundings each; dgamma
// and dbeta are sums over the rows.
void CheckBackward(Backend& backend, Backend& reference, const MatrixSize& size, DType dtype,
                   Kind kind) {
  // With one column rstd is 1 / sqrt(epsilon): of no use as a scale. The forward tests cover it.
  const float epsilon = size.columns == 1 ? 1.0f : 1e-12f;
  const auto [rows, n] = size;
  const Inputs in = MakeInputs(dtype, size, true, true, 0, kind);
  const Result forward = Forward(backend, in, epsilon);
  const HostTensor dy = RandomTensor(dtype, {rows, n}, 9);
  const Gradients actual = Backward(backend, dy, forward, in.gamma, in.dropout, in.row_ids, true);
  const Gradients bare = Backward(backend, dy, forward, in.gamma, in.dropout, in.row_ids, false);
  EXPECT_TRUE(bare.dx.SameBits(actual.dx)) << "without a residual";
  const Result wide{Wide(forward.sum), Wide(forward.mean), Wide(forward.rstd), Wide(forward.y)};
  const Gradients exact =
      Backward(reference, Wide(dy), wide, Wide(in.gamma), in.dropout, in.row_ids, true);
  std::vector<double> dsum_error(rows * n);
  std::vector<double> dgamma_bound(n, 0.0);
  std::vector<double> dbeta_bound(in.is_rms() ? 0 : n, 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    const double rstd = wide.rstd.At(r);
    double mean_g = 0;
    double mean_g_xhat = 0;
    const auto xhat_of = [&](int64_t c) {
      return std::fabs(wide.sum.At(r * n + c) - (in.is_rms() ? 0 : wide.mean.At(r))) * rstd;
    };
    for (int64_t c = 0; c < n; ++c) {
      const double g = std::fabs(in.gamma.At(c) * dy.At(r * n + c));
      mean_g += g / static_cast<double>(n);
      mean_g_xhat += g * xhat_of(c) / static_cast<double>(n);
      dgamma_bound[c] += Gamma(rows + 4) * std::fabs(dy.At(r * n + c)) * xhat_of(c);
      if (!in.is_rms()) dbeta_bound[c] += Gamma(rows + 1) * std::fabs(dy.At(r * n + c));
    }
    for (int64_t c = 0; c < n; ++c) {
      const double g = std::fabs(in.gamma.At(c) * dy.At(r * n + c));
      dsum_error[r * n + c] =
          rstd * (5 * kU * g + Gamma(n + 6) * mean_g + Gamma(n + 12) * xhat_of(c) * mean_g_xhat);
    }
  }
  const std::string what = std::to_string(rows) + "x" + std::to_string(n);
  ExpectRounded(actual.dresidual.Values(), exact.dresidual.Values(), dsum_error, dtype,
                "dresidual " + what);
  const auto dx = exact.dx.Values();
  for (size_t i = 0; i < dx.size(); ++i)
    dsum_error[i] = dx[i] == 0 ? 0 : in.dropout.scale() * dsum_error[i] + kU * std::fabs(dx[i]);
  ExpectRounded(actual.dx.Values(), dx, dsum_error, dtype, "dx " + what);
  ExpectClose(actual.dgamma.Values(), exact.dgamma.Values(), dgamma_bound, "dgamma " + what);
  ExpectClose(actual.dbeta.Values(), exact.dbeta.Values(), dbeta_bound, "dbeta " + what);
}

TEST_P(BackendTest, LayerNormBackwardMatchesReference) {
  for (const MatrixSize& size : kMatrixSizes) {
    for (const Kind kind : kKinds) CheckBackward(backend(), reference(), size, dtype(), kind);
  }
}

// Pre-LN keeps no second copy of what it normalises, and gives dx where dy was.
TEST_P(BackendTest, LayerNormInPlaceHasTheSameBits) {
  const MatrixSize sizes[] = {{5, 64}, {71, 33}, {3, 4099}};
  for (const auto& [size, kind] : {std::pair{sizes[0], Kind::kLayerNorm},
                                   {sizes[1], Kind::kRmsNorm},
                                   {sizes[1], Kind::kLayerNorm},
                                   {sizes[2], Kind::kLayerNorm},
                                   {sizes[2], Kind::kRmsNorm}}) {
    const Inputs in = MakeInputs(dtype(), size, false, false, 0, kind);
    const Result apart = Forward(backend(), in, 1e-5f);
    HostTensor x = in.x, y = apart.y, mean = apart.mean, rstd = apart.rstd;
    backend().LayerNormForward(
        {x.view(), in.residual.view(), in.gamma.view(), in.beta.view(), 1e-5f, in.dropout,
         in.row_ids.data(), x.view(), mean.view(), rstd.view(), y.view()},
        {});
    EXPECT_TRUE(x.SameBits(in.x));
    EXPECT_TRUE(y.SameBits(apart.y));

    const HostTensor dy = RandomTensor(dtype(), in.x.shape(), 5);
    HostTensor dx(dtype(), in.x.shape()), in_place = dy;
    HostTensor dgamma(gradient_dtype(), {size.columns});
    HostTensor dbeta = in.is_rms() ? HostTensor() : dgamma;
    const auto backward = [&](ConstTensorView from, TensorView to) {
      backend().LayerNormBackward(
          {from, x.view(), mean.view(), rstd.view(), in.gamma.view(), in.dropout, in.row_ids.data(),
           to, TensorView(), dgamma.view(), dbeta.view()},
          {});
    };
    backward(dy.view(), dx.view());
    backward(in_place.view(), in_place.view());
    EXPECT_TRUE(in_place.SameBits(dx));
  }
}

}  // namespace

void CheckLayerNorm(Backend& backend, Backend& reference, const MatrixSize& size, DType dtype) {
  for (const Kind kind : kKinds) {
    CheckForward(backend, reference, MakeInputs(dtype, size, true, true, 0, kind),
                 kind == Kind::kRmsNorm ? 1e-5f : 1e-12f, dtype);
    CheckBackward(backend, reference, size, dtype, kind);
  }
}

}  // namespace anyorder::kernels
