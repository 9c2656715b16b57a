#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/objective/any_order/any_order.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

class AsArm final : public AnyOrderObjective {
 public:
  using AnyOrderObjective::AnyOrderObjective;

  std::string quantity() const override {
    return "joint NLL of all tokens but a random prompt, given it (no perplexity)";
  }

  BatchShape Shape(int64_t batch_size) const override {
    return WindowShape({.seq_len = seq_len_,
                        .content = seq_len_,
                        .query = most_targets_,
                        .targets = most_targets_},
                       batch_size);
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    const double u = SpreadUniform(sample, 0, 1, config_);
    const int64_t prompt_length =
        PromptLength(config_.prompt_fraction_min +
                     (config_.prompt_fraction_max - config_.prompt_fraction_min) * u);
    RandomStream random = LaneDraws(sample);
    const std::vector<int32_t> order = DrawOrder(seq_len_, random);
    std::vector<bool> is_prompt(static_cast<size_t>(seq_len_), false);
    for (int64_t i = 0; i < prompt_length; ++i) is_prompt[order[i]] = true;
    int64_t entry = 0;
    for (int64_t i = 0; i < seq_len_; ++i) {
      const auto rank = static_cast<int32_t>(is_prompt[i] ? 0 : entry + 1);
      SetContentSlot(b, i, RankedSlot(sample.tokens[i], i, rank), batch);
      if (is_prompt[i]) continue;
      SetQuery(b, entry++, {.pos = static_cast<int32_t>(i), .lim = rank - 1}, sample.tokens[i],
               1.0f, batch);
    }
    for (; entry < most_targets_; ++entry)
      SetQuery(b, entry, {.lim = kSeesNothing}, 0, 0.0f, batch);
  }

  absl::StatusOr<CanvasForm> Canvas(const GenerationTokens& tokens) const override {
    return MakeCanvas(CanvasFamily::kTwoStream, seq_len_, tokens);
  }

 private:
  // At least one token is left to predict.
  int64_t PromptLength(double fraction) const {
    const auto length = std::nearbyint(fraction * static_cast<double>(seq_len_));
    return std::min(seq_len_ - 1, static_cast<int64_t>(length));
  }

  const int64_t most_targets_ = seq_len_ - PromptLength(config_.prompt_fraction_min);
};

}  // namespace

ObjectiveOrStatus MakeAsArm(const ObjectiveSettings& settings) {
  const AnyOrderConfig& config = settings.sampling.any_order;
  RETURN_IF_ERROR(CheckStrata(config));
  if (config.prompt_fraction_min > config.prompt_fraction_max) {
    return InvalidArgument("[sampling] prompt_fraction_min=", config.prompt_fraction_min,
                           " must be at most prompt_fraction_max=", config.prompt_fraction_max);
  }
  return std::make_unique<AsArm>(settings);
}

}  // namespace anyorder
