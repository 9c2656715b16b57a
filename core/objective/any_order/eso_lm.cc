#include <algorithm>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/objective/any_order/any_order.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

// The diffusion phase and the sequential one are documents of their own: neither sees the other.
constexpr int32_t kDiffusionDoc = 0;
constexpr int32_t kSequentialDoc = 1;

class EsoLm final : public AnyOrderObjective {
 public:
  using AnyOrderObjective::AnyOrderObjective;

  std::string quantity() const override {
    return has_diffusion_ ? DiffusionQuantity(config_) : "NLL of each token given those before it";
  }

  BatchShape Shape(int64_t batch_size) const override {
    const int64_t phases = (has_diffusion_ ? 1 : 0) + (has_sequence_ ? 1 : 0);
    return WindowShape(
        {.seq_len = seq_len_,
         .content = (has_diffusion_ ? seq_len_ : 0) + (has_sequence_ ? 2 * seq_len_ : 0),
         .targets = phases * seq_len_,
         .own_divisor = true},
        batch_size);
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    RandomStream random = LaneDraws(sample);
    if (has_diffusion_) FillDiffusion(sample, b, random, batch);
    if (has_sequence_) FillSequence(sample, b, random, batch);
    batch.divisors[b] = static_cast<double>(seq_len_);
  }

  absl::StatusOr<CanvasForm> Canvas(const GenerationTokens& tokens) const override {
    CanvasForm form = MakeCanvas(CanvasFamily::kEso, seq_len_, tokens);
    form.eso = {.clean_see_all = config_.eso_form == EsoForm::kA,
                .masks_see_all = config_.eso_form == EsoForm::kMixed,
                .diffusion_share = config_.diffusion_share};
    return form;
  }

 private:
  // Ranks in the order "unmasked, then masked", by `order` among themselves. REQUIRES: order is one
  // of [0, seq_len).
  std::vector<int32_t> Ranks(const std::vector<uint8_t>& masked, const std::vector<int32_t>& order,
                             bool clean_are_tied, bool masked_are_tied) const {
    const auto num_clean = static_cast<int32_t>(std::count(masked.begin(), masked.end(), 0));
    std::vector<int32_t> ranks(masked.size());
    int32_t next_clean = 0;
    int32_t next_masked = num_clean;
    for (const int32_t i : order) {
      if (masked[i] == 0) {
        ranks[i] = clean_are_tied ? 0 : next_clean++;
      } else {
        ranks[i] = masked_are_tied ? num_clean : next_masked++;
      }
    }
    return ranks;
  }

  // z_t of the paper: masked with probability 1 - alpha_t, alpha_t = alpha_0 (1 - t) (section 3.1);
  // slots [0, T).
  void FillDiffusion(const TextSample& sample, int64_t b, RandomStream& random,
                     Batch& batch) const {
    const double share = config_.diffusion_share;
    const double u = SpreadUniform(sample, 0, 1, config_);
    const double t = config_.mask_rate_min + (1 - config_.mask_rate_min) * (1 - u);
    const double rate = 1 - share * (1 - t);
    std::vector<uint8_t> masked(static_cast<size_t>(seq_len_));
    for (uint8_t& is_masked : masked) is_masked = random.Uniform() < rate ? 1 : 0;
    const std::vector<int32_t> ranks =
        Ranks(masked, DrawOrder(seq_len_, random), config_.eso_form == EsoForm::kA,
              config_.eso_form == EsoForm::kMixed);
    const auto weight = static_cast<float>(share / rate);
    for (int64_t i = 0; i < seq_len_; ++i) {
      Slot slot =
          RankedSlot(masked[i] != 0 ? sample.vocabulary.mask : sample.tokens[i], i, ranks[i]);
      slot.doc = kDiffusionDoc;
      SetContentSlot(b, i, slot, batch);
      SetReadout(b, i, ContentRow(batch.shape, b) + i, sample.tokens[i],
                 masked[i] != 0 ? weight : 0.0f, batch);
    }
  }

  // z_0: masked with probability 1 - alpha_0. The text x in T slots, then T slots of z_0: a <mask>
  // at each masked token, which sees itself and what comes before that token; unmasked tokens of
  // z_0 are nobody's context and stay pads.
  void FillSequence(const TextSample& sample, int64_t b, RandomStream& random, Batch& batch) const {
    std::vector<uint8_t> masked(static_cast<size_t>(seq_len_));
    for (uint8_t& is_masked : masked)
      is_masked = random.Uniform() < 1 - config_.diffusion_share ? 1 : 0;
    // Clean tokens in random order, the others from left to right.
    std::vector<int32_t> order = DrawOrder(seq_len_, random);
    const auto first_masked = std::stable_partition(order.begin(), order.end(),
                                                    [&](int32_t i) { return masked[i] == 0; });
    std::sort(first_masked, order.end());
    const std::vector<int32_t> ranks = Ranks(masked, order, config_.eso_form == EsoForm::kA, false);
    const int64_t first_slot = has_diffusion_ ? seq_len_ : 0;
    const int64_t first_entry = has_diffusion_ ? seq_len_ : 0;
    for (int64_t i = 0; i < seq_len_; ++i) {
      Slot slot = RankedSlot(sample.tokens[i], i, ranks[i]);
      slot.doc = kSequentialDoc;
      SetContentSlot(b, first_slot + i, slot, batch);
      Slot noised = PadSlot(i);
      if (masked[i] != 0) {
        noised = GroupSlot(sample.vocabulary.mask, i, ranks[i] - 1, i);
        noised.doc = kSequentialDoc;
      }
      SetContentSlot(b, first_slot + seq_len_ + i, noised, batch);
      SetReadout(b, first_entry + i, ContentRow(batch.shape, b) + first_slot + seq_len_ + i,
                 sample.tokens[i], masked[i] != 0 ? 1.0f : 0.0f, batch);
    }
  }

  const bool has_diffusion_ = config_.diffusion_share > 0;
  const bool has_sequence_ = config_.diffusion_share < 1;
};

}  // namespace

ObjectiveOrStatus MakeEsoLm(const ObjectiveSettings& settings) {
  RETURN_IF_ERROR(CheckMaskRates(settings.sampling.any_order));
  const AnyOrderConfig& config = settings.sampling.any_order;
  if (config.mask_rate_max != 1) {
    return InvalidArgument("[sampling] mask_rate_max=", config.mask_rate_max,
                           " must be 1: eso_lm draws rates up to 1");
  }
  if (config.mask_draw == MaskDraw::kCount) {
    return absl::InvalidArgumentError(
        "[sampling] mask_draw is \"count\", but both phases of eso_lm draw each token alone; use "
        "\"rate\"");
  }
  return std::make_unique<EsoLm>(settings);
}

}  // namespace anyorder
