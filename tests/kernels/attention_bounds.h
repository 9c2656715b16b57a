// Attention of some precision against the reference in double, and how far a correct one may be
// from it: first-order error analysis, one bound for each element of each output.
//
// u is the unit roundoff of operands (2^-24 for fp32, 2^-8 where products take bf16), e = 2^-24
// that of accumulation; a sum of n terms of absolute sum A is off by at most n e A. Errors of the
// scores become relative errors of the probabilities; probabilities and their gradients are rounded
// to u before the second products. Nothing here is tuned: the only slack is the factor 2 for terms
// of second order.

#pragma once

#include <cmath>
#include <vector>

#include "kernels/backend.h"
#include "tests/kernels/attention_case.h"
#include "tests/testing/expect_close.h"

namespace anyorder::kernels::testing {

// Of each result of attention, something.
template <typename T>
struct AttentionResults {
  T out, lse, dq, dk, dv, drelative, dcontent_bias, dposition_bias, dsegment_bias;
  T dsegment_embedding, ddistance_bias;
};
using AttentionBounds = AttentionResults<std::vector<double>>;

// `exact` holds results of the reference; u above is that of `dtype`.
class AttentionErrorAnalysis {
 public:
  using Data = AttentionData<double, double>;

  AttentionErrorAnalysis(const Data& exact, DType dtype)
      : x_(exact), s_(exact.shape), u_(test::UnitRoundoff(dtype)) {
    VisitPairs(b_, exact, [](auto& bound, const auto& x) { bound.assign(x.size(), 0); });
    bias_terms_.assign(exact.ddistance_bias.size(), BiasTerms());
    in_ = exact.Inputs();
    for (int64_t row = 0; row < s_.num_rows(); ++row) {
      for (int64_t head = 0; head < s_.num_heads; ++head) AddRow(row, head);
    }
    Finish();
  }
  const AttentionBounds& bounds() const { return b_; }

 private:
  // One pair's absolute sums and exact values.
  struct Pair {
    int64_t key = 0;  // global
    int64_t distance = -1;
    int64_t bias = -1;  // element of distance_bias
    bool other_segment = false;
    double magnitude = 0;  // of the score's terms
    double probability = 0;
    double factor = 1;  // of dropout
    double dp = 0, dp_magnitude = 0;
    double ds = 0, ds_error = 0;
  };

  static double At(const std::vector<double>& x, int64_t i) { return x.empty() ? 0.0 : x[i]; }
  static void Add(std::vector<double>* x, int64_t i, double value) {
    if (!x->empty()) (*x)[i] += value;
  }

  int64_t Column(int64_t head, int64_t d) const { return head * s_.head_dim + d; }
  // The element of keys and values that a head reads.
  int64_t KeyElement(int64_t key, int64_t head, int64_t d) const {
    return key * s_.keys_dim() + Column(head / s_.heads_per_kv(), d);
  }

  Pair MakePair(int64_t row, int64_t head, int64_t j) const {
    const int64_t lane = s_.LaneOfRow(row);
    const int64_t m = s_.model_dim();
    Pair p;
    p.key = lane * s_.num_keys + j;
    const int64_t distance = int64_t{in_.rows.pos[row]} - in_.keys.pos[p.key];
    const int64_t table = x_.table_of_lane[lane];
    if (!x_.relative.empty()) p.distance = table * s_.num_distances + distance - x_.min_distance;
    if (!x_.distance_bias.empty()) {
      const int64_t last = s_.num_bias_distances - 1;
      const int64_t r = std::min(last, std::max<int64_t>(0, distance - x_.min_bias_distance));
      p.bias = (table * s_.num_bias_distances + r) * s_.num_heads + head;
    }
    p.other_segment = in_.rows.seg[row] != in_.keys.seg[p.key];
    double score = 0;
    for (int64_t d = 0; d < s_.head_dim; ++d) {
      const int64_t c = Column(head, d);
      const double q = At(x_.q, row * m + c);
      const int64_t of_key = KeyElement(p.key, head, d);
      const double content = (q + At(x_.content_bias, c)) * At(x_.k, of_key);
      const double position =
          p.distance < 0 ? 0 : (q + At(x_.position_bias, c)) * At(x_.relative, p.distance * m + c);
      const double biased = q + At(x_.segment_bias, c);
      const double same = At(x_.segment_embedding, c);
      const double other = At(x_.segment_embedding, m + c);
      score += content + position + biased * (p.other_segment ? other : same);
      p.magnitude += std::abs(content) + std::abs(position) +
                     std::abs(biased) * (2 * std::abs(same) + std::abs(other));
      p.dp += x_.dout[row * m + c] * At(x_.v, of_key);
      p.dp_magnitude += std::abs(x_.dout[row * m + c] * At(x_.v, of_key));
    }
    const double bias = p.bias < 0 ? 0.0 : x_.distance_bias[p.bias];
    p.magnitude = p.magnitude * in_.scale + std::abs(bias);
    p.probability = std::exp(score * in_.scale + bias - x_.lse[row * s_.num_heads + head]);
    if (x_.dropout.enabled())
      p.factor = KeepAttention(x_.dropout, static_cast<uint32_t>(x_.row_ids[row]),
                               static_cast<uint32_t>(head), static_cast<uint32_t>(j))
                     ? double{x_.dropout.scale()}
                     : 0.0;
    p.dp *= p.factor;
    p.dp_magnitude *= p.factor;
    return p;
  }

  void AddRow(int64_t row, int64_t head) {
    const Band band = in_.bands == nullptr ? Band{} : in_.bands[head];
    const int64_t lane = s_.LaneOfRow(row);
    std::vector<Pair> pairs;
    for (int64_t j = 0; j < s_.num_keys; ++j) {
      if (IsVisible(in_.rows, row, in_.keys, lane * s_.num_keys + j, band))
        pairs.push_back(MakePair(row, head, j));
    }
    if (pairs.empty()) return;
    const int64_t m = s_.model_dim();
    const double dim = static_cast<double>(s_.head_dim);
    const double n = static_cast<double>(pairs.size());
    double largest = 0;
    for (const Pair& p : pairs) largest = std::max(largest, p.magnitude);
    // q plus bias and times scale * log2(e) is rounded; products and sums of 3 D terms; exp's
    // argument.
    const double score_error = largest * (u_ + (3 * dim + 24) * test::kU);
    const double relative = std::expm1(2 * score_error) + (n + 16) * test::kU;
    const int64_t stat = row * s_.num_heads + head;
    const double lse_error =
        score_error + (n + 16) * test::kU + 4 * test::kU * std::abs(x_.lse[stat]);
    b_.lse[stat] = 2 * lse_error;

    double delta = 0;
    double delta_error = 0;
    for (int64_t d = 0; d < s_.head_dim; ++d) {
      const int64_t at = row * m + Column(head, d);
      double magnitude = 0;
      for (const Pair& p : pairs)
        magnitude += p.probability * p.factor * std::abs(At(x_.v, KeyElement(p.key, head, d)));
      const double out = x_.out[at];
      const double error = magnitude * (relative + u_ + (n + 16) * test::kU) + u_ * std::abs(out);
      b_.out[at] = 2 * error;
      const double dout = x_.dout[at];
      delta += dout * out;
      delta_error += std::abs(dout) * (error + (dim + 4) * test::kU * std::abs(out));
    }
    // Backward takes p from its own lse, so both errors count.
    const double p_error = std::expm1(score_error + lse_error) + 16 * test::kU;
    for (Pair& p : pairs) {
      p.ds = p.probability * (p.dp - delta);
      const double size = p.probability * (std::abs(p.dp) + std::abs(delta));
      p.ds_error = size * (p_error + u_) +
                   p.probability * (p.dp_magnitude * (dim + 8) * test::kU + delta_error);
    }
    AddGradients(row, head, pairs, p_error);
    for (const Pair& p : pairs) {
      if (p.bias < 0) break;
      BiasTerms& terms = bias_terms_[p.bias];
      terms.count += 1;
      terms.magnitude += std::abs(p.ds);
      terms.error += p.ds_error;
    }
  }

  void AddGradients(int64_t row, int64_t head, const std::vector<Pair>& pairs, double p_error) {
    const int64_t m = s_.model_dim();
    const double scale = in_.scale;
    // Keys and values sum over the rows of all heads that read them.
    const int64_t rows = s_.num_rows() * s_.heads_per_kv();
    const double sums = static_cast<double>(pairs.size()) + static_cast<double>(rows) + 32;
    const double rounding = sums * test::kU;
    double other = 0;
    for (const Pair& p : pairs) {
      if (x_.segment_embedding.empty()) break;
      // "Same" is taken as minus "different": the error of all pairs counts.
      other += p.ds_error + std::abs(p.ds) * rounding;
    }
    for (int64_t d = 0; d < s_.head_dim; ++d) {
      const int64_t c = Column(head, d);
      const int64_t at = row * m + c;
      const double q = std::abs(At(x_.q, at));
      const double content_query = scale * (q + std::abs(At(x_.content_bias, c)));
      const double position_query = scale * (q + std::abs(At(x_.position_bias, c)));
      const double segment_query = scale * (q + std::abs(At(x_.segment_bias, c)));
      double content = 0;
      double position = 0;
      for (const Pair& p : pairs) {
        const double error = p.ds_error + std::abs(p.ds) * rounding;
        const int64_t of_key = KeyElement(p.key, head, d);
        content += scale * error * std::abs(At(x_.k, of_key));
        if (p.distance >= 0)
          position += scale * error * std::abs(At(x_.relative, p.distance * m + c));
        const double query_error = error + std::abs(p.ds) * u_;
        Add(&b_.dk, of_key, content_query * query_error);
        if (p.distance >= 0) Add(&b_.drelative, p.distance * m + c, position_query * query_error);
        Add(&b_.dv, of_key,
            p.probability * p.factor * (p_error + u_ + rounding) * std::abs(x_.dout[at]));
      }
      const double segment =
          scale * other *
          (std::abs(At(x_.segment_embedding, c)) + std::abs(At(x_.segment_embedding, m + c)));
      Add(&b_.dq, at, content + position + segment);
      Add(&b_.dcontent_bias, c, content);
      Add(&b_.dposition_bias, c, position);
      Add(&b_.dsegment_bias, c, segment);
      Add(&b_.dsegment_embedding, c, segment_query * other);
      Add(&b_.dsegment_embedding, m + c, segment_query * other);
    }
  }

  // Rounding of the stored result, and the slack for second order.
  void Finish() {
    for (size_t i = 0; i < bias_terms_.size(); ++i) {
      const BiasTerms& terms = bias_terms_[i];
      b_.ddistance_bias[i] = terms.error + (terms.count + 8) * test::kU * terms.magnitude;
    }
    const auto finish = [&](const char* name, const auto& value, auto& bound) {
      if (name[0] != 'd') return;  // out and lse have theirs
      for (size_t i = 0; i < bound.size(); ++i) bound[i] = 2 * (bound[i] + u_ * std::abs(value[i]));
    };
    VisitResults(finish, x_, b_);
  }

  // What is added up in one element of the bias by distance; ds is not rounded before.
  struct BiasTerms {
    double count = 0, magnitude = 0, error = 0;
  };
  std::vector<BiasTerms> bias_terms_;

  const Data& x_;
  AttentionShape s_;
  double u_;
  AttentionInputs in_;
  AttentionBounds b_;
};

// Both passes on a backend that takes host memory; without `backward` the first alone.
template <typename T, typename G>
void RunOn(Backend& backend, AttentionData<T, G>* data, bool backward = true) {
  data->Poison(backend.AttentionBackwardWorkspaceBytes(data->shape, DTypeOf<T>()));
  backend.AttentionForward(data->Forward(), {});
  if (backward) backend.AttentionBackward(data->Backward(), {});
}

inline AttentionData<double, double> RunReference(AttentionData<double, double> data,
                                                  bool backward = true) {
  RunOn(*MakeReferenceBackend(), &data, backward);
  return data;
}

template <typename T>
void ExpectResultsWithin(const AttentionData<T, float>& data,
                         const AttentionData<double, double>& exact,
                         const AttentionBounds& bounds) {
  const auto expect = [](const char* name, const auto& actual, const auto& expected,
                         const auto& bound) {
    test::ExpectClose(InDouble(actual), expected, bound, name, /*denormal=*/0);
  };
  VisitResults(expect, data, exact, bounds);
}

// All results of run(&data).
template <typename T, typename Run>
void ExpectAgreement(AttentionData<T, float> data, Run run) {
  const AttentionData<double, double> exact = RunReference(InDouble(data));
  const AttentionErrorAnalysis analysis(exact, DTypeOf<T>());
  run(&data);
  ExpectResultsWithin(data, exact, analysis.bounds());
}

}  // namespace anyorder::kernels::testing
