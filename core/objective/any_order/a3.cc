#include <algorithm>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/objective/any_order/any_order.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

class A3 final : public AnyOrderObjective {
 public:
  using AnyOrderObjective::AnyOrderObjective;

  std::string quantity() const override {
    if (config_.group_len_max > 1)
      return "NLL of all tokens, those of a group independently, given the groups before it in a "
             "random order";
    return config_.group_order == GroupOrder::kText
               ? "NLL of each token given those before it"
               : "NLL of all tokens in a random order (its mean over orders is an upper bound)";
  }

  BatchShape Shape(int64_t batch_size) const override {
    return WindowShape(
        {.seq_len = seq_len_, .content = seq_len_, .query = seq_len_, .targets = seq_len_},
        batch_size);
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    const std::vector<int32_t> groups = DrawGroups(sample);
    for (int64_t i = 0; i < seq_len_; ++i) {
      SetContentSlot(b, i, RankedSlot(sample.tokens[i], i, groups[i]), batch);
      // The first group's queries see nothing: they know their position alone.
      SetQuery(b, i, {.pos = static_cast<int32_t>(i), .lim = groups[i] - 1}, sample.tokens[i], 1.0f,
               batch);
    }
  }

  absl::StatusOr<CanvasForm> Canvas(const GenerationTokens& tokens) const override {
    return MakeCanvas(CanvasFamily::kTwoStream, seq_len_, tokens);
  }

 private:
  // The place of each token's group in the order.
  std::vector<int32_t> DrawGroups(const TextSample& sample) const {
    RandomStream random = LaneDraws(sample);
    // group_of[i]: the i-th token's group, of the text or of a random order of it.
    std::vector<int32_t> group_of(static_cast<size_t>(seq_len_));
    const auto sizes = static_cast<uint64_t>(config_.group_len_max - config_.group_len_min + 1);
    int32_t num_groups = 0;
    for (int64_t begin = 0; begin < seq_len_; ++num_groups) {
      const int64_t size = config_.group_len_min + static_cast<int64_t>(random.Below64(sizes));
      const int64_t end = std::min(seq_len_, begin + size);
      std::fill(group_of.begin() + begin, group_of.begin() + end, num_groups);
      begin = end;
    }
    if (config_.group_order == GroupOrder::kText) return group_of;
    std::vector<int32_t> groups(group_of.size());
    if (config_.group_order == GroupOrder::kBlocks) {
      const std::vector<int32_t> order = DrawOrder(num_groups, random);
      for (size_t i = 0; i < groups.size(); ++i) groups[i] = order[group_of[i]];
    } else {
      const std::vector<int32_t> order = DrawOrder(seq_len_, random);
      for (size_t i = 0; i < groups.size(); ++i) groups[order[i]] = group_of[i];
    }
    return groups;
  }
};

}  // namespace

ObjectiveOrStatus MakeA3(const ObjectiveSettings& settings) {
  const AnyOrderConfig& config = settings.sampling.any_order;
  const int64_t seq_len = settings.sampling.seq_len;
  if (config.group_len_max < config.group_len_min || config.group_len_max > seq_len) {
    return InvalidArgument("[sampling] group_len_min=", config.group_len_min,
                           ", group_len_max=", config.group_len_max,
                           " must satisfy min <= max <= seq_len=", seq_len);
  }
  return std::make_unique<A3>(settings);
}

}  // namespace anyorder
