// Rotary positions against the reference and against complex numbers.

#include <complex>

#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

using test::ExpectRounded;
using test::HostTensor;
using test::kU;
using test::RandomTensor;

struct RotarySize {
  int64_t rows, heads, head_dim;
};
const std::vector<RotarySize> kRotarySizes = {
    {1, 1, 2}, {3, 2, 6}, {5, 3, 64}, {71, 4, 34}, {300, 2, 16}};

HostTensor Angles(DType dtype, const RotarySize& size) {
  HostTensor angles(dtype, {size.rows, size.head_dim});
  const int64_t half = size.head_dim / 2;
  for (int64_t r = 0; r < size.rows; ++r) {
    for (int64_t f = 0; f < half; ++f) {
      // Positions of both signs.
      const double angle = static_cast<double>(7 - r) / static_cast<double>(f + 1);
      angles.Set(r * size.head_dim + f, std::cos(angle));
      angles.Set(r * size.head_dim + half + f, std::sin(angle));
    }
  }
  return angles;
}

HostTensor Turned(Backend& backend, const HostTensor& x, const HostTensor& angles, bool inverse) {
  HostTensor y(x.dtype(), x.shape());
  backend.RotaryApply({x.view(), angles.view(), inverse, y.view()}, {});
  return y;
}

// Two products and a sum, each rounded.
std::vector<double> Bounds(const HostTensor& x, const RotarySize& size) {
  std::vector<double> error(x.size());
  const int64_t half = size.head_dim / 2;
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t partner = i % size.head_dim < half ? i + half : i - half;
    error[i] = 2 * kU * (std::fabs(x.At(i)) + std::fabs(x.At(partner)));
  }
  return error;
}

TEST_P(BackendTest, RotaryMatchesReferenceInPlaceToo) {
  for (const RotarySize& size : kRotarySizes) {
    for (const bool inverse : {false, true}) {
      const HostTensor x = RandomTensor(dtype(), {size.rows, size.heads * size.head_dim}, 1);
      const HostTensor angles = Angles(gradient_dtype(), size);
      const auto expected = Turned(reference(), Wide(x), Wide(angles), inverse).Values();
      const HostTensor y = Turned(backend(), x, angles, inverse);
      ExpectRounded(y.Values(), expected, Bounds(x, size), dtype(), "rotary");
      HostTensor in_place = x;
      backend().RotaryApply({in_place.view(), angles.view(), inverse, in_place.view()}, {});
      EXPECT_TRUE(in_place.SameBits(y));
    }
  }
}

TEST_P(BackendTest, RotaryIsAProductOfComplexNumbers) {
  const RotarySize size{5, 3, 8};
  const HostTensor x = RandomTensor(dtype(), {size.rows, size.heads * size.head_dim}, 1);
  const HostTensor angles = Angles(gradient_dtype(), size);
  std::vector<double> expected(x.size());
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t f = i % size.head_dim;
    if (f >= size.head_dim / 2) continue;
    const int64_t place = i / (size.heads * size.head_dim) * size.head_dim + f;
    const std::complex<double> turn(angles.At(place), angles.At(place + size.head_dim / 2));
    const std::complex<double> product =
        std::complex<double>(x.At(i), x.At(i + size.head_dim / 2)) * turn;
    expected[i] = product.real();
    expected[i + size.head_dim / 2] = product.imag();
  }
  ExpectRounded(Turned(backend(), x, angles, false).Values(), expected, Bounds(x, size), dtype(),
                "rotary");
}

}  // namespace
}  // namespace anyorder::kernels
