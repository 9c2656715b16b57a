#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/objective/any_order/any_order.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

class SigmaGpt final : public AnyOrderObjective {
 public:
  using AnyOrderObjective::AnyOrderObjective;

  std::string quantity() const override {
    return config_.token_order == TokenOrder::kText
               ? "NLL of each token but the first given those before it"
               : "NLL of all tokens but one, given that one, in a random order that begins with it "
                 "(its mean over orders is an upper bound)";
  }

  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape = WindowShape(
        {.seq_len = seq_len_, .content = seq_len_, .targets = seq_len_ - 1}, batch_size);
    shape.next_positions = true;
    return shape;
  }

  // Slots stand in the order of prediction: then the mask is a triangle, half of whose tiles the
  // attention kernels skip.
  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    const std::vector<int32_t> order = OrderOf(sample);
    for (int64_t slot = 0; slot + 1 < seq_len_; ++slot) {
      Slot value = RankedSlot(sample.tokens[order[slot]], order[slot], slot);
      value.next = order[slot + 1];
      SetContentSlot(b, slot, value, batch);
      SetReadout(b, slot, ContentRow(batch.shape, b) + slot, sample.tokens[value.next], 1.0f,
                 batch);
    }
    SetContentSlot(b, seq_len_ - 1, PadSlot(order.back()), batch);
  }

  // From left to right, one of the orders that it has learned.
  FormOrStatus Generation(const GenerationTokens& tokens) const override {
    return MakeCausalGeneration(tokens, seq_len_ - 1);
  }

  absl::StatusOr<CanvasForm> Canvas(const GenerationTokens& tokens) const override {
    return MakeCanvas(CanvasFamily::kPairs, seq_len_, tokens);
  }

 private:
  std::vector<int32_t> OrderOf(const TextSample& sample) const {
    RandomStream random = LaneDraws(sample);
    if (random.Uniform() < ShuffledShare(sample.step)) return DrawOrder(seq_len_, random);
    std::vector<int32_t> order(static_cast<size_t>(seq_len_));
    std::iota(order.begin(), order.end(), 0);
    return order;
  }

  // How likely a sequence is shuffled.
  double ShuffledShare(int64_t step) const {
    if (config_.token_order != TokenOrder::kCurriculum)
      return config_.token_order == TokenOrder::kRandom ? 1 : 0;
    const double done = static_cast<double>(step) / static_cast<double>(config_.anneal_steps);
    return config_.curriculum_start + (1 - config_.curriculum_start) * std::min(1.0, done);
  }
};

absl::Status CheckCurriculum(const AnyOrderConfig& config) {
  if (config.token_order == TokenOrder::kCurriculum) return absl::OkStatus();
  const AnyOrderConfig unset;
  if (config.curriculum_start == unset.curriculum_start &&
      config.anneal_steps == unset.anneal_steps)
    return absl::OkStatus();
  return InvalidArgument("[sampling] curriculum_start is ", config.curriculum_start,
                         " and anneal_steps ", config.anneal_steps, " but token_order is \"",
                         EnumName(config.token_order),
                         "\"; leave both out, or set token_order = \"curriculum\"");
}

}  // namespace

ObjectiveOrStatus MakeSigmaGpt(const ObjectiveSettings& settings) {
  RETURN_IF_ERROR(CheckCurriculum(settings.sampling.any_order));
  if (settings.sampling.seq_len < 2) {
    return InvalidArgument("sampling.seq_len is ", settings.sampling.seq_len,
                           " but must be at least 2: sigma_gpt predicts all tokens but one");
  }
  if (!settings.model.paired_positions()) {
    return InvalidArgument("model.positions is \"", EnumName(settings.model.positions),
                           "\" but must be \"learned_pairs\" for sigma_gpt: a slot knows the "
                           "position that it predicts");
  }
  return std::make_unique<SigmaGpt>(settings);
}

}  // namespace anyorder
