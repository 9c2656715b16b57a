// Activations and dropout against the reference.

#include <array>

#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

using test::ExpectRounded;
using test::HostTensor;
using test::kU;
using test::RandomTensor;

// Distribution values below exp(-88.3) may be flushed to 0, as fp32 cannot hold their reciprocals.
constexpr double kFlushed = 5e-39;
constexpr Activation kActivations[] = {Activation::kGeluTanh, Activation::kGeluErf,
                                       Activation::kRelu, Activation::kSilu, Activation::kTanh};

// Values of every size: dense near 0, and out to where the tails underflow.
HostTensor ActivationInputs(DType dtype, const MatrixSize& size) {
  HostTensor x = RandomTensor(dtype, {size.rows, size.columns}, 1);
  constexpr double kScales[] = {1, 4, 0.01, 20};
  for (int64_t i = 0; i < x.size(); ++i) x.Set(i, x.At(i) * kScales[i % 4]);
  return x;
}

// How far fp32 arithmetic may be from activation(x), given its value.
//
// SiLU: x s, as the tanh form, with v = x, which is exact.
// tanh form: value = x s with s = 1 / (1 + exp(-v)), v = 1.6 (x + 0.045 x^3). Forming v costs 6
// roundings of
// |v|, which s sees with factor (1 - s) <= 1, rounding into exp's own argument one more; exp itself
// is good to 2^-22 = 4 u, and 4 roundings follow. erf form: erfc(z) at z = x / sqrt(2) in the tail
// moves by a factor exp(2 z dz), dz = 2 u z and z^2's own rounding: 3 u x^2; polynomial, quotients
// and exp add at most 16 u. tanh: 2 s - 1 with s = sigmoid(2 x), absolute: s moves by s (1 - s)
// times exp's error, 4 u and 2 u of its argument each way, where s (1 - s) <= 1 / 4 and s (1 - s) 2
// |x| <= 0.23, and by 2 roundings of s; all doubled, and one rounding more.
double ValueError(Activation activation, double x, double value) {
  const double v = 1.6 * (std::fabs(x) + 0.045 * std::fabs(x * x * x));
  switch (activation) {
    case Activation::kGeluTanh: return kU * std::fabs(value) * (12 + 8 * v);
    case Activation::kGeluErf: return kU * std::fabs(value) * (20 + 4 * x * x);
    case Activation::kRelu: return kU * std::fabs(value);
    case Activation::kSilu: return kU * std::fabs(value) * (10 + std::fabs(x));
    case Activation::kTanh: return kU * 12;
  }
  return 0;
}

// The derivative is a sum s + x s (1 - s) v': each part is bounded as above; 1 - s is off by 2 u
// where s is near 1. erf form: erfc / 2 + x density(x), whose exponent x^2 / 2 rounds like the
// above.
double DerivativeError(Activation activation, double x) {
  const double v = 1.6 * (std::fabs(x) + 0.045 * std::fabs(x * x * x));
  switch (activation) {
    case Activation::kGeluTanh: {
      const double s = 1 / (1 + std::exp(-(x < 0 ? -v : v)));
      const double slope = 1.6 * (1 + 0.135 * x * x);
      const double parts = s + std::fabs(x) * s * (1 - s) * slope;
      const double cancelled = std::fabs(x) * s * slope * std::min(1.0, 4 * kU + (1 - s));
      return kU * (parts * (24 + 12 * v) + cancelled * (8 + 8 * v)) +
             kFlushed * std::fabs(x) * slope + 8 * kU * std::min(cancelled, 1.0);
    }
    case Activation::kGeluErf: {
      const double parts =
          0.5 * std::erfc(-x / std::sqrt(2.0)) + 0.4 * std::fabs(x) * std::exp(-x * x / 2);
      return kU * parts * (24 + 4 * x * x);
    }
    case Activation::kRelu: return kU;
    case Activation::kSilu: {
      const double s = 1 / (1 + std::exp(-x));
      const double parts = s + std::fabs(x) * s * (1 - s);
      return kU * parts * (20 + 4 * std::fabs(x)) + kFlushed * (1 + std::fabs(x));
    }
    case Activation::kTanh:  // 4 s (1 - s): s as above, off by 6 u at most, each factor at most 1,
                             // and three roundings
      return kU * 4 * (6 + 6 + 3 * 0.25);
  }
  return 0;
}

std::vector<double> Forward(Backend& backend, Activation activation, const HostTensor& x,
                            const Dropout& dropout, const std::vector<int32_t>& row_ids) {
  HostTensor y(x.dtype(), x.shape());
  backend.ActivationForward({activation, x.view(), dropout, row_ids.data(), y.view()}, {});
  return y.Values();
}

TEST_P(BackendTest, ActivationForwardMatchesReference) {
  for (const Activation activation : kActivations) {
    for (const MatrixSize& size : kMatrixSizes) {
      for (const bool dropped : {false, true}) {
        const HostTensor x = ActivationInputs(dtype(), size);
        const Dropout dropout = TestDropout(dropped);
        const auto ids = test::RowIds(size.rows);
        const auto actual = Forward(backend(), activation, x, dropout, ids);
        const auto expected = Forward(reference(), activation, Wide(x), dropout, ids);
        std::vector<double> error(expected.size());
        for (size_t i = 0; i < error.size(); ++i)
          error[i] = ValueError(activation, x.At(i), expected[i]);
        ExpectRounded(actual, expected, error, dtype(), "activation");
      }
    }
  }
}

TEST_P(BackendTest, ActivationBackwardMatchesReferenceInPlaceToo) {
  for (const Activation activation : kActivations) {
    for (const MatrixSize& size : kMatrixSizes) {
      const HostTensor x = ActivationInputs(dtype(), size);
      const HostTensor dy = RandomTensor(dtype(), {size.rows, size.columns}, 2);
      const Dropout dropout = TestDropout(true);
      const auto ids = test::RowIds(size.rows);
      HostTensor dx = dy;
      backend().ActivationBackward(
          {activation, x.view(), dx.view(), dropout, ids.data(), dx.view()}, {});
      HostTensor exact = Wide(dy);
      reference().ActivationBackward(
          {activation, Wide(x).view(), exact.view(), dropout, ids.data(), exact.view()}, {});
      const auto expected = exact.Values();
      std::vector<double> error(expected.size());
      for (size_t i = 0; i < error.size(); ++i) {
        error[i] = expected[i] == 0 && activation == Activation::kRelu
                       ? 0
                       : 1.2 * std::fabs(dy.At(i)) * DerivativeError(activation, x.At(i)) +
                             2 * kU * std::fabs(expected[i]);
      }
      ExpectRounded(dx.Values(), expected, error, dtype(),
                    "activation gradient " + std::to_string(static_cast<int>(activation)));
    }
  }
}

// A gated unit: y = dropout(activation(x) factor). dfactor may take factor's place and dx dy's.
TEST_P(BackendTest, GatedActivationMatchesReferenceInPlaceToo) {
  for (const Activation activation :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kRelu}) {
    for (const MatrixSize& size : kMatrixSizes) {
      const HostTensor x = ActivationInputs(dtype(), size);
      const HostTensor factor = RandomTensor(dtype(), x.shape(), 3);
      const HostTensor dy = RandomTensor(dtype(), x.shape(), 2);
      const auto ids = test::RowIds(size.rows);
      const auto run = [&](Backend& of, const HostTensor& gate, const HostTensor& by,
                           const HostTensor& gradient) {
        HostTensor y(gate.dtype(), gate.shape()), dx = gradient, dfactor = by;
        of.ActivationForward(
            {activation, gate.view(), TestDropout(true), ids.data(), y.view(), by.view()}, {});
        of.ActivationBackward({activation, gate.view(), dx.view(), TestDropout(true), ids.data(),
                               dx.view(), dfactor.view(), dfactor.view()},
                              {});
        return std::array{y.Values(), dx.Values(), dfactor.Values()};
      };
      const auto actual = run(backend(), x, factor, dy);
      const auto exact = run(reference(), Wide(x), Wide(factor), Wide(dy));
      std::array<std::vector<double>, 3> error;
      const double scale = TestDropout(true).scale();
      for (int64_t i = 0; i < x.size(); ++i) {
        const double kept = exact[2][i] == 0 && exact[1][i] == 0 ? 0 : scale;
        const double by = std::fabs(factor.At(i)), slope = DerivativeError(activation, x.At(i));
        const double value = exact[2][i] / (dy.At(i) == 0 ? 1 : dy.At(i) * scale);
        const double value_error = ValueError(activation, x.At(i), value);
        const double d = std::fabs(dy.At(i));
        error[0].push_back(kept * by * value_error + 3 * kU * std::fabs(exact[0][i]));
        error[1].push_back(kept * by * d * slope + 3 * kU * std::fabs(exact[1][i]));
        error[2].push_back(kept * d * value_error + 3 * kU * std::fabs(exact[2][i]));
      }
      for (size_t k = 0; k < 3; ++k)
        ExpectRounded(actual[k], exact[k], error[k], dtype(), "gated " + std::to_string(k));
    }
  }
}

// Not an approximation: one product per element, the same bits everywhere.
TEST_P(BackendTest, DropoutHasTheBitsOfTheReference) {
  for (const MatrixSize& size : kMatrixSizes) {
    for (const bool dropped : {false, true}) {
      const HostTensor x = RandomTensor(dtype(), {size.rows, size.columns}, 1);
      const auto ids = test::RowIds(size.rows);
      HostTensor y(dtype(), x.shape());
      HostTensor expected(dtype(), x.shape());
      backend().DropoutApply({x.view(), TestDropout(dropped), ids.data(), y.view()}, {});
      reference().DropoutApply({x.view(), TestDropout(dropped), ids.data(), expected.view()}, {});
      EXPECT_TRUE(y.SameBits(expected)) << size.rows << "x" << size.columns;
      if (!dropped) {
        EXPECT_TRUE(y.SameBits(x));
      }
    }
  }
}

TEST_P(BackendTest, DropoutKeepsItsShareOfElements) {
  constexpr double kRate = 0.1;
  const HostTensor x = RandomTensor(dtype(), {100, 1000}, 1);
  const auto ids = test::RowIds(100);
  HostTensor y(dtype(), x.shape());
  backend().DropoutApply({x.view(), MakeDropout(1, 2, 3, kRate), ids.data(), y.view()}, {});
  int64_t dropped = 0;
  for (int64_t i = 0; i < y.size(); ++i) dropped += y.At(i) == 0 && x.At(i) != 0 ? 1 : 0;
  // Five standard deviations of a binomial count.
  const auto n = static_cast<double>(x.size());
  EXPECT_NEAR(static_cast<double>(dropped), kRate * n, 5 * std::sqrt(n * kRate * (1 - kRate)));
}

TEST_P(BackendTest, ActivationKeepsNotANumber) {
  for (const Activation activation :
       {Activation::kGeluTanh, Activation::kGeluErf, Activation::kSilu, Activation::kTanh}) {
    HostTensor x = RandomTensor(dtype(), {1, 40}, 1);
    x.Set(7, NAN);
    const auto y = Forward(backend(), activation, x, Dropout{}, {0});
    for (int64_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i == 7);
  }
}

}  // namespace
}  // namespace anyorder::kernels
