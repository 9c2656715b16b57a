// Attention of numbers that are none: what a row makes of a NaN or an infinity among its scores is
// the same on every backend. Finite numbers have tests of their own, which know each backend's
// tiles.

#include <cmath>
#include <limits>

#include "tests/kernels/attention_bounds.h"
#include "tests/kernels/attention_scenarios.h"
#include "tests/kernels/backend_fixture.h"

namespace anyorder::kernels {
namespace {

using testing::AttentionData;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Infinities of the same sign, NaNs, and numbers within the bound.
template <typename T>
void ExpectSameKind(const char* name, const std::vector<T>& actual,
                    const std::vector<double>& expected, const std::vector<double>& bound) {
  ASSERT_EQ(actual.size(), expected.size());
  int64_t num_nan = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = testing::ToDouble(actual[i]);
    num_nan += std::isnan(expected[i]) ? 1 : 0;
    const bool is_right = std::isnan(expected[i])   ? std::isnan(a)
                          : std::isinf(expected[i]) ? a == expected[i]
                                                    : std::fabs(a - expected[i]) <= bound[i];
    ASSERT_TRUE(is_right) << name << "[" << i << "] is " << a << ", expected " << expected[i];
  }
  EXPECT_GT(num_nan, 0) << name;
  EXPECT_LT(num_nan, static_cast<int64_t>(actual.size())) << name;
}

// A gradient may have more NaNs than the formula: a product with 0 does not stop them.
template <typename T>
void ExpectNanWhereExpected(const char* name, const std::vector<T>& actual,
                            const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  int64_t num_nan = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (!std::isnan(expected[i])) continue;
    ++num_nan;
    ASSERT_TRUE(std::isnan(testing::ToDouble(actual[i]))) << name << "[" << i << "]";
  }
  EXPECT_GT(num_nan, 0) << name;
}

template <typename T>
void ExpectSpreadsLikeTheReference(Backend& backend, AttentionData<T, float> data) {
  const AttentionData<double, double> exact = testing::RunReference(testing::InDouble(data));
  const testing::AttentionErrorAnalysis analysis(exact, DTypeOf<T>());
  testing::RunOn(backend, &data);
  ExpectSameKind("lse", data.lse, exact.lse, analysis.bounds().lse);
  ExpectSameKind("out", data.out, exact.out, analysis.bounds().out);
  const auto expect = [](const char* name, const auto& actual, const auto& expected) {
    // "Same" is what the kernels have by negating "different".
    if (name[0] != 'd' || name == std::string_view("dsegment_embedding")) return;
    if (!expected.empty()) ExpectNanWhereExpected(name, actual, expected);
  };
  testing::VisitResults(expect, data, exact);
}

// Calls test.template operator()<T>() with the dtype's type.
template <typename Test>
void WithType(DType dtype, Test&& test) {
  if (dtype == DType::kBFloat16)
    test.template operator()<BFloat16>();
  else
    test.template operator()<float>();
}

// Sets one element of head `head` in row `row` of a matrix.
template <typename T>
void Plant(std::vector<T>* matrix, int64_t row, int64_t head, double value) {
  (*matrix)[row * 2 * 64 + head * 64 + 11] = T(static_cast<float>(value));
}

// All scores of these rows, which includes the only ones that they have.
TEST_P(BackendTest, AttentionOfANanRowIsNan) {
  WithType(dtype(), [&]<typename T>() {
    auto data = testing::MakeData<T, float>(testing::BothFamiliesCase(2), 41);
    const int64_t lane = data.shape.content_rows;
    const int64_t query = 2 * lane;
    for (const int64_t row : {int64_t{7}, lane + 7, query + 2, query + data.shape.query_rows + 3})
      Plant(&data.q, row, 1, kNan);
    ExpectSpreadsLikeTheReference(backend(), std::move(data));
  });
}

// `value` in a key of both lanes.
template <typename T>
void ExpectKeySpreadsLikeTheReference(Backend& backend, int64_t slot, double value, uint64_t seed) {
  auto data = testing::MakeData<T, float>(testing::BothFamiliesCase(2), seed);
  for (const int64_t lane : {0, 1}) Plant(&data.k, lane * data.shape.num_keys + slot, 0, value);
  ExpectSpreadsLikeTheReference(backend, std::move(data));
}

// One score among others, of the rows that see it, in the first and in a later tile.
TEST_P(BackendTest, AttentionToANanKeyIsNan) {
  WithType(dtype(), [&]<typename T>() {
    for (const int64_t slot : {25, 70})
      ExpectKeySpreadsLikeTheReference<T>(backend(), slot, kNan, 42);
  });
}

// Scores of plus infinity have no softmax; those of minus infinity are as good as not seen.
TEST_P(BackendTest, AttentionToAnInfiniteKeyIsNanOrWithoutIt) {
  WithType(dtype(), [&]<typename T>() {
    ExpectKeySpreadsLikeTheReference<T>(backend(), 25, kInfinity, 43);
  });
}

// Heads that share keys and values: of the GPU, in both families of kernels.
TEST_P(BackendTest, AttentionOfSharedKeysAgrees) {
  WithType(dtype(), [&]<typename T>() {
    for (const int64_t kv_heads : {1, 2}) {
      auto c = testing::SharedBy(3, testing::BothFamiliesCase(kv_heads));
      c.dropout_rate = 0.1;
      testing::ExpectAgreement(testing::MakeData<T, float>(c, 45),
                               [&](AttentionData<T, float>* x) { testing::RunOn(backend(), x); });
    }
  });
}

// A bias of minus infinity hides: from the first head everything, from the second what is nearer
// than four positions.
TEST_P(BackendTest, AttentionHidesByABiasOfMinusInfinity) {
  WithType(dtype(), [&]<typename T>() {
    auto data =
        testing::MakeData<T, float>(testing::WithBias(testing::CausalCase(20, 60), 0, 9), 44);
    for (size_t i = 0; i < data.distance_bias.size(); ++i) {
      if (i % 2 == 0 || i % 18 < 8) data.distance_bias[i] = T(static_cast<float>(-kInfinity));
    }
    const AttentionData<double, double> exact = testing::RunReference(testing::InDouble(data));
    testing::RunOn(backend(), &data);
    for (size_t i = 0; i < exact.lse.size(); ++i) {
      ASSERT_EQ(std::isinf(exact.lse[i]), i % 2 == 0);
      ASSERT_EQ(std::isinf(data.lse[i]), i % 2 == 0) << "lse[" << i << "] is " << data.lse[i];
    }
    for (size_t i = 0; i < exact.out.size(); ++i) {
      const bool is_hidden = i / 64 % 2 == 0;
      for (const auto* x : {&data.out, &data.dq}) {
        const double a = testing::ToDouble((*x)[i]);
        ASSERT_TRUE(is_hidden ? a == 0 : std::isfinite(a)) << i << ": " << a;
      }
    }
    for (const auto* x : {&data.dk, &data.dv}) {
      for (const T value : *x) ASSERT_TRUE(std::isfinite(testing::ToDouble(value)));
    }
  });
}

}  // namespace
}  // namespace anyorder::kernels
