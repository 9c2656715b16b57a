// The ring kernels on a case of attention_case.h, emulated: what goes before them is computed here
// in plain loops.

#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cuda/attention/attention_ring.h"
#include "tests/kernels/attention_case.h"

namespace anyorder::kernels::testing {

using RingData = AttentionData<BFloat16, float>;

struct RingGradients {
  std::vector<double> dk, dv, drelative, dsegment;  // dsegment: of the embedding of another segment

  explicit RingGradients(const RingData& data)
      : dk(data.k.size()),
        dv(data.v.size()),
        drelative(data.relative.size()),
        dsegment(data.segment_embedding.size() / 2) {}
};

class RingRun {
 public:
  // `data` outlives this.
  explicit RingRun(RingData* data) : data_(data) {
    const AttentionInputs in = data->Inputs();
    const AttentionShape& s = in.shape;
    const auto pointer = [](const std::vector<BFloat16>& x) {
      return x.empty() ? nullptr : x.data();
    };
    problem_ = {.batch_size = static_cast<int>(s.batch_size),
                .content_rows = static_cast<int>(s.content_rows),
                .query_rows = static_cast<int>(s.query_rows),
                .num_keys = static_cast<int>(s.num_keys),
                .num_heads = static_cast<int>(s.num_heads),
                .head_dim = static_cast<int>(s.head_dim),
                .num_tables = static_cast<int>(s.num_tables),
                .num_distances = static_cast<int>(s.num_distances),
                .num_bias_distances = 0,
                .q = pointer(data->q),
                .k = pointer(data->k),
                .v = pointer(data->v),
                .relative = pointer(data->relative),
                .min_distance = in.min_distance,
                .table_of_lane = s.num_tables == 0 ? nullptr : in.table_of_lane,
                .content_bias = pointer(data->content_bias),
                .position_bias = pointer(data->position_bias),
                .segment_bias = pointer(data->segment_bias),
                .segment_embedding = pointer(data->segment_embedding),
                .distance_bias = nullptr,
                .min_bias_distance = 0,
                .scale = in.scale,
                .rows = in.rows,
                .keys = in.keys,
                .bands = in.bands,
                .dropout = in.dropout,
                .row_ids = in.row_ids,
                .is_aligned = true};
    Prepare();
    memory_.assign(static_cast<size_t>(cuda::RingPlanBytes(s)), 0xff);
    plan_ = cuda::PlaceRingPlan(s, memory_.data());
    cuda::MakeRingPlan(problem_, plan_, {});
    prepared_.forms = plan_.forms;
  }
  RingRun(const RingRun&) = delete;
  RingRun& operator=(const RingRun&) = delete;

  const cuda::AttentionProblem<BFloat16>& problem() const { return problem_; }
  const cuda::AttentionPrepared& prepared() const { return prepared_; }
  const cuda::RingPlan& plan() const { return plan_; }

  bool HasRing(int64_t row) const {
    const AttentionShape& s = data_->shape;
    const int64_t stream = row < s.batch_size * s.content_rows ? 0 : 1;
    return plan_.forms[stream * s.batch_size + s.LaneOfRow(row)] == cuda::kRingForm;
  }

  cuda::AttentionForwardParams<BFloat16> Forward() {
    return {problem_, prepared_, data_->out.data(), data_->lse.data()};
  }

  // Scratch of one group; poisoned. Call after the forward pass, whose results it takes.
  cuda::AttentionBackwardParams<BFloat16> Backward(const cuda::AttentionGroup& group) {
    const AttentionShape& s = data_->shape;
    delta_.assign(data_->lse.size(), 0.0f);
    for (size_t i = 0; i < data_->out.size(); ++i)
      delta_[i / static_cast<size_t>(s.head_dim)] +=
          static_cast<float>(data_->dout[i]) * static_cast<float>(data_->out[i]);
    other_segment_.resize(data_->lse.size(), std::numeric_limits<float>::quiet_NaN());
    cuda::AttentionScores<BFloat16> scores = {};
    scores.group = group;
    scores.group_rows = group.num_lanes * (s.content_rows + s.query_rows);
    scores.padded_keys = cuda::PaddedKeys(s.num_keys);
    const auto rows = static_cast<size_t>(group.num_heads * scores.group_rows);
    const BFloat16 poison(std::numeric_limits<float>::quiet_NaN());
    probabilities_.assign(rows * static_cast<size_t>(scores.padded_keys), poison);
    gradients_ = probabilities_;
    hulls_.assign(2 * rows, -1);
    scores.probabilities = probabilities_.data();
    scores.gradients = gradients_.data();
    scores.hulls = hulls_.data();
    scores.other_segment = data_->segment_embedding.empty() ? nullptr : other_segment_.data();
    return {problem_,      prepared_,          scores,          data_->lse.data(),
            delta_.data(), data_->dout.data(), data_->dq.data()};
  }

  // What the passes behind the first make of the scratch of one group, added in plain loops.
  void AddGradients(const cuda::AttentionScores<BFloat16>& scores, RingGradients* sums) const {
    const AttentionShape& s = data_->shape;
    for (int64_t row = 0; row < s.num_rows(); ++row) {
      const auto lane = static_cast<int>(s.LaneOfRow(row));
      const int stream = row < s.batch_size * s.content_rows ? 0 : 1;
      const cuda::AttentionGroup& group = scores.group;
      if (lane < group.first_lane || lane >= group.first_lane + group.num_lanes) continue;
      const int64_t group_row =
          group.FirstRow(problem_, stream, lane) + row - problem_.FirstRow(stream, lane);
      for (int head = group.first_head; head < group.first_head + group.num_heads; ++head)
        AddRow(scores, row, group_row, head, sums);
    }
  }

 private:
  void AddRow(const cuda::AttentionScores<BFloat16>& scores, int64_t row, int64_t group_row,
              int head, RingGradients* sums) const {
    const AttentionShape& s = data_->shape;
    const int64_t m = s.model_dim();
    const int64_t lane = s.LaneOfRow(row);
    const int32_t* const hull = scores.HullOf(group_row, head);
    for (int64_t j = hull[0] * cuda::kScoreTile; j < hull[1] * cuda::kScoreTile; ++j) {
      const int64_t at = scores.Offset(group_row, head) + j;
      const double probability = double{static_cast<float>(scores.probabilities[at])};
      const double ds = double{static_cast<float>(scores.gradients[at])};
      if (probability == 0 && ds == 0) continue;  // beyond the last key, too
      const int64_t key = lane * s.num_keys + j;
      const int64_t r = int64_t{data_->rows.pos[static_cast<size_t>(row)]} -
                        data_->keys.pos[static_cast<size_t>(key)] - data_->min_distance +
                        problem_.TableOf(static_cast<int>(lane)) * s.num_distances;
      for (int64_t c = head * s.head_dim; c < (head + 1) * s.head_dim; ++c) {
        const double q = At(data_->q, row * m + c);
        const auto to = static_cast<size_t>(key * m + c);
        sums->dv[to] += probability * At(data_->dout, row * m + c);
        sums->dk[to] += ds * (q + At(data_->content_bias, c));
        if (!data_->relative.empty())
          sums->drelative[static_cast<size_t>(r * m + c)] += ds * (q + At(data_->position_bias, c));
      }
    }
    if (data_->segment_embedding.empty()) return;
    const double other = double{other_segment_[static_cast<size_t>(row * s.num_heads + head)]};
    for (int64_t c = head * s.head_dim; c < (head + 1) * s.head_dim; ++c)
      sums->dsegment[static_cast<size_t>(c)] +=
          other * (At(data_->q, row * m + c) + At(data_->segment_bias, c));
  }

  static double At(const std::vector<BFloat16>& x, int64_t i) {
    return x.empty() ? 0.0 : double{static_cast<float>(x[static_cast<size_t>(i)])};
  }

  void Prepare() {
    const AttentionShape& s = data_->shape;
    const int64_t m = s.model_dim();
    if (!data_->relative.empty() && !data_->content_bias.empty()) {
      for (int64_t table = 0; table < s.num_tables; ++table) {
        for (int64_t head = 0; head < s.num_heads; ++head) {
          for (int64_t r = 0; r < s.num_distances; ++r) {
            double sum = 0;
            for (int64_t c = head * s.head_dim; c < (head + 1) * s.head_dim; ++c)
              sum += (At(data_->position_bias, c) - At(data_->content_bias, c)) *
                     At(data_->relative, (table * s.num_distances + r) * m + c);
            distance_terms_.push_back(static_cast<float>(sum));
          }
        }
      }
      prepared_.distance_terms = distance_terms_.data();
    }
    if (data_->segment_embedding.empty()) return;
    for (int64_t row = 0; row < s.num_rows(); ++row) {
      for (int64_t head = 0; head < s.num_heads; ++head) {
        double same = 0;
        double difference = 0;
        for (int64_t c = head * s.head_dim; c < (head + 1) * s.head_dim; ++c) {
          const double q = At(data_->q, row * m + c) + At(data_->segment_bias, c);
          same += q * At(data_->segment_embedding, c);
          difference += q * (At(data_->segment_embedding, m + c) - At(data_->segment_embedding, c));
        }
        segment_same_.push_back(static_cast<float>(same));
        segment_difference_.push_back(static_cast<float>(difference));
      }
    }
    prepared_.segment_same = segment_same_.data();
    prepared_.segment_difference = segment_difference_.data();
  }

  RingData* data_;
  cuda::AttentionProblem<BFloat16> problem_;
  cuda::AttentionPrepared prepared_ = {};
  cuda::RingPlan plan_;
  std::vector<uint8_t> memory_;
  std::vector<float> distance_terms_, segment_same_, segment_difference_;
  std::vector<float> delta_, other_segment_;
  std::vector<BFloat16> probabilities_, gradients_;
  std::vector<int32_t> hulls_;
};

// What the ring kernels take, at random: affine keys with pads anywhere, affine content rows,
// sorted query rows, and everything that visibility is made of.
inline AttentionCase RandomRingCase(uint64_t seed) {
  AttentionCase c;
  c.name = "ring" + std::to_string(seed);
  RandomStream random(seed, RandomPurpose::kCorruption, 1, 0);
  const auto below = [&](uint32_t bound) { return static_cast<int32_t>(random.Below(bound)); };
  const int32_t num_content = below(5) == 0 ? 0 : below(180);
  const int32_t num_query = below(5) == 0 && num_content > 0 ? 0 : 1 + below(110);
  const int32_t num_keys = 1 + below(330);
  const int32_t variety = 1 + below(3);  // of everything that can forbid
  const auto add = [&](int32_t pos, bool is_key, Slots* slots) {
    const bool is_pad = is_key && below(20) == 0;
    const int32_t doc = is_pad ? kDocPad : below(10) == 0 ? kDocAny : below(variety);
    slots->Add(is_pad ? below(400) : pos, below(4 * variety) + (is_key ? 0 : 3),
               variety < 3 ? -1 : below(6) - 4, doc, below(variety), variety > 1 && below(15) == 0);
  };
  const bool has_tables = below(4) != 0;
  for (int lane = 0; lane < 1 + static_cast<int>(seed % 2); ++lane) {
    Slots content, query, keys;
    const int32_t base = below(50) - 40;
    for (int32_t j = 0; j < num_keys; ++j)
      add(has_tables ? base + j : below(300), true, &keys);
    const int32_t first = below(60) - 20;
    for (int32_t i = 0; i < num_content; ++i)
      add(has_tables ? first + i : below(300), false, &content);
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < num_query; ++i)
      positions.push_back(below(static_cast<uint32_t>(num_keys)));
    if (has_tables) std::sort(positions.begin(), positions.end());
    for (const int32_t pos : positions)
      add(pos, false, &query);
    c.content.push_back(content);
    c.query.push_back(query);
    c.keys.push_back(keys);
  }
  c.biases = below(4) != 0;
  c.segments = below(3) != 0;
  c.dropout_rate = below(2) == 0 ? 0.0 : 0.25;
  const int64_t heads = 1 + below(2);
  c.Finish(heads, cuda::kRingHeadDim, has_tables ? 1 + below(2) : 0);
  for (int64_t head = 0; head < heads && seed % 2 == 0; ++head)
    c.bands.push_back({below(200) - 1, below(200) - 1, 1 + below(3) / 2});
  return c;
}

}  // namespace anyorder::kernels::testing
