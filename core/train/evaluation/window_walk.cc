#include "core/train/evaluation/window_walk.h"

#include "core/base/status.h"

namespace anyorder {

absl::StatusOr<std::unique_ptr<WindowSampler>> WindowSampler::Create(const data::TextSource& text,
                                                                     const SamplingConfig& config,
                                                                     SampleKind kind, uint64_t seed,
                                                                     int64_t lanes,
                                                                     int64_t warmup) {
  ASSIGN_OR_RETURN(std::unique_ptr<data::Sampler> sampler,
                   data::Sampler::CreateWhole(text, config, kind, seed));
  const bool is_text = kind != SampleKind::kExamples;
  const int64_t rest = is_text ? text.num_tokens() - sampler->tokens_per_lane() : 0;
  const int64_t directions = is_text && config.bidirectional ? 2 : 1;
  const int64_t windows = directions * (sampler->steps_per_epoch() + (rest > 0 ? 1 : 0));
  return std::unique_ptr<WindowSampler>(
      new WindowSampler(std::move(sampler), kind == SampleKind::kContiguous ? rest : 0, directions,
                        WindowLanes(windows, lanes, warmup)));
}

std::pair<int64_t, int64_t> WindowSampler::PlaceOf(int64_t lane, int64_t batch) const {
  const int64_t window = lanes_.WindowOf(lane, batch);
  const int64_t of_direction = lanes_.windows() / directions_;
  const int64_t step = window % of_direction;
  const bool is_last = step == sampler_->steps_per_epoch();
  return {window / of_direction + (is_last ? directions_ : 0), is_last ? 0 : step};
}

void WindowSampler::KeepCounted(int64_t lane, int64_t batch, int64_t b, Batch& samples) const {
  const BatchShape& shape = samples.shape;
  if (!lanes_.IsScored(lane, batch)) {
    if (shape.next_sentence) samples.summary_weights[b] = 0;
    return;
  }
  if (rest_ == 0 || PlaceOf(lane, batch).first < directions_) return;
  for (int64_t i = b * shape.targets; i < (b + 1) * shape.targets; ++i) {
    const int32_t row = samples.readout_rows[i];
    const int64_t slot = shape.next_positions ? samples.row_next[row] - 1 : samples.row_pos[row];
    if (slot < shape.advance - rest_) samples.weights[i] = 0;
  }
  if (shape.own_divisor)
    samples.divisors[b] *= static_cast<double>(rest_) / static_cast<double>(shape.advance);
}

}  // namespace anyorder
