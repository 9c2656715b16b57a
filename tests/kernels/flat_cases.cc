// AdamW, sums of squares, add, cast and copies against the reference.

#include <limits>

#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

using test::ExpectClose;
using test::Gamma;
using test::HostTensor;
using test::kU;
using test::RandomTensor;

struct Optimizer {
  HostTensor grad, master, m, v, weights;
};

Optimizer MakeOptimizer(DType dtype, int64_t n) {
  Optimizer state{RandomTensor(DType::kFloat32, {n}, 1, 0.1), RandomTensor(DType::kFloat32, {n}, 2),
                  RandomTensor(DType::kFloat32, {n}, 3, 0.1),
                  RandomTensor(DType::kFloat32, {n}, 4, 0.01), HostTensor(dtype, {n})};
  state.v = Absolute(state.v);
  return state;
}

enum class AdamForm { kUncorrected, kTensorflow, kTorch };

AdamWArgs Arguments(Optimizer* state, AdamForm form) {
  AdamWArgs args = {.grad = state->grad.view(),
                    .master = state->master.view(),
                    .m = state->m.view(),
                    .v = state->v.view(),
                    .weights = state->weights.view(),
                    .grad_scale = 0.37,
                    .learning_rate = 3e-3,
                    .weight_decay = 0.01,
                    .bias_correction = form != AdamForm::kUncorrected,
                    .corrects_epsilon = form == AdamForm::kTorch};
  args.epsilon = 1e-3;  // large enough that the forms differ by more than roundings
  args.step = 3;
  return args;
}

// Bounds: m and v are sums of two products whose factors are themselves rounded (6 roundings); v's
// terms are positive, so sqrt(v) is off by half of v's factor; the quotient has m's absolute and
// v's relative error and four roundings more; master then adds rounded products.
void CheckAdamW(Backend& backend, Backend& reference, int64_t n, AdamForm form, DType dtype) {
  const Optimizer old = MakeOptimizer(dtype, n);
  Optimizer actual = old;
  backend.AdamW(Arguments(&actual, form), {});
  Optimizer exact{Wide(old.grad), Wide(old.master), Wide(old.m), Wide(old.v), HostTensor()};
  const AdamWArgs args = Arguments(&exact, form);
  reference.AdamW(args, {});
  const double second = std::sqrt(1 - std::pow(0.999, 4));
  const double c = args.bias_correction ? second / (1 - std::pow(0.9, 4)) : 1.0;
  const double epsilon = args.epsilon * (args.corrects_epsilon ? second : 1.0);
  std::vector<double> m_bound(n);
  std::vector<double> v_bound(n);
  std::vector<double> master_bound(n);
  for (int64_t i = 0; i < n; ++i) {
    const double g = args.grad_scale * old.grad.At(i);
    m_bound[i] = 6 * kU * (0.9 * std::fabs(old.m.At(i)) + 0.1 * std::fabs(g));
    v_bound[i] = 7 * kU * exact.v.At(i);
    const double root = std::sqrt(exact.v.At(i)) + epsilon;
    const double ratio = std::fabs(c * exact.m.At(i) / root);
    const double ratio_error = c * m_bound[i] / root + 10 * kU * ratio;
    const double decay = args.weight_decay * std::fabs(old.master.At(i));
    master_bound[i] = args.learning_rate * (ratio_error + 4 * kU * (ratio + decay)) +
                      2 * kU * std::fabs(exact.master.At(i));
  }
  ExpectClose(actual.m.Values(), exact.m.Values(), m_bound, "m");
  ExpectClose(actual.v.Values(), exact.v.Values(), v_bound, "v");
  ExpectClose(actual.master.Values(), exact.master.Values(), master_bound, "master");
  // Weights are the stored master, rounded: nothing else could be rebuilt from a checkpoint.
  EXPECT_TRUE(actual.weights.SameBits(test::ToDType(actual.master, dtype)));
}

TEST_P(BackendTest, AdamWMatchesReference) {
  for (const int64_t n : {int64_t{1}, int64_t{17}, int64_t{70001}}) {
    for (const AdamForm form : {AdamForm::kUncorrected, AdamForm::kTensorflow, AdamForm::kTorch})
      CheckAdamW(backend(), reference(), n, form, dtype());
  }
}

TEST_P(BackendTest, AdamWWithoutWeightsMovesTheSameMaster) {
  const Optimizer old = MakeOptimizer(dtype(), 1000);
  Optimizer with = old;
  Optimizer without = old;
  without.weights = HostTensor();
  backend().AdamW(Arguments(&with, AdamForm::kUncorrected), {});
  backend().AdamW(Arguments(&without, AdamForm::kUncorrected), {});
  EXPECT_TRUE(with.master.SameBits(without.master));
}

NormControl Fold(Backend& on, const std::vector<double>& sums, ComputeGradientClipArgs args) {
  NormControl control{.updates = 6};
  args.sums = ConstTensorView(sums.data(), {static_cast<int64_t>(sums.size())});
  args.control = &control;
  on.ComputeGradientClip(args, {});
  return control;
}

// Bounds: a sum of positive numbers in fp64, its root, and a quotient; `correction` and
// `epsilon_scale` are c and e of the seventh update by the formula.
TEST_P(BackendTest, ComputeGradientClipSaysWhatToDo) {
  for (const int64_t n : {1, 31, 700}) {
    const HostTensor drawn = Absolute(RandomTensor(DType::kFloat64, {n}, 1));
    double sum = 0;
    for (const double x : drawn.Values()) sum += x;
    const double norm = 0.25 * std::sqrt(sum);
    const double error = 2 * Gamma(n + 8, 0x1p-53);
    const double second = std::sqrt(1 - std::pow(0.999, 7));
    const double c = second / (1 - std::pow(0.9, 7));
    for (const double clip : {0.0, norm / 3, norm * 3}) {
      ComputeGradientClipArgs args = {.grad_scale = -0.25,
                                      .max_grad_norm = clip,
                                      .bias_correction = clip > 0,
                                      .corrects_epsilon = clip > norm};
      const NormControl control = Fold(backend(), drawn.Values(), args);
      const double factor = clip > 0 && clip < norm ? clip / norm : 1.0;
      EXPECT_NEAR(control.norm, norm, error * norm);
      EXPECT_NEAR(control.clip_factor, factor, error);
      EXPECT_NEAR(control.grad_scale, -0.25 * factor, error);
      EXPECT_NEAR(control.correction, clip > 0 ? c : 1.0, 0x1p-40);
      EXPECT_NEAR(control.epsilon_scale, clip > norm ? second : 1.0, 0x1p-40);
      EXPECT_EQ(control.updates, 7);
      EXPECT_EQ(control.skips, 0);
    }
  }
}

TEST_P(BackendTest, ComputeGradientClipSkipsWhatIsNotFiniteOrTooLarge) {
  const std::vector<double> good = {4, 9, 3};
  const auto skips = [&](const std::vector<double>& sums, double scale, double most) {
    ComputeGradientClipArgs args = {.grad_scale = scale, .skip_above_norm = most};
    const NormControl control = Fold(backend(), sums, args);
    EXPECT_EQ(control.updates, control.skips != 0 ? 6 : 7);
    return control.skips != 0;
  };
  EXPECT_FALSE(skips(good, 1, INFINITY));
  EXPECT_FALSE(skips(good, 1, 4));
  EXPECT_TRUE(skips(good, 1, 3.9));
  EXPECT_TRUE(skips(good, NAN, INFINITY));
  EXPECT_TRUE(skips(good, INFINITY, INFINITY));
  for (const double bad : {double{NAN}, double{INFINITY}}) {
    for (const size_t place : {0u, 2u}) {
      std::vector<double> sums = good;
      sums[place] = bad;
      EXPECT_TRUE(skips(sums, 1, INFINITY));
    }
  }
}

// What the device decided does what the host would have said, bit for bit, and a skip leaves
// everything alone.
TEST_P(BackendTest, AdamWObeysTheControl) {
  const Optimizer old = MakeOptimizer(dtype(), 1003);
  Optimizer told = old;
  AdamWArgs by_host = Arguments(&told, AdamForm::kTorch);
  by_host.grad_scale = 0.75;
  backend().AdamW(by_host, {});

  const double second = std::sqrt(1 - std::pow(0.999, 4));
  const double c = second / (1 - std::pow(0.9, 4));
  NormControl control{.grad_scale = 0.75, .correction = c, .epsilon_scale = second};
  Optimizer reading = old;
  AdamWArgs by_device = Arguments(&reading, AdamForm::kUncorrected);
  by_device.grad_scale = NAN;
  by_device.step = 77;
  by_device.control = &control;
  backend().AdamW(by_device, {});
  const auto expect_told = [&] {
    EXPECT_TRUE(reading.master.SameBits(told.master));
    EXPECT_TRUE(reading.m.SameBits(told.m));
    EXPECT_TRUE(reading.v.SameBits(told.v));
    EXPECT_TRUE(reading.weights.SameBits(told.weights));
  };
  expect_told();

  control.skips = 1;
  backend().AdamW(by_device, {});
  expect_told();
}

// Bound: a sum of at most 16384 squares in fp64.
void CheckSumOfSquares(Backend& backend, Backend& reference, int64_t n) {
  const HostTensor x = RandomTensor(DType::kFloat32, {n}, 1);
  const int64_t blocks = (n + kNormBlockElements - 1) / kNormBlockElements;
  HostTensor sums(DType::kFloat64, {blocks});
  HostTensor exact(DType::kFloat64, {blocks});
  backend.SumOfSquares(x.view(), sums.view(), {});
  reference.SumOfSquares(x.view(), exact.view(), {});
  ExpectClose(sums.Values(), exact.Values(),
              test::Scaled(exact.Values(), 2 * Gamma(kNormBlockElements, 0x1p-53)),
              "sum of squares");
}

TEST_P(BackendTest, SumOfSquaresMatchesReferenceBlockByBlock) {
  for (const int64_t n : {int64_t{1}, kNormBlockElements, 3 * kNormBlockElements + 5})
    CheckSumOfSquares(backend(), reference(), n);
}

// Whole words and a rest, few blocks and the most that a device takes.
TEST_P(BackendTest, DigestIsTheSameOnEveryBackend) {
  for (const int64_t n : {0, 1, 7, 8, 9, 255, 2048, 2051, 8192, 70001}) {
    const std::vector<int32_t> random = test::RandomIds(n, 256, 1);
    std::vector<uint64_t> words(n / 8 + 1);
    auto* const bytes = reinterpret_cast<uint8_t*>(words.data());
    for (int64_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(random[i]);
    const auto digest = [&](Backend& on) {
      int64_t value[2] = {-1, -1};
      on.Digest(ConstTensorView(bytes, DType::kUint8, {n}), TensorView(value, DType::kInt64, {2}),
                {});
      return std::pair(value[0], value[1]);
    };
    EXPECT_EQ(digest(backend()), digest(reference())) << n;
  }
}

TEST_P(BackendTest, SumOfSquaresShowsTheBlockThatIsNotFinite) {
  for (const double bad : {double{NAN}, double{INFINITY}, -double{INFINITY}}) {
    for (const int64_t place : {int64_t{0}, kNormBlockElements - 1, kNormBlockElements + 3}) {
      HostTensor x = RandomTensor(DType::kFloat32, {2 * kNormBlockElements}, 1);
      x.Set(place, bad);
      HostTensor sums(DType::kFloat64, {2});
      backend().SumOfSquares(x.view(), sums.view(), {});
      EXPECT_EQ(std::isfinite(sums.At(0)), place >= kNormBlockElements);
      EXPECT_EQ(std::isfinite(sums.At(1)), place < kNormBlockElements);
    }
  }
}

// The largest floats: their squares overflow fp32 but not the sum's fp64.
TEST_P(BackendTest, SumOfSquaresOfLargeNumbersIsFinite) {
  HostTensor x(DType::kFloat32, {100});
  for (int64_t i = 0; i < 100; ++i) x.Set(i, 3e38);
  HostTensor sums(DType::kFloat64, {1});
  backend().SumOfSquares(x.view(), sums.view(), {});
  EXPECT_TRUE(std::isfinite(sums.At(0)));
}

// One correctly rounded sum per element: the reference's bits. In place, as the gradient tree uses
// it.
void CheckAdd(Backend& backend, Backend& reference, int64_t n, DType dtype) {
  HostTensor a = RandomTensor(dtype, {n}, 1);
  const HostTensor b = RandomTensor(dtype, {n}, 2);
  HostTensor expected(dtype, {n});
  reference.Add(a.view(), b.view(), expected.view(), {});
  backend.Add(a.view(), b.view(), a.view(), {});
  ExpectClose(a.Values(), expected.Values(), std::vector<double>(a.size(), 0.0), "a + b");
}

TEST_P(BackendTest, AddHasTheBitsOfTheReference) {
  for (const int64_t n : {int64_t{1}, int64_t{1001}, int64_t{200003}})
    CheckAdd(backend(), reference(), n, dtype());
}

TEST_P(BackendTest, CastRoundsLikeTheReference) {
  HostTensor x = RandomTensor(DType::kFloat32, {70001}, 1);
  const float special[] = {0.0f,
                           -0.0f,
                           INFINITY,
                           -INFINITY,
                           1.00390625f,                        // half way between two bf16 numbers
                           1.01171875f,                        // half way, the other parity
                           std::numeric_limits<float>::max(),  // rounds to infinity
                           std::numeric_limits<float>::denorm_min(),
                           1e-39f};
  for (size_t i = 0; i < std::size(special); ++i) x.Set(static_cast<int64_t>(i), special[i]);
  HostTensor narrow(dtype(), x.shape());
  HostTensor expected(dtype(), x.shape());
  backend().Cast(x.view(), narrow.view(), {});
  reference().Cast(x.view(), expected.view(), {});
  EXPECT_TRUE(narrow.SameBits(expected));
  HostTensor wide(DType::kFloat32, x.shape());
  backend().Cast(narrow.view(), wide.view(), {});
  EXPECT_EQ(wide.Values(), narrow.Values());
}

TEST_P(BackendTest, CastKeepsNotANumber) {
  HostTensor x(DType::kFloat32, {33});
  x.Set(5, NAN);
  HostTensor y(dtype(), {33});
  backend().Cast(x.view(), y.view(), {});
  for (int64_t i = 0; i < 33; ++i) EXPECT_EQ(std::isnan(y.At(i)), i == 5);
}

// What `args` says, which is without tensors, and nothing else.
void CheckCopy(Backend& backend, CopyRowsArgs args, DType dtype) {
  const int64_t source_elems = args.source_begin + args.rows * args.source_stride;
  const int64_t destination_elems = args.destination_begin + args.rows * args.destination_stride;
  const HostTensor source = RandomTensor(dtype, {source_elems + 8}, 1);
  HostTensor after = RandomTensor(dtype, {destination_elems + 8}, 2);
  HostTensor expected = after;
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t c = 0; c < args.columns; ++c)
      expected.Set(args.destination_begin + r * args.destination_stride + c,
                   source.At(args.source_begin + r * args.source_stride + c));
  }
  args.source = source.view();
  args.destination = after.view();
  backend.CopyRows(args, {});
  EXPECT_TRUE(after.SameBits(expected)) << "begin " << args.source_begin << ", stride "
                                        << args.source_stride << ", " << args.rows << " rows";
}

TEST_P(BackendTest, CopyRowsMovesStridedRowsAndNothingElse) {
  for (const MatrixSize& size : kMatrixSizes) CheckRows(backend(), size, dtype());
}

// As the recurrence memory moves them: all of it in whole words, or beginning anywhere, or every
// second row.
TEST_P(BackendTest, CopyRowsMovesAlignedAndUnalignedRows) {
  for (const int64_t begin : {0, 1, 2, 4, 8}) {
    for (const int64_t stride : {48, 96})
      CheckCopy(backend(), {{}, begin, stride, {}, 0, 48, /*rows=*/9, /*columns=*/48}, dtype());
  }
}

TEST_P(BackendTest, CopyRowsOfNothingWritesNothing) {
  CheckCopy(backend(), {{}, 0, 4, {}, 0, 4, /*rows=*/0, /*columns=*/4}, dtype());
  CheckCopy(backend(), {{}, 0, 4, {}, 0, 4, /*rows=*/4, /*columns=*/0}, dtype());
}

TEST_P(BackendTest, GatherTakesRowsAndScatterAddsThem) {
  constexpr int64_t kRows = 40;
  for (const int64_t columns : {1, 65}) {
    const HostTensor x = RandomTensor(dtype(), {kRows, columns}, 1);
    // Every second row, last first.
    std::vector<int32_t> rows;
    for (int32_t r = kRows - 1; r >= 0; r -= 2) rows.push_back(r);
    const auto count = static_cast<int64_t>(rows.size());
    HostTensor gathered(dtype(), {count, columns});
    backend().GatherRows({x.view(), rows.data(), count, false, gathered.view()}, {});
    for (int64_t i = 0; i < gathered.size(); ++i)
      EXPECT_EQ(gathered.At(i), x.At(rows[i / columns] * columns + i % columns));

    HostTensor y = RandomTensor(dtype(), {kRows, columns}, 2);
    HostTensor expected = y;
    backend().GatherRows({gathered.view(), rows.data(), count, true, y.view()}, {});
    reference().GatherRows({gathered.view(), rows.data(), count, true, expected.view()}, {});
    EXPECT_TRUE(y.SameBits(expected));
  }
}

TEST_P(BackendTest, FillZeroClearsEverything) {
  HostTensor x = RandomTensor(dtype(), {300001}, 1);
  backend().FillZero(x.view(), {});
  EXPECT_TRUE(x.SameBits(HostTensor(dtype(), {300001})));
}

TEST_P(BackendTest, FillZeroClearsNothingElse) {
  for (const int64_t begin : {0, 1, 5}) {
    for (const int64_t count : {0, 1, 3, 40}) {
      HostTensor x = RandomTensor(dtype(), {60}, 1);
      HostTensor expected = x;
      for (int64_t i = begin; i < begin + count; ++i) expected.Set(i, 0);
      backend().FillZero(x.view().Slice(begin, {count}), {});
      EXPECT_TRUE(x.SameBits(expected)) << begin << " + " << count;
    }
  }
}

}  // namespace

void CheckFlat(Backend& backend, Backend& reference, int64_t elements, DType dtype) {
  CheckAdd(backend, reference, elements, dtype);
  CheckSumOfSquares(backend, reference, elements);
  CheckAdamW(backend, reference, elements, AdamForm::kTorch, dtype);
}

void CheckRows(Backend& backend, const MatrixSize& size, DType dtype) {
  const auto [rows, columns] = size;
  CheckCopy(backend, {{}, 2, columns + 3, {}, 1, columns + 5, rows, columns}, dtype);
}

}  // namespace anyorder::kernels
