// Every window of a text once: a measure that does not depend on how many are computed at once.

#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

#include "core/config/model_config.h"
#include "core/objective/batch.h"
#include "data/dataset/text_source.h"
#include "data/sampling/sampler.h"

namespace anyorder {

// A row of windows in several lanes at once: batch t of lane b is window WindowOf(b, t). With
// memory a lane begins `warmup` windows before its own and does not score them: then its memory
// holds what that of a single lane does, in all layers.
class WindowLanes {
 public:
  // `most` lanes at most, and no more than have windows to score, as many as those before them.
  WindowLanes(int64_t windows, int64_t most, int64_t warmup)
      : windows_(windows),
        lanes_(std::clamp<int64_t>(windows / std::max<int64_t>(1, warmup), 1, most)),
        warmup_(warmup),
        stride_((std::max<int64_t>(1, windows - warmup) + lanes_ - 1) / lanes_) {}

  int64_t windows() const { return windows_; }
  int64_t lanes() const { return lanes_; }
  int64_t num_batches() const { return std::min(windows_, stride_ + warmup_); }
  // The last one again where the lane has nothing left to do.
  int64_t WindowOf(int64_t lane, int64_t batch) const {
    return std::min(lane * stride_ + batch, windows_ - 1);
  }
  bool IsScored(int64_t lane, int64_t batch) const {
    return (lane == 0 || batch >= warmup_) && lane * stride_ + batch < windows_;
  }

 private:
  int64_t windows_, lanes_, warmup_, stride_;
};

// Windows through which what a state holds can reach a later one, over all layers; 0: no memory.
// `advance`: tokens from one window to the next.
inline int64_t WarmupWindows(const ModelConfig& model, int64_t advance) {
  return model.num_layers * ((model.mem_len + advance - 1) / advance);
}

// All of a text in each direction that the run reads: windows that follow one another, then, where
// these leave tokens at the end, one that ends with the text. Or all labelled examples.
class WindowSampler : public data::Sampler {
 public:
  // Errors: those of data::Sampler::Create, which borrows `text`, too.
  static absl::StatusOr<std::unique_ptr<WindowSampler>> Create(const data::TextSource& text,
                                                               const SamplingConfig& config,
                                                               SampleKind kind, uint64_t seed,
                                                               int64_t lanes, int64_t warmup);

  const WindowLanes& lanes() const { return lanes_; }
  // Whether the window has no memory.
  bool StartsAnew(int64_t lane, int64_t batch) const { return PlaceOf(lane, batch).second == 0; }
  // Leaves in lane `b` of `samples` what counts: no pair if the window is not scored; of
  // consecutive text no target that a window before it has.
  void KeepCounted(int64_t lane, int64_t batch, int64_t b, Batch& samples) const;

  absl::StatusOr<TextSample> Sample(int64_t lane, int64_t batch) const override {
    const auto [of, step] = PlaceOf(lane, batch);
    return sampler_->Sample(of, step);
  }
  bool IsBackward(int64_t lane) const override { return sampler_->IsBackward(lane); }
  int64_t steps_per_epoch() const override { return lanes_.num_batches(); }
  int64_t num_examples() const override { return sampler_->num_examples(); }

 private:
  WindowSampler(std::unique_ptr<data::Sampler> sampler, int64_t rest, int64_t directions,
                WindowLanes lanes)
      : sampler_(std::move(sampler)), rest_(rest), directions_(directions), lanes_(lanes) {}
  // The lane and the step of `sampler_`.
  std::pair<int64_t, int64_t> PlaceOf(int64_t lane, int64_t batch) const;

  const std::unique_ptr<data::Sampler> sampler_;  // Sampler::CreateWhole
  const int64_t rest_;  // of consecutive text: tokens that the last window adds
  const int64_t directions_;
  const WindowLanes lanes_;
};

}  // namespace anyorder
