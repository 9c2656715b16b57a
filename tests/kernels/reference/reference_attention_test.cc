// The reference's attention itself: gradients by finite differences, visibility by an independent
// formula, the relative shift by the published pad-reshape-slice, shared keys by repeated ones.

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/arguments.h"
#include "tests/kernels/attention_bounds.h"
#include "tests/testing/finite_difference.h"

namespace anyorder::kernels {
namespace {

// Attention with every term, whose visibility a test then sets.
using Problem = testing::AttentionData<double, double>;

std::vector<double> Random(int64_t count, uint64_t seed) {
  return test::RandomTensor(DType::kFloat64, {count}, seed).Values();
}

// Everything visible; positions in order: key j at j, row i after the keys that precede it.
Problem MakeProblem(AttentionShape shape) {
  Problem p;
  p.scale = 0.5f;
  const int64_t n = shape.num_rows();
  const int64_t keys = shape.batch_size * shape.num_keys;
  const int64_t m = shape.model_dim();
  p.min_distance = -shape.num_keys;
  shape.num_tables = 2;
  shape.num_distances = 2 * shape.num_keys + 1;
  p.q = Random(n * m, 1);
  p.k = Random(keys * shape.keys_dim(), 2);
  p.v = Random(keys * shape.keys_dim(), 3);
  p.dout = Random(n * m, 20);
  p.relative = Random(2 * shape.num_distances * m, 4);
  p.content_bias = Random(m, 5);
  p.position_bias = Random(m, 6);
  p.segment_bias = Random(m, 7);
  p.segment_embedding = Random(2 * m, 8);
  // Fewer distances than there are, so that both ends stand for several.
  p.min_bias_distance = -2;
  shape.num_bias_distances = 4;
  p.distance_bias = Random(2 * 4 * shape.num_heads, 11);
  p.shape = shape;
  p.row_ids = test::RowIds(n);
  for (int64_t lane = 0; lane < shape.batch_size; ++lane)
    p.table_of_lane.push_back(static_cast<int32_t>(lane % 2));
  for (int64_t row = 0; row < n; ++row) p.rows.Add(static_cast<int32_t>(row % shape.num_keys), 0);
  for (int64_t key = 0; key < keys; ++key)
    p.keys.Add(static_cast<int32_t>(key % shape.num_keys), 0);
  p.rows.seg = test::RandomIds(n, 2, 9);
  p.keys.seg = test::RandomIds(keys, 2, 10);
  return p;
}

// What is left are queries, keys, values and the bias by distance.
void LeaveOutTerms(Problem* p) {
  p->relative = p->content_bias = p->position_bias = p->segment_bias = p->segment_embedding = {};
  p->shape.num_distances = 0;
}

// With its results; without `backward` only out and lse.
Problem Solve(Problem p, bool backward = true) {
  SizeOutputs(&p);
  return testing::RunReference(std::move(p), backward);
}

void CheckGradients(Problem p) {
  const Problem solved = Solve(p);
  const auto loss = [&] { return test::WeightedSum(Solve(p, false).out, p.dout); };
  // Outputs are means of v, at most doubled by dropout.
  const double magnitude = 10 * test::SumOfMagnitudes(p.dout);
  const auto expect = [&](const char* name, auto& x, const auto& dx) {
    test::ExpectGradient(absl::MakeSpan(x), dx, loss, magnitude, name);
  };
  expect("q", p.q, solved.dq);
  expect("k", p.k, solved.dk);
  expect("v", p.v, solved.dv);
  expect("relative", p.relative, solved.drelative);
  expect("content bias", p.content_bias, solved.dcontent_bias);
  expect("position bias", p.position_bias, solved.dposition_bias);
  expect("segment bias", p.segment_bias, solved.dsegment_bias);
  expect("segments", p.segment_embedding, solved.dsegment_embedding);
  expect("distance bias", p.distance_bias, solved.ddistance_bias);
}

const AttentionShape kSmall{.batch_size = 2,
                            .content_rows = 3,
                            .query_rows = 2,
                            .num_keys = 5,
                            .num_heads = 2,
                            .head_dim = 3};

// The ways in which visibility is limited, one bit each.
enum Limit { kOrder = 1, kGroups = 2, kDocuments = 4, kBands = 8, kGlobals = 16, kAll = 31 };

Problem LimitedProblem(int limits, const AttentionShape& shape = kSmall) {
  Problem p = MakeProblem(shape);
  const int64_t n = shape.num_rows();
  const int64_t keys = shape.batch_size * shape.num_keys;
  if ((limits & kOrder) != 0) {
    p.rows.order = test::RandomIds(n, 5, 31);
    p.keys.order = test::RandomIds(keys, 5, 32);
    p.keys.order[1] = kKeyNever;
  }
  if ((limits & kGroups) != 0) {
    p.rows.grp = test::RandomIds(n, 2, 33);
    p.keys.grp = test::RandomIds(keys, 3, 34);
    p.rows.grp[0] = -1;
    p.keys.grp[0] = -1;
  }
  if ((limits & kDocuments) != 0) {
    p.rows.doc = test::RandomIds(n, 2, 35);
    p.keys.doc = test::RandomIds(keys, 2, 36);
    p.keys.doc[0] = kDocAny;
    p.keys.doc[2] = kDocPad;
  }
  for (int64_t head = 0; (limits & kBands) != 0 && head < shape.num_heads; ++head)
    p.bands.push_back(head % 2 == 0 ? Band{1, 0, 2} : Band{2, 1, 1});
  if ((limits & kGlobals) != 0) {
    p.rows.glob[0] = 1;
    p.keys.glob[3] = 1;
  }
  return p;
}

TEST(ReferenceAttentionTest, GradientsMatchFiniteDifferencesForEveryLimitOfVisibility) {
  for (const int limits :
       {0, +kOrder, kOrder | kGroups, +kDocuments, +kBands, kBands | kGlobals, +kAll}) {
    SCOPED_TRACE(limits);
    CheckGradients(LimitedProblem(limits));
  }
}

TEST(ReferenceAttentionTest, GradientsMatchFiniteDifferencesWithDropout) {
  Problem p = LimitedProblem(kOrder | kDocuments);
  p.dropout = MakeDropout(3, 4, 5, 0.3);
  CheckGradients(p);
}

TEST(ReferenceAttentionTest, GradientsMatchFiniteDifferencesWithoutOptionalTerms) {
  Problem p = LimitedProblem(kOrder);
  LeaveOutTerms(&p);
  CheckGradients(p);  // the bias by distance alone
  p.distance_bias = {};
  p.shape.num_tables = 0;
  CheckGradients(p);
}

TEST(ReferenceAttentionTest, GradientsMatchFiniteDifferencesWithOneStreamOnly) {
  AttentionShape content = kSmall;
  content.query_rows = 0;
  CheckGradients(LimitedProblem(kOrder, content));
  AttentionShape query = kSmall;
  query.content_rows = 0;
  CheckGradients(LimitedProblem(kOrder, query));
}

// As transformers' repeat_kv: head h gets what key/value head h / sharing has.
std::vector<double> Repeated(const std::vector<double>& x, int64_t head_dim, int64_t sharing) {
  std::vector<double> repeated;
  for (auto head = x.begin(); head != x.end(); head += head_dim) {
    for (int64_t i = 0; i < sharing; ++i) repeated.insert(repeated.end(), head, head + head_dim);
  }
  return repeated;
}
// The gradient of Repeated.
std::vector<double> SummedHeads(const std::vector<double>& x, int64_t head_dim, int64_t sharing) {
  std::vector<double> sums(x.size() / static_cast<size_t>(sharing), 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto d = static_cast<size_t>(head_dim);
    sums[i / d / static_cast<size_t>(sharing) * d + i % d] += x[i];
  }
  return sums;
}
double Largest(const std::vector<double>& x) {
  double largest = 0;
  for (const double value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// H heads over KV key/value heads, against H heads over keys and values repeated. Only dk and dv
// add their terms in another order.
void ExpectRepeatedKeysGiveTheSame(int64_t heads, int64_t kv_heads, int limits) {
  SCOPED_TRACE(::testing::Message() << heads << " heads, " << kv_heads << " of keys");
  AttentionShape shape = kSmall;
  shape.num_heads = heads;
  shape.num_kv_heads = kv_heads;
  const int64_t sharing = heads / kv_heads;
  Problem p = LimitedProblem(limits, shape);
  p.dropout = MakeDropout(3, 4, 5, 0.3);
  Problem all = p;
  all.shape.num_kv_heads = 0;
  all.k = Repeated(p.k, shape.head_dim, sharing);
  all.v = Repeated(p.v, shape.head_dim, sharing);
  const Problem shared = Solve(p);
  Problem expected = Solve(all);
  expected.dk = SummedHeads(expected.dk, shape.head_dim, sharing);
  expected.dv = SummedHeads(expected.dv, shape.head_dim, sharing);
  // Of a pair, with probabilities of at most 1 and |dp| below `dp`.
  const double kept = p.dropout.scale();
  const double dp = kept * static_cast<double>(shape.head_dim) * Largest(p.dout) * Largest(p.v);
  const double query = Largest(p.q) + Largest(p.content_bias);
  const double terms = static_cast<double>(shape.num_rows() * sharing);
  const double roundings = 2 * terms * test::Gamma(terms + 1, 0x1p-53);
  const auto expect = [&](const char* name, const auto& actual, const auto& right) {
    const bool is_dk = name == std::string_view("dk");
    if (!is_dk && name != std::string_view("dv")) {
      EXPECT_EQ(actual, right) << name;
      return;
    }
    const double term = is_dk ? p.scale * 2 * dp * query : kept * Largest(p.dout);
    test::ExpectClose(actual, right, std::vector<double>(right.size(), roundings * term), name);
  };
  testing::VisitResults(expect, shared, expected);
}

TEST(ReferenceAttentionTest, SharedKeysEqualRepeatedOnes) {
  for (const auto& [heads, kv_heads] :
       {std::pair(2, 1), {4, 2}, {6, 2}, {3, 3}, {8, 2}, {7, 1}, {14, 2}}) {
    for (const int limits : {0, +kOrder, +kAll}) {
      ExpectRepeatedKeysGiveTheSame(heads, kv_heads, limits);
    }
  }
}

TEST(ReferenceAttentionTest, GradientsOfSharedKeysMatchFiniteDifferences) {
  AttentionShape shape = kSmall;
  shape.num_heads = 4;
  for (const int64_t kv_heads : {1, 2}) {
    shape.num_kv_heads = kv_heads;
    CheckGradients(LimitedProblem(kAll, shape));
  }
}

TEST(ReferenceAttentionDeathTest, HeadsThatDoNotShareKeysEvenlyAreRefused) {
  AttentionShape shape = kSmall;
  shape.num_heads = 4;
  shape.num_kv_heads = 2;
  Problem p = LimitedProblem(0, shape);
  SizeOutputs(&p);
  CheckArguments(p.Forward());
  p.shape.num_kv_heads = 0;
  EXPECT_DEATH(CheckArguments(p.Forward()), "k has shape \\[60\\], expected 120 elements");
  for (const int64_t kv_heads : {-1, 3, 8}) {
    p.shape.num_kv_heads = kv_heads;
    EXPECT_DEATH(CheckArguments(p.Forward()),
                 absl::StrCat("attention of 4 heads over ", kv_heads,
                              " key/value heads: the first must be a multiple of the second"));
  }
}

TEST(ReferenceAttentionTest, RowThatSeesNothingGivesZero) {
  Problem p = MakeProblem(kSmall);
  constexpr int64_t kBlind = 4;
  p.rows.order[kBlind] = -1;
  const Problem solved = Solve(p);
  const int64_t m = p.shape.model_dim();
  for (int64_t i = kBlind * m; i < (kBlind + 1) * m; ++i) {
    EXPECT_EQ(solved.out[i], 0);
    EXPECT_EQ(solved.dq[i], 0);
    p.dout[i] = 0;
  }
  for (int64_t head = 0; head < p.shape.num_heads; ++head)
    EXPECT_EQ(solved.lse[kBlind * p.shape.num_heads + head], -INFINITY);
  // Its dout reaches nothing: the other gradients are those of a problem in which it is 0.
  const Problem expected = Solve(p);
  EXPECT_EQ(solved.dk, expected.dk);
  EXPECT_EQ(solved.dv, expected.dv);
  EXPECT_EQ(solved.drelative, expected.drelative);
}

// With zero queries every visible key has the same weight, and one-hot values tell which keys those
// are.
TEST(ReferenceAttentionTest, WeightsAreUniformOverExactlyTheVisibleKeys) {
  for (const int limits : {0, +kOrder, +kGroups, +kDocuments, +kBands, kBands | kGlobals, +kAll}) {
    AttentionShape shape = kSmall;
    shape.head_dim = shape.num_keys;
    Problem p = LimitedProblem(limits, shape);
    LeaveOutTerms(&p);
    p.distance_bias = {};
    p.shape.num_tables = 0;
    p.q.assign(p.q.size(), 0);
    const int64_t m = shape.model_dim();
    SetUnitValues(&p);
    const Problem solved = Solve(p, /*backward=*/false);
    for (int64_t row = 0; row < shape.num_rows(); ++row) {
      const int64_t lane = shape.LaneOfRow(row);
      for (int64_t head = 0; head < shape.num_heads; ++head) {
        std::vector<bool> sees;
        for (int64_t j = lane * shape.num_keys; j < (lane + 1) * shape.num_keys; ++j) {
          const bool document =
              p.keys.doc[j] == -2 || (p.keys.doc[j] != -1 && p.keys.doc[j] == p.rows.doc[row]);
          const bool order = p.keys.order[j] <= p.rows.order[row];
          const bool group = p.rows.grp[row] != -1 && p.rows.grp[row] == p.keys.grp[j];
          const int distance = p.rows.pos[row] - p.keys.pos[j];
          bool near = true;
          if (!p.bands.empty()) {
            const Band& band = p.bands[head];
            near = distance % band.stride == 0 && distance <= band.left * band.stride &&
                   -distance <= band.right * band.stride;
          }
          sees.push_back(document && (order || group) &&
                         (near || p.rows.glob[row] == 1 || p.keys.glob[j] == 1));
        }
        const auto count = std::count(sees.begin(), sees.end(), true);
        for (int64_t j = 0; j < shape.num_keys; ++j) {
          const double weight = solved.out[row * m + head * shape.head_dim + j];
          const double expected = sees[j] ? 1.0 / static_cast<double>(count) : 0;
          EXPECT_NEAR(weight, expected, 8 * 0x1p-53) << "row " << row << " key " << j;
        }
      }
    }
  }
}

// Without queries the weights are softmax(bias), whatever the scale; lane 1 has the other table.
TEST(ReferenceAttentionTest, BiasByDistanceIsAddedAfterTheScale) {
  AttentionShape shape = kSmall;
  shape.head_dim = shape.num_keys;
  Problem p = MakeProblem(shape);
  LeaveOutTerms(&p);
  p.q.assign(p.q.size(), 0);
  p.scale = 0.125f;
  const int64_t m = shape.model_dim();
  SetUnitValues(&p);
  const Problem solved = Solve(p, /*backward=*/false);
  for (int64_t row = 0; row < shape.num_rows(); ++row) {
    const int64_t lane = shape.LaneOfRow(row);
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      std::vector<double> weights;
      for (int64_t j = 0; j < shape.num_keys; ++j) {
        // Distances -2 and below, -1, 0, 1 and above.
        const int distance = p.rows.pos[row] - p.keys.pos[lane * shape.num_keys + j];
        const int64_t r = distance <= -2 ? 0 : distance == -1 ? 1 : distance == 0 ? 2 : 3;
        weights.push_back(std::exp(p.distance_bias[(lane * 4 + r) * shape.num_heads + head]));
      }
      double sum = 0;
      for (const double weight : weights) sum += weight;
      for (int64_t j = 0; j < shape.num_keys; ++j) {
        const double weight = solved.out[row * m + head * shape.head_dim + j];
        const double expected = weights[j] / sum;
        // Exponents of magnitude below 8, five terms.
        EXPECT_NEAR(weight, expected, expected * 8 * test::Gamma(16, 0x1p-53));
      }
    }
  }
}

// XLNet's own way to the position scores (rel_shift of modeling.py, spelled out): scores of all
// distances K, K-1, ..., -Q+1, reshape [Q, R] to [R, Q], drop the first row, reshape to [Q, R-1],
// keep K columns.
std::vector<double> PadReshapeSlice(const std::vector<double>& scores, int64_t q, int64_t k) {
  const int64_t r = k + q;
  const std::vector<double> dropped(scores.begin() + q, scores.end());
  std::vector<double> shifted;
  for (int64_t i = 0; i < q; ++i) {
    for (int64_t j = 0; j < k; ++j) shifted.push_back(dropped[i * (r - 1) + j]);
  }
  return shifted;
}

// Lane 0 reads forward: distance x has encoding e(x). Lane 1 reads backward: e(-x).
TEST(ReferenceAttentionTest, RelativeScoresEqualPadReshapeSliceInBothDirections) {
  constexpr int64_t kRows = 4;
  constexpr int64_t kMemory = 3;
  constexpr int64_t kKeys = kRows + kMemory;
  constexpr int64_t kDim = kKeys;
  Problem p = MakeProblem({.batch_size = 2,
                           .content_rows = kRows,
                           .query_rows = 0,
                           .num_keys = kKeys,
                           .num_heads = 1,
                           .head_dim = kDim});
  p.k.assign(p.k.size(), 0);
  p.content_bias = p.segment_bias = p.segment_embedding = p.distance_bias = {};
  p.shape.num_bias_distances = 0;
  SetUnitValues(&p);
  for (int64_t row = 0; row < 2 * kRows; ++row)
    p.rows.pos[row] = static_cast<int32_t>(row % kRows + kMemory);
  const std::vector<double> encoding = Random((2 * kKeys + 1) * kDim, 40);
  const auto encode = [&](int64_t x, int64_t d) { return encoding[(x + kKeys) * kDim + d]; };
  for (int64_t r = 0; r < p.shape.num_distances; ++r) {
    for (int64_t d = 0; d < kDim; ++d) {
      const int64_t x = p.min_distance + r;
      p.relative[r * kDim + d] = encode(x, d);
      p.relative[(p.shape.num_distances + r) * kDim + d] = encode(-x, d);
    }
  }
  const Problem solved = Solve(p, /*backward=*/false);
  for (const int64_t lane : {0, 1}) {
    std::vector<double> scores;
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t x = kKeys; x > -kRows; --x) {
        double score = 0;
        for (int64_t d = 0; d < kDim; ++d) {
          score += (p.q[(lane * kRows + i) * kDim + d] + p.position_bias[d]) *
                   encode(lane == 0 ? x : -x, d);
        }
        scores.push_back(p.scale * score);
      }
    }
    const auto shifted = PadReshapeSlice(scores, kRows, kKeys);
    for (int64_t i = 0; i < kRows; ++i) {
      const double lse = solved.lse[lane * kRows + i];
      for (int64_t j = 0; j < kKeys; ++j) {
        const double expected = std::exp(shifted[i * kKeys + j] - lse);
        const double weight = solved.out[(lane * kRows + i) * kDim + j];
        // Scores of magnitude below 32 are off by 2 * kDim roundings, and so is their exponential.
        EXPECT_NEAR(weight, expected, expected * 32 * test::Gamma(4 * kDim, 0x1p-53));
      }
    }
  }
}

TEST(ReferenceAttentionTest, DropoutKeepsExpectedWeightAndFollowsTheKeepFunction) {
  AttentionShape shape = kSmall;
  shape.head_dim = shape.num_keys;
  Problem p = MakeProblem(shape);
  const int64_t m = shape.model_dim();
  SetUnitValues(&p);
  const Problem plain = Solve(p, /*backward=*/false);
  p.dropout = MakeDropout(3, 4, 5, 0.4);
  const Problem dropped = Solve(p, /*backward=*/false);
  EXPECT_EQ(plain.lse, dropped.lse);
  for (size_t i = 0; i < dropped.out.size(); ++i) {
    const auto row = static_cast<uint32_t>(p.row_ids[i / m]);
    const auto head = static_cast<uint32_t>(i % m / shape.head_dim);
    const auto key = static_cast<uint32_t>(i % shape.head_dim);
    const double factor = KeepAttention(p.dropout, row, head, key) ? p.dropout.scale() : 0;
    EXPECT_NEAR(dropped.out[i], factor * plain.out[i], 4 * 0x1p-53);
  }
}

}  // namespace
}  // namespace anyorder::kernels
