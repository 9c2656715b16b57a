// Products and column sums against the reference.
//
// Bound of a product: K products and K + 2 additions (bias, old c) in fp32 give Gamma(K + 3) times
// the same sum over magnitudes, which the reference computes from |a|, |b|, |bias|, |c|; then c is
// rounded to its dtype. Where a library may round what it has before it adds the bias or the old c
// (Backend::RoundsProductFirst), that is one rounding of such a value more.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

using test::Absolute;
using test::ExpectClose;
using test::ExpectRounded;
using test::Gamma;
using test::HostTensor;
using test::Integers;
using test::RandomTensor;

struct GemmCase {
  GemmSizes size;
  bool transpose_a = false;
  bool transpose_b = false;
  bool bias = false;
  float beta = 0.0f;
  DType c_dtype = DType::kFloat32;
  char sum = '-';  // a or b: the operand whose sums are asked for, too
  float scale = 1.0f;

  std::string ToString() const {
    return absl::StrCat("m=", size.m, " n=", size.n, " k=", size.k, transpose_a ? " a^T" : "",
                        transpose_b ? " b^T" : "", bias ? " bias" : "", beta != 0 ? " +=" : "",
                        " c=", Name(c_dtype), " sum of ", std::string(1, sum), " times ", scale);
  }
};

// With the sums of one operand. The other may be stored either way.
GemmCase SumCase(const GemmSizes& size, bool of_a, bool transpose_other, DType c_dtype,
                 float beta = 0.0f) {
  return {size,    of_a || transpose_other, of_a && transpose_other, false, beta,
          c_dtype, of_a ? 'a' : 'b'};
}

struct Product {
  HostTensor c, sum;
};

Product RunGemm(Backend& backend, const GemmCase& gemm, const HostTensor& a, const HostTensor& b,
                const HostTensor& bias, HostTensor c) {
  HostTensor sum;
  if (gemm.sum != '-')
    sum = HostTensor(GradientDType(a.dtype()), {gemm.sum == 'a' ? gemm.size.m : gemm.size.n});
  // What is there must not count.
  for (int64_t i = 0; i < sum.size(); ++i) sum.Set(i, NAN);
  backend.Gemm({.a = a.view(),
                .b = b.view(),
                .transpose_a = gemm.transpose_a,
                .transpose_b = gemm.transpose_b,
                .bias = bias.view(),
                .scale = gemm.scale,
                .beta = gemm.beta,
                .c = c.view(),
                .a_sum = gemm.sum == 'a' ? sum.view() : TensorView(),
                .b_sum = gemm.sum == 'b' ? sum.view() : TensorView()},
               {});
  return {c, sum};
}

// What may be rounded before c is: all but the old c, or all but the bias, whichever is larger.
std::vector<double> EarlyRoundings(Backend& reference, GemmCase gemm, const HostTensor& a,
                                   const HostTensor& b, const HostTensor& bias,
                                   const HostTensor& old) {
  const GemmCase whole = gemm;
  gemm.sum = '-';
  std::vector<double> largest(static_cast<size_t>(gemm.size.m * gemm.size.n));
  const auto consider = [&](bool with_bias, bool with_old) {
    gemm.bias = with_bias;
    gemm.beta = with_old ? 1.0f : 0.0f;
    const std::vector<double> values =
        RunGemm(reference, gemm, a, b, with_bias ? bias : HostTensor(), old).c.Values();
    for (size_t i = 0; i < largest.size(); ++i)
      largest[i] = std::max(largest[i], std::fabs(values[i]));
  };
  if (whole.beta != 0) consider(whole.bias, false);
  if (whole.bias) consider(false, whole.beta != 0);
  return test::Scaled(largest, test::UnitRoundoff(gemm.c_dtype));
}

// Bound of the sums: as of K terms.
void CheckGemm(Backend& backend, Backend& reference, const GemmCase& gemm, DType dtype) {
  const auto [m, n, k] = gemm.size;
  const HostTensor a = RandomTensor(dtype, gemm.transpose_a ? Shape{k, m} : Shape{m, k}, 1);
  const HostTensor b = RandomTensor(dtype, gemm.transpose_b ? Shape{n, k} : Shape{k, n}, 2);
  const HostTensor bias = gemm.bias ? RandomTensor(dtype, {n}, 3) : HostTensor();
  HostTensor c = RandomTensor(gemm.c_dtype, {m, n}, 4);
  const HostTensor old = Wide(c);
  // With beta 0 the old value must not be read.
  if (gemm.beta == 0) {
    for (int64_t i = 0; i < c.size(); ++i) c.Set(i, NAN);
  }
  const Product actual = RunGemm(backend, gemm, a, b, bias, c);
  const Product expected = RunGemm(reference, gemm, Wide(a), Wide(b), Wide(bias), old);
  const Product magnitude = RunGemm(reference, gemm, Absolute(Wide(a)), Absolute(Wide(b)),
                                    Absolute(Wide(bias)), Absolute(old));
  std::vector<double> error =
      test::Scaled(magnitude.c.Values(), Gamma(k + (gemm.scale == 1.0f ? 3 : 4)));
  if (backend.RoundsProductFirst() && gemm.c_dtype == DType::kBFloat16) {
    const auto early = EarlyRoundings(reference, gemm, Wide(a), Wide(b), Wide(bias), old);
    for (size_t i = 0; i < error.size(); ++i) error[i] += early[i];
  }
  ExpectRounded(actual.c.Values(), expected.c.Values(), error, gemm.c_dtype, gemm.ToString());
  ExpectClose(actual.sum.Values(), expected.sum.Values(),
              test::Scaled(magnitude.sum.Values(), Gamma(k + 1)), gemm.ToString() + ": sum");
}

TEST_P(BackendTest, GemmOfABatchIsItsProducts) { CheckProductBatches(backend(), dtype()); }

// Sizes around the CPU's blocks of C (256 rows, 1024 columns), vectors, and extreme proportions.
TEST_P(BackendTest, GemmMatchesReferenceForOddSizes) {
  for (const GemmSizes size :
       {GemmSizes{1, 1, 1}, GemmSizes{1, 1, 3000}, GemmSizes{1, 700, 1}, GemmSizes{700, 1, 5},
        GemmSizes{85, 1030, 16}, GemmSizes{257, 9, 21}, GemmSizes{300, 1100, 10},
        GemmSizes{255, 1023, 8}, GemmSizes{2, 1025, 21}, GemmSizes{513, 2, 9}}) {
    for (const bool transpose : {false, true}) {
      GemmCase gemm{size, transpose, !transpose, true};
      gemm.c_dtype = dtype();
      CheckGemm(backend(), reference(), gemm, dtype());
    }
  }
}

TEST_P(BackendTest, GemmWithoutInnerDimensionIsBiasPlusOld) {
  const HostTensor a(dtype(), {4, 0});
  const HostTensor b(dtype(), {0, 3});
  const HostTensor bias = RandomTensor(dtype(), {3}, 3);
  HostTensor c = RandomTensor(dtype(), {4, 3}, 4);
  const HostTensor old = c;
  GemmArgs args = {.a = a.view(), .b = b.view(), .bias = bias.view(), .beta = 1.0f, .c = c.view()};
  backend().Gemm(args, {});
  for (int64_t i = 0; i < c.size(); ++i) {
    const double expected = old.At(i) + bias.At(i % 3);
    EXPECT_NEAR(c.At(i), expected, 2 * test::UnitRoundoff(dtype()) * std::fabs(expected));
  }
}

TEST_P(BackendTest, GemmMatchesReferenceForAllTransposesBiasBetaSumsAndDtypes) {
  for (const GemmSizes size : {GemmSizes{3, 5, 7}, GemmSizes{40, 65, 33}})
    CheckProducts(backend(), reference(), size, dtype());
}

// One element, and more rows than a partial sum has.
TEST_P(BackendTest, GemmSumsAnOperandForOddSizes) {
  for (const GemmSizes size :
       {GemmSizes{1, 1, 1}, GemmSizes{1, 513, 3}, GemmSizes{33, 2, 300}, GemmSizes{5, 9, 1030}}) {
    for (const bool of_a : {false, true})
      CheckGemm(backend(), reference(), SumCase(size, of_a, false, gradient_dtype()), dtype());
  }
}

// Long sums, which a library may cut between blocks.
TEST_P(BackendTest, GemmSumsAnOperandToTheSameBitsEachTime) {
  const GemmSizes size{24, 40, 4000};
  const HostTensor a = RandomTensor(dtype(), {size.k, size.m}, 1);
  const HostTensor b = RandomTensor(dtype(), {size.k, size.n}, 2);
  for (const bool of_a : {false, true}) {
    const GemmCase product = SumCase(size, of_a, /*transpose_other=*/!of_a, gradient_dtype());
    const HostTensor c(gradient_dtype(), {size.m, size.n});
    const Product first = RunGemm(backend(), product, a, b, {}, c);
    for (int run = 0; run < 3; ++run) {
      const Product again = RunGemm(backend(), product, a, b, {}, c);
      EXPECT_EQ(again.sum.Values(), first.sum.Values()) << product.ToString();
      EXPECT_EQ(again.c.Values(), first.c.Values()) << product.ToString();
    }
  }
}

// No rows of c, without a sum too, and no terms.
TEST_P(BackendTest, GemmSumsAnOperandWhoseProductIsEmpty) {
  CheckGemm(backend(), reference(), {{0, 3, 5}}, dtype());
  for (const GemmSizes size : {GemmSizes{0, 3, 5}, GemmSizes{4, 3, 0}})
    CheckGemm(backend(), reference(), SumCase(size, false, false, gradient_dtype()), dtype());
}

class GemmArgumentsDeathTest : public ::testing::Test {
 protected:
  // Of three rows and columns.
  GemmArgs Arguments() {
    GemmArgs args;
    args.a = args.b = x.view();
    args.c = c.view();
    return args;
  }

  const HostTensor x = RandomTensor(DType::kFloat32, {3, 3}, 1);
  HostTensor c = HostTensor(DType::kFloat32, {3, 3});
  HostTensor sum = HostTensor(DType::kFloat32, {3});
};

TEST_F(GemmArgumentsDeathTest, SumsThatNoLibraryHasAreRefused) {
  GemmArgs args = Arguments();
  args.a_sum = sum.view();
  EXPECT_DEATH(CheckArguments(args), "a_sum without transpose_a");
  args.transpose_a = true;
  args.b_sum = sum.view();
  EXPECT_DEATH(CheckArguments(args), "more than one of a_sum, b_sum and bias");
  args.a_sum = {};
  args.transpose_b = true;
  EXPECT_DEATH(CheckArguments(args), "b_sum with transpose_b");
  args.transpose_b = false;
  args.bias = x.view().Slice(0, {3});
  EXPECT_DEATH(CheckArguments(args), "more than one of a_sum, b_sum and bias");
}

TEST_F(GemmArgumentsDeathTest, ProductsOfABatchThatOverlapAreRefused) {
  GemmArgs args = Arguments();
  args.batch = {.count = 2, .c = 8};
  EXPECT_DEATH(CheckArguments(args), "products of 9 elements, 8 apart");
  args.batch.c = 9;
  args.b_sum = sum.view();
  args.batch.sum = 2;
  EXPECT_DEATH(CheckArguments(args), "sums of 3 elements, 2 apart");
  args.batch.sum = 3;
  args.batch.a = -1;
  EXPECT_DEATH(CheckArguments(args), "lie before the first");
}

// Bound: as of a sum of `rows` terms and the old value.
TEST_P(BackendTest, ColumnSumMatchesReference) {
  for (const MatrixSize& size : kMatrixSizes) {
    for (const float beta : {0.0f, 1.0f}) {
      const HostTensor x = RandomTensor(dtype(), {size.rows, size.columns}, 1);
      const HostTensor old = RandomTensor(gradient_dtype(), {size.columns}, 2);
      const auto run = [&](Backend& on, const HostTensor& of, HostTensor y) {
        on.ColumnSum({of.view(), beta, y.view()}, {});
        return y.Values();
      };
      const auto actual = run(backend(), x, old);
      const auto expected = run(reference(), Wide(x), Wide(old));
      const auto magnitude = run(reference(), Absolute(Wide(x)), Absolute(Wide(old)));
      ExpectClose(actual, expected, test::Scaled(magnitude, Gamma(size.rows + 2)), "column sum");
    }
  }
}

}  // namespace

// Each product of a batch is what it is alone, and nothing between the products is touched.
void CheckProductBatches(Backend& backend, DType dtype) {
  const GemmSizes size{24, 32, 40};
  constexpr int64_t kCount = 3;
  for (int options = 0; options < 32; ++options) {
    const bool has_sum = (options & 16) != 0;
    const DType c_dtype = has_sum ? GradientDType(dtype) : dtype;
    // Whole groups of 16 bytes apart, so that all products are aligned alike.
    GemmArgs args;
    args.batch = {.count = kCount,
                  .a = size.m * size.k + 16,
                  .b = (options & 8) != 0 ? 0 : size.k * size.n,
                  .bias = size.n + 8,
                  .c = size.m * size.n + 16,
                  .sum = size.n + 4};
    const HostTensor a = Integers(dtype, {kCount, args.batch.a}, 1);
    const HostTensor b = Integers(dtype, {kCount, size.k * size.n}, 2);
    const HostTensor bias = Integers(dtype, {kCount, args.batch.bias}, 3);
    HostTensor c = Integers(c_dtype, {kCount, args.batch.c}, 4);
    HostTensor sum = Integers(GradientDType(dtype), {kCount, args.batch.sum}, 5);
    args.transpose_a = (options & 1) != 0;
    args.transpose_b = !has_sum && (options & 2) != 0;
    args.beta = (options & 4) != 0 ? 1.0f : 0.0f;
    args.a = a.view().Slice(0, args.transpose_a ? Shape{size.k, size.m} : Shape{size.m, size.k});
    args.b = b.view().Slice(0, args.transpose_b ? Shape{size.n, size.k} : Shape{size.k, size.n});
    if (!has_sum) args.bias = bias.view().Slice(0, {size.n});
    HostTensor single_c = c;
    HostTensor single_sum = sum;
    const auto results = [&](HostTensor& of_c, HostTensor& of_sum) {
      args.c = of_c.view().Slice(0, {size.m, size.n});
      if (has_sum) args.b_sum = of_sum.view().Slice(0, {size.n});
    };
    results(single_c, single_sum);
    for (int64_t i = 0; i < kCount; ++i) backend.Gemm(ProductOf(args, i), {});
    results(c, sum);
    backend.Gemm(args, {});
    EXPECT_EQ(c.Values(), single_c.Values()) << "options " << options;
    EXPECT_EQ(sum.Values(), single_sum.Values()) << "options " << options;
    args.batch.count = 0;
    backend.Gemm(args, {});
    EXPECT_EQ(c.Values(), single_c.Values()) << "a batch of nothing, options " << options;
  }
}

void CheckProducts(Backend& backend, Backend& reference, const GemmSizes& size, DType dtype) {
  for (int options = 0; options < 32; ++options) {
    const DType c_dtype = (options & 16) != 0 ? GradientDType(dtype) : dtype;
    const float beta = (options & 8) != 0 ? 1.0f : 0.0f;
    CheckGemm(backend, reference,
              {size, (options & 1) != 0, (options & 2) != 0, (options & 4) != 0, beta, c_dtype},
              dtype);
  }
  for (int options = 0; options < 16; ++options) {
    const DType c_dtype = (options & 8) != 0 ? GradientDType(dtype) : dtype;
    const float beta = (options & 4) != 0 ? 1.0f : 0.0f;
    CheckGemm(backend, reference,
              SumCase(size, (options & 1) != 0, (options & 2) != 0, c_dtype, beta), dtype);
    GemmCase scaled{size, (options & 1) != 0, (options & 2) != 0, false, beta, c_dtype};
    scaled.scale = 0.3f;
    CheckGemm(backend, reference, scaled, dtype);
  }
}

}  // namespace anyorder::kernels
