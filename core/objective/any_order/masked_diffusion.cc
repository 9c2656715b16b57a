#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/status.h"
#include "core/objective/any_order/any_order.h"
#include "core/objective/any_order/mask_noise.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

class MaskedDiffusion final : public Objective {
 public:
  explicit MaskedDiffusion(const SamplingConfig& sampling)
      : seq_len_(sampling.seq_len), config_(sampling.any_order) {}

  std::string name() const override { return "masked_diffusion"; }
  SampleKind sample_kind() const override { return SampleKind::kContiguous; }
  std::string quantity() const override { return DiffusionQuantity(config_); }

  BatchShape Shape(int64_t batch_size) const override {
    return WindowShape(
        {.seq_len = seq_len_, .content = seq_len_, .targets = seq_len_, .own_divisor = true},
        batch_size);
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    const int64_t length = DrawLength(sample);
    RandomStream random = LaneDraws(sample);
    const MaskedText noise = DrawMasks(sample, config_, length, length, random);
    for (int64_t i = 0; i < seq_len_; ++i) {
      const bool is_masked = i < length && noise.masked[i] != 0;
      const int32_t token = is_masked ? sample.vocabulary.mask : sample.tokens[i];
      SetContentSlot(b, i, i < length ? RankedSlot(token, i, 0) : PadSlot(i), batch);
      SetReadout(b, i, ContentRow(batch.shape, b) + i, sample.tokens[i],
                 i < length ? noise.weights[i] : 0.0f, batch);
    }
    batch.divisors[b] = static_cast<double>(length);
  }

 private:
  // LLaDA's short sequences, one length for all lanes of a step as there: so the model meets
  // lengths other than seq_len.
  int64_t DrawLength(const TextSample& sample) const {
    if (config_.random_length_prob == 0) return seq_len_;
    RandomStream random = StepDraws(sample);
    random.Uniform();  // the turn of the rates
    if (random.Uniform() >= config_.random_length_prob) return seq_len_;
    return 1 + static_cast<int64_t>(random.Below64(static_cast<uint64_t>(seq_len_)));
  }

  int64_t seq_len_;
  AnyOrderConfig config_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Objective>> MakeMaskedDiffusion(const ModelConfig& model,
                                                               const SamplingConfig& sampling) {
  ANYORDER_RETURN_IF_ERROR(CheckAnyOrder("masked_diffusion", model, sampling));
  ANYORDER_RETURN_IF_ERROR(CheckMaskRates(sampling.any_order));
  return std::make_unique<MaskedDiffusion>(sampling);
}

}  // namespace anyorder
