// Attention by its formula (kernels/attention.h), one pair at a time.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/arguments.h"
#include "kernels/reference/operations.h"

namespace anyorder::kernels::reference {

namespace {

// One (row, head): its place in the tensors, what it sees, its scores and probabilities.
template <typename T>
class AttentionRow {
 public:
  AttentionRow(const AttentionInputs& in, int64_t row, int64_t head)
      : in_(in),
        row_(row),
        head_(head),
        kv_head_(head / in.shape.heads_per_kv()),
        lane_(in.shape.LaneOfRow(row)) {
    const int64_t num_keys = in.shape.num_keys;
    probabilities_.assign(num_keys, 0.0);
    std::vector<double> scores(num_keys, -std::numeric_limits<double>::infinity());
    for (int64_t j = 0; j < num_keys; ++j) {
      if (Visible(j)) scores[j] = Score(j);
    }
    double max = -std::numeric_limits<double>::infinity();
    for (const double score : scores) max = std::max(max, score);
    // A NaN is no maximum, but makes the sum NaN, and so everything of the row.
    const double offset = max == -std::numeric_limits<double>::infinity() ? 0.0 : max;
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - offset);
    if (sum == 0) return;
    lse_ = offset + std::log(sum);
    for (int64_t j = 0; j < num_keys; ++j) probabilities_[j] = std::exp(scores[j] - lse_);
  }

  double lse() const { return lse_; }
  double probability(int64_t j) const { return probabilities_[j]; }
  bool Visible(int64_t j) const {
    const Band band = in_.bands == nullptr ? Band{} : in_.bands[head_];
    return IsVisible(in_.rows, row_, in_.keys, lane_ * in_.shape.num_keys + j, band);
  }
  // 0 where the probability is dropped, else 1 / (keep probability).
  double DropoutFactorOf(int64_t j) const {
    if (!in_.dropout.enabled()) return 1.0;
    const bool keep = KeepAttention(in_.dropout, static_cast<uint32_t>(in_.row_ids[row_]),
                                    static_cast<uint32_t>(head_), static_cast<uint32_t>(j));
    return keep ? double{in_.dropout.scale()} : 0.0;
  }

  // Element offsets of this head's D values.
  int64_t RowOffset() const { return row_ * in_.shape.model_dim() + HeadOffset(); }
  int64_t HeadOffset() const { return head_ * in_.shape.head_dim; }
  int64_t KeyOffset(int64_t j) const {
    return (lane_ * in_.shape.num_keys + j) * in_.shape.keys_dim() + kv_head_ * in_.shape.head_dim;
  }
  int64_t RelativeOffset(int64_t j) const {
    const int64_t key = lane_ * in_.shape.num_keys + j;
    const int64_t distance = int64_t{in_.rows.pos[row_]} - in_.keys.pos[key] - in_.min_distance;
    ANYORDER_CHECK(distance >= 0 && distance < in_.shape.num_distances)
        << "row " << row_ << " and key slot " << j << ": distance " << distance + in_.min_distance
        << " is not in the relative table";
    return (in_.table_of_lane[lane_] * in_.shape.num_distances + distance) * in_.shape.model_dim() +
           HeadOffset();
  }
  // The element of the bias by distance.
  int64_t DistanceBiasOffset(int64_t j) const {
    const AttentionShape& shape = in_.shape;
    const int64_t key = lane_ * shape.num_keys + j;
    const int64_t distance =
        int64_t{in_.rows.pos[row_]} - in_.keys.pos[key] - in_.min_bias_distance;
    const int64_t r = std::clamp<int64_t>(distance, 0, shape.num_bias_distances - 1);
    return (in_.table_of_lane[lane_] * shape.num_bias_distances + r) * shape.num_heads + head_;
  }
  int64_t SegmentOffset(int64_t j) const {
    const int64_t key = lane_ * in_.shape.num_keys + j;
    const bool same = in_.rows.seg[row_] == in_.keys.seg[key];
    return (same ? 0 : 1) * in_.shape.model_dim() + HeadOffset();
  }

 private:
  // (q + bias) . vector, where a null bias counts as 0.
  double BiasedDot(const ConstTensorView& bias, const T* vector) const {
    const T* q = in_.q.data<T>() + RowOffset();
    const T* b = DataOrNull<T>(bias);
    double dot = 0;
    for (int64_t d = 0; d < in_.shape.head_dim; ++d) {
      const double bias_d = b == nullptr ? 0.0 : Load(b[HeadOffset() + d]);
      dot += (Load(q[d]) + bias_d) * Load(vector[d]);
    }
    return dot;
  }
  double Score(int64_t j) const {
    double score = BiasedDot(in_.content_bias, in_.k.data<T>() + KeyOffset(j));
    if (const T* relative = DataOrNull<T>(in_.relative)) {
      score += BiasedDot(in_.position_bias, relative + RelativeOffset(j));
    }
    if (const T* segments = DataOrNull<T>(in_.segment_embedding)) {
      score += BiasedDot(in_.segment_bias, segments + SegmentOffset(j));
    }
    score *= in_.scale;
    if (const T* bias = DataOrNull<T>(in_.distance_bias))
      score += Load(bias[DistanceBiasOffset(j)]);
    return score;
  }

  const AttentionInputs& in_;
  const int64_t row_;
  const int64_t head_;
  const int64_t kv_head_;
  const int64_t lane_;
  double lse_ = -std::numeric_limits<double>::infinity();
  std::vector<double> probabilities_;
};

template <typename T>
void ForwardRow(const AttentionForwardArgs& args, int64_t row, int64_t head) {
  using G = GradientOf<T>;
  const AttentionShape& shape = args.in.shape;
  const AttentionRow<T> attention(args.in, row, head);
  args.lse.data<G>()[row * shape.num_heads + head] = Round<G>(attention.lse());
  const T* v = args.in.v.data<T>();
  for (int64_t d = 0; d < shape.head_dim; ++d) {
    double sum = 0;
    for (int64_t j = 0; j < shape.num_keys; ++j) {
      if (!attention.Visible(j)) continue;
      sum += attention.probability(j) * attention.DropoutFactorOf(j) *
             Load(v[attention.KeyOffset(j) + d]);
    }
    args.out.data<T>()[attention.RowOffset() + d] = Round<T>(sum);
  }
}

// Gradients summed in double over all rows before they are rounded once.
struct Gradients {
  std::vector<double> dq, dk, dv, drelative;
  std::vector<double> dcontent_bias, dposition_bias, dsegment_bias, dsegment_embedding;
  std::vector<double> ddistance_bias;
};

template <typename T>
class AttentionGradient {
 public:
  explicit AttentionGradient(const AttentionBackwardArgs& args) : args_(args) {
    const AttentionShape& shape = args.in.shape;
    const int64_t m = shape.model_dim();
    sums_.dq.resize(shape.num_rows() * m);
    sums_.dk.resize(shape.batch_size * shape.num_keys * shape.keys_dim());
    sums_.dv.resize(sums_.dk.size());
    sums_.drelative.resize(shape.num_tables * shape.num_distances * m);
    sums_.dcontent_bias.resize(m);
    sums_.dposition_bias.resize(m);
    sums_.dsegment_bias.resize(m);
    sums_.dsegment_embedding.resize(2 * m);
    sums_.ddistance_bias.resize(shape.num_tables * shape.num_bias_distances * shape.num_heads);
  }

  // Recomputes the row's probabilities rather than using lse and out, which are rounded: the
  // gradient is that of the formula.
  void AddRow(int64_t row, int64_t head) {
    const AttentionShape& shape = args_.in.shape;
    const AttentionRow<T> attention(args_.in, row, head);
    const T* dout = args_.dout.data<T>() + attention.RowOffset();
    std::vector<double> dp(shape.num_keys, 0.0);
    double mean_dp = 0;
    for (int64_t j = 0; j < shape.num_keys; ++j) {
      if (!attention.Visible(j)) continue;
      const T* v = args_.in.v.data<T>() + attention.KeyOffset(j);
      const double factor = attention.DropoutFactorOf(j);
      for (int64_t d = 0; d < shape.head_dim; ++d) {
        dp[j] += factor * Load(dout[d]) * Load(v[d]);
        sums_.dv[attention.KeyOffset(j) + d] += attention.probability(j) * factor * Load(dout[d]);
      }
      mean_dp += attention.probability(j) * dp[j];
    }
    for (int64_t j = 0; j < shape.num_keys; ++j) {
      if (!attention.Visible(j)) continue;
      const double ds = attention.probability(j) * (dp[j] - mean_dp);
      AddScoreGradient(attention, j, args_.in.scale * ds);
      if (!args_.in.distance_bias.is_null())
        sums_.ddistance_bias[attention.DistanceBiasOffset(j)] += ds;
    }
  }

  void Store() const {
    using G = GradientOf<T>;
    Write<T>(args_.dq, sums_.dq);
    Write<T>(args_.dk, sums_.dk);
    Write<T>(args_.dv, sums_.dv);
    Write<T>(args_.drelative, sums_.drelative);
    Write<G>(args_.dcontent_bias, sums_.dcontent_bias);
    Write<G>(args_.dposition_bias, sums_.dposition_bias);
    Write<G>(args_.dsegment_bias, sums_.dsegment_bias);
    Write<G>(args_.dsegment_embedding, sums_.dsegment_embedding);
    Write<G>(args_.ddistance_bias, sums_.ddistance_bias);
  }

 private:
  // `ds` is the gradient of the score before scaling.
  void AddScoreGradient(const AttentionRow<T>& attention, int64_t j, double ds) {
    AddTerm(attention, ds, args_.in.k, attention.KeyOffset(j), args_.in.content_bias, &sums_.dk,
            &sums_.dcontent_bias);
    if (!args_.in.relative.is_null()) {
      AddTerm(attention, ds, args_.in.relative, attention.RelativeOffset(j), args_.in.position_bias,
              &sums_.drelative, &sums_.dposition_bias);
    }
    if (!args_.in.segment_embedding.is_null()) {
      AddTerm(attention, ds, args_.in.segment_embedding, attention.SegmentOffset(j),
              args_.in.segment_bias, &sums_.dsegment_embedding, &sums_.dsegment_bias);
    }
  }

  // The term (q + bias) . vector, where vector is `vectors` from element `offset` on.
  void AddTerm(const AttentionRow<T>& attention, double ds, const ConstTensorView& vectors,
               int64_t offset, const ConstTensorView& bias, std::vector<double>* dvectors,
               std::vector<double>* dbias) {
    const T* q = args_.in.q.data<T>() + attention.RowOffset();
    const T* vector = vectors.data<T>() + offset;
    const T* b = DataOrNull<T>(bias);
    const int64_t head = attention.HeadOffset();
    for (int64_t d = 0; d < args_.in.shape.head_dim; ++d) {
      const double bias_d = b == nullptr ? 0.0 : Load(b[head + d]);
      sums_.dq[attention.RowOffset() + d] += ds * Load(vector[d]);
      (*dbias)[head + d] += ds * Load(vector[d]);
      (*dvectors)[offset + d] += ds * (Load(q[d]) + bias_d);
    }
  }

  template <typename S>
  static void Write(const TensorView& tensor, const std::vector<double>& values) {
    if (tensor.is_null()) return;
    for (size_t i = 0; i < values.size(); ++i) tensor.data<S>()[i] = Round<S>(values[i]);
  }

  const AttentionBackwardArgs& args_;
  Gradients sums_;
};

}  // namespace

void Run(const AttentionForwardArgs& args) {
  WithStorage(args.in.q.dtype(), [&]<typename T>() {
    for (int64_t row = 0; row < args.in.shape.num_rows(); ++row) {
      for (int64_t head = 0; head < args.in.shape.num_heads; ++head) ForwardRow<T>(args, row, head);
    }
  });
}

void Run(const AttentionBackwardArgs& args) {
  WithStorage(args.in.q.dtype(), [&]<typename T>() {
    AttentionGradient<T> gradient(args);
    for (int64_t row = 0; row < args.in.shape.num_rows(); ++row) {
      for (int64_t head = 0; head < args.in.shape.num_heads; ++head) gradient.AddRow(row, head);
    }
    gradient.Store();
  });
}

}  // namespace anyorder::kernels::reference
