#include "core/objective/unilm/unilm.h"

#include <algorithm>
#include <string>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"
#include "core/objective/masked_lm.h"

namespace anyorder {
namespace {

// Of a slot in a sample of `length` slots, CLS first. Targets of a sequence to sequence follow
// `source` slots.
int32_t RankOf(TextMode mode, int64_t slot, int64_t source, int64_t length) {
  switch (mode) {
    case TextMode::kBidirectional: return 0;
    case TextMode::kSeq2seq: return slot < source ? 0 : static_cast<int32_t>(slot - source + 1);
    case TextMode::kLeftToRight: return static_cast<int32_t>(slot);
    case TextMode::kRightToLeft: return static_cast<int32_t>(length - 1 - slot);
  }
  return 0;
}

// By TextMode.
constexpr int32_t kSegments[kNumTextModes][2] = {{kUnilmFirstSegment, kUnilmSecondSegment},
                                                 {kUnilmSource, kUnilmTarget},
                                                 {kUnilmLeftToRight, kUnilmLeftToRight},
                                                 {kUnilmRightToLeft, kUnilmRightToLeft}};

class Unilm final : public Objective {
 public:
  using Objective::Objective;

  int64_t num_segments() const override { return kNumUnilmSegments; }
  std::string quantity() const override {
    return "pseudo-NLL of masked tokens, each alone, from what its mode lets it see";
  }
  FormOrStatus Generation(const GenerationTokens& tokens) const override {
    return MakeUnilmGeneration(tokens);
  }

  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape = WindowShape({.seq_len = seq_len_,
                                    .content = seq_len_,
                                    .targets = sampling_.NumTargets(SampleKind::kModePairs)},
                                   batch_size);
    shape.advance = sampling_.reuse_len;
    shape.next_sentence = model_.next_sentence_head;
    shape.loss_names = EnumNameList<TextMode>();
    return shape;
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    const int64_t slots = seq_len_;
    ANYORDER_CHECK(static_cast<int64_t>(sample.input_tokens.size()) == slots &&
                   static_cast<int64_t>(sample.segment.size()) == slots)
        << "sample of " << sample.input_tokens.size() << " slots, expected " << slots;
    FillLaneIdentity(sample, b, batch);
    const int64_t length = slots - sample.padding;
    // CLS and what is not the second segment.
    int64_t source = 1;
    while (source < length && sample.segment[source - 1] == 0) ++source;
    for (int64_t place = 0; place < slots; ++place) {
      const int64_t slot = ClsFirstSlot(sample, place);
      Slot value =
          RankedSlot(sample.input_tokens[place], slot, RankOf(sample.mode, slot, source, length),
                     kSegments[static_cast<int>(sample.mode)][slot >= source ? 1 : 0]);
      value.doc = slot < length ? 0 : kernels::kDocPad;
      SetContentSlot(b, slot, value, batch);
    }
    FillMaskedReadout(sample, true, b, batch);
    std::fill_n(batch.loss_ids.begin() + b * batch.shape.targets, batch.shape.targets,
                static_cast<int32_t>(sample.mode));
    if (model_.next_sentence_head) FillLabel(sample, b, batch);
  }

 private:
  // As FillNextSentence says, each lane counts once: the step's loss is the mean over lanes of a
  // lane's mean nll plus, in bidirectional mode, that of its label.
  void FillLabel(const TextSample& sample, int64_t b, Batch& batch) const {
    const int64_t share = sample.mode == TextMode::kBidirectional
                              ? sampling_.MaskedTargets(seq_len_ - sample.padding)
                              : 0;
    FillNextSentence(sample, share, 0, b, batch);
  }
};

}  // namespace

std::unique_ptr<GenerationForm> MakeUnilmGeneration(const GenerationTokens& tokens) {
  return MakeClozeGeneration({.tokens = tokens,
                              .read_token = tokens.mask,
                              .source_segment = kUnilmSource,
                              .target_segment = kUnilmTarget});
}

ObjectiveOrStatus MakeUnilm(const ObjectiveSettings& settings) {
  FaultList faults;
  faults.Require(
      settings.model.segments == Segments::kLearned,
      "model.segments must be \"learned\" for unilm: segment ids say which mode a slot is in");
  faults.Require(!settings.model.next_sentence_head || settings.sampling.bidirectional_share > 0,
                 "objective.next_sentence is true but sampling.bidirectional_share is 0: only the "
                 "bidirectional mode has next-sentence labels");
  RETURN_IF_ERROR(faults.ToStatus());
  return std::make_unique<Unilm>(settings);
}

}  // namespace anyorder
