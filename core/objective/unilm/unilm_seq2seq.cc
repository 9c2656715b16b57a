#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"
#include "core/objective/masked_lm.h"
#include "core/objective/unilm/unilm.h"

namespace anyorder {
namespace {

// [CLS], a token of source, [SEP], a token of target, [SEP].
constexpr int64_t kLeastSlots = 5;

class UnilmSeq2seq final : public Objective {
 public:
  using Objective::Objective;

  int64_t num_segments() const override { return kNumUnilmSegments; }
  std::string quantity() const override {
    return "NLL of hidden target tokens, each from its source and what stands before it, hidden or "
           "not";
  }
  FormOrStatus Generation(const GenerationTokens& tokens) const override {
    return MakeUnilmGeneration(tokens);
  }

  BatchShape Shape(int64_t batch_size) const override {
    // The longest target leaves its source one token.
    return WindowShape({.seq_len = seq_len_,
                        .content = seq_len_,
                        .targets = NumTargets(seq_len_ - kLeastSlots + 1)},
                       batch_size);
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    FillLaneIdentity(sample, b, batch);
    const SourceTargetText text = LayOutSourceTarget(sample, seq_len_);
    const auto length = static_cast<int64_t>(text.tokens.size());
    for (int64_t slot = 0; slot < seq_len_; ++slot) {
      Slot value = RankedSlot(slot < length ? text.tokens[slot] : sample.vocabulary.separator, slot,
                              std::max<int64_t>(0, slot - text.source_slots + 1),
                              slot < text.source_slots ? kUnilmSource : kUnilmTarget);
      value.doc = slot < length ? 0 : kernels::kDocPad;
      SetContentSlot(b, slot, value, batch);
    }
    HideTargets(sample, text, b, batch);
  }

 private:
  // Of a target of `tokens` tokens, [SEP] not counted, as the released code counts.
  int64_t NumTargets(int64_t tokens) const {
    const auto share = static_cast<int64_t>(
        std::nearbyint(sampling_.target_mask_prob * static_cast<double>(tokens)));
    return std::min(sampling_.num_predict, std::max<int64_t>(1, share));
  }

  // Chooses targets, corrupts the input there and reads them out. Entries that are left over read
  // other slots, each another one.
  void HideTargets(const TextSample& sample, const SourceTargetText& text, int64_t b,
                   Batch& batch) const {
    RandomStream random = LaneDraws(sample);
    const auto length = static_cast<int64_t>(text.tokens.size());
    std::vector<int64_t> slots(static_cast<size_t>(seq_len_));
    // The target's slots first, in random order; then all others.
    for (size_t i = 0; i < slots.size(); ++i)
      slots[i] = (text.source_slots + static_cast<int64_t>(i)) % seq_len_;
    const int64_t candidates = length - text.source_slots;
    const int64_t hidden = NumTargets(candidates - 1);
    DrawFirst(hidden, random, slots.begin(), slots.begin() + candidates);
    std::sort(slots.begin(), slots.begin() + hidden);
    for (int64_t i = 0; i < batch.shape.targets; ++i) {
      const int64_t row = ContentRow(batch.shape, b) + slots[i];
      const bool is_target = i < hidden;
      const int32_t truth = is_target ? text.tokens[slots[i]] : 0;
      SetReadout(b, i, row, truth, is_target ? 1.0f : 0.0f, batch);
      if (is_target) batch.tokens[row] = Corrupted(truth, sampling_, sample.vocabulary, random);
    }
  }
};

}  // namespace

SourceTargetText LayOutSourceTarget(const TextSample& sample, int64_t slots) {
  ANYORDER_CHECK(sample.parts.size() == 2 && slots >= 5)
      << sample.parts.size() << " parts of example " << sample.example << ", " << slots << " slots";
  constexpr int64_t kNumFunctional = 3;
  const int64_t room = slots - kNumFunctional;
  auto source = static_cast<int64_t>(sample.parts[0].size());
  auto target = static_cast<int64_t>(sample.parts[1].size());
  int64_t excess = std::max<int64_t>(0, source + target - room);
  int64_t& longer = source > target ? source : target;
  const int64_t levelled = std::min(excess, std::max(source, target) - std::min(source, target));
  longer -= levelled;
  excess -= levelled;
  target -= (excess + 1) / 2;
  source -= excess / 2;

  SourceTargetText text;
  const auto add = [&text](const std::vector<int32_t>& part, int64_t count) {
    text.tokens.insert(text.tokens.end(), part.begin(), part.begin() + count);
  };
  text.tokens.push_back(sample.vocabulary.classifier);
  add(sample.parts[0], source);
  text.tokens.push_back(sample.vocabulary.separator);
  text.source_slots = static_cast<int64_t>(text.tokens.size());
  add(sample.parts[1], target);
  text.tokens.push_back(sample.vocabulary.separator);
  return text;
}

ObjectiveOrStatus MakeUnilmSeq2seq(const ObjectiveSettings& settings) {
  FaultList faults;
  faults.Require(
      settings.sampling.seq_len >= kLeastSlots,
      absl::StrCat("sampling.seq_len is ", settings.sampling.seq_len, " but must be at least ",
                   kLeastSlots, ": [CLS] source [SEP] target [SEP]"));
  faults.Require(
      settings.model.segments == Segments::kLearned,
      "model.segments must be \"learned\" for unilm_seq2seq: they tell source and target");
  RETURN_IF_ERROR(faults.ToStatus());
  return std::make_unique<UnilmSeq2seq>(settings);
}

}  // namespace anyorder
