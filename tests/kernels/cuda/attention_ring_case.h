// The ring kernels on a case of attention_case.h, emulated: what goes before them is computed here in plain loops.

#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cuda/attention_ring.h"
#include "tests/kernels/attention_case.h"

namespace anyorder::kernels::testing {

using RingData = AttentionData<BFloat16, float>;

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

 private:
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
};

// What the ring kernels take, at random: affine keys with pads anywhere, affine content rows, sorted query rows, and everything that
// visibility is made of.
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
    slots->Add(is_pad ? below(400) : pos,
               below(4 * variety) + (is_key ? 0 : 3),
               variety < 3 ? -1 : below(6) - 4,
               doc,
               below(variety),
               variety > 1 && below(15) == 0);
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
