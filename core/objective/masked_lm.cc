#include "core/objective/masked_lm.h"

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

class MaskedLm final : public Objective {
 public:
  using Objective::Objective;

  std::string quantity() const override {
    return "NLL of corrupted tokens, each predicted alone (no perplexity)";
  }
  // CLS has one of its own unless it is part of A.
  int64_t num_segments() const override { return cls_first() ? 2 : 3; }

  BatchShape Shape(int64_t batch_size) const override {
    // From a half's first slot (without halves: the first) looking at its last one, to the last
    // slot looking at the oldest memory.
    const int64_t min_distance = 1 - (remembers() ? half_len_ : seq_len_);
    return {.batch_size = batch_size,
            .content_rows = seq_len_,
            .memory_rows = memory_rows_,
            .targets = sampling_.NumTargets(SampleKind::kMaskedPairs),
            .advance = half_len_,
            .min_distance = min_distance,
            .num_distances = seq_len_ + memory_rows_ - min_distance,
            .content_readout = true,
            .next_sentence = next_sentence_};
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    const auto slots = static_cast<size_t>(seq_len_);
    ANYORDER_CHECK(sample.is_masked.size() == slots && sample.input_tokens.size() == slots &&
                   sample.is_functional.size() == slots && sample.segment.size() == slots)
        << "sample of " << sample.is_masked.size() << " slots, " << sample.input_tokens.size()
        << " of them to read, expected " << seq_len_;
    FillLaneIdentity(sample, b, batch);
    FillMemoryKeys(sample, model_.initial_memory, b, batch);
    const int64_t cls = seq_len_ - 1 - sample.padding;
    for (int64_t place = 0; place < seq_len_; ++place) {
      const int64_t slot = SlotOf(sample, place);
      Slot value =
          RankedSlot(sample.input_tokens[place], slot, remembers() && slot >= half_len_ ? 1 : 0,
                     place == cls && cls_first() ? 0 : sample.segment[place]);
      value.doc = place <= cls ? 0 : kernels::kDocPad;
      SetContentSlot(b, slot, value, batch);
    }
    FillMaskedReadout(sample, cls_first(), b, batch);
    // A short sample's label counts as much less as its targets are fewer, so that labels have the
    // weight of one mean.
    const int64_t share = sampling_.MaskedTargets(seq_len_ - sample.padding);
    if (next_sentence_) FillNextSentence(sample, share, SlotOf(sample, cls), b, batch);
  }

  FormOrStatus Generation(const GenerationTokens&) const override {
    return FailedPrecondition(
        "a network trained with ", name(),
        " predicts masked tokens independently and from both sides, and cannot write text from "
        "left to right; use a network trained with causal_lm, gpt or permutation_lm");
  }

 private:
  bool remembers() const { return traits().has(ObjectiveTraits::kRemembers); }
  bool cls_first() const { return traits().layout.cls_first(); }
  // Where the sample's token `place` stands: the sample's text ends with CLS.
  int64_t SlotOf(const TextSample& sample, int64_t place) const {
    return cls_first() ? ClsFirstSlot(sample, place) : place;
  }

  const int64_t memory_rows_ = model_.mem_len;
  const int64_t half_len_ = sampling_.reuse_len;
  const bool next_sentence_ = model_.next_sentence_head;
};

}  // namespace

ObjectiveOrStatus MakeMaskedLm(const ObjectiveSettings& settings) {
  const ObjectiveTraits& traits = settings.traits;
  const SamplingConfig& sampling = settings.sampling;
  const bool remembers = traits.has(ObjectiveTraits::kRemembers);
  FaultList faults;
  faults.Require(
      !remembers || sampling.short_sequence_prob == 0,
      absl::StrCat("sampling.short_sequence_prob is ", sampling.short_sequence_prob,
                   " but must be 0: the memory of ", traits.name, " would remember padding"));
  faults.Require(!remembers || sampling.pairs == PairStyle::kXlnet,
                 absl::StrCat("sampling.pairs is \"bert\" but must be \"xlnet\": ", traits.name,
                              " remembers the reuse part"));
  RETURN_IF_ERROR(faults.ToStatus());
  return std::make_unique<MaskedLm>(settings);
}

void FillMaskedReadout(const TextSample& sample, bool cls_first, int64_t b, Batch& batch) {
  const int64_t targets = batch.shape.targets;
  const auto places = static_cast<int64_t>(sample.is_masked.size());
  int64_t entry = 0;
  for (const bool target : {true, false}) {
    for (int64_t place = 0; place < places; ++place) {
      if ((sample.is_masked[place] != 0) != target) continue;
      if (!target && entry == targets) return;
      ANYORDER_CHECK(entry < targets) << "lane " << sample.lane << " step " << sample.step
                                      << " has more than " << targets << " targets";
      const int64_t slot = cls_first ? ClsFirstSlot(sample, place) : place;
      SetReadout(b, entry++, ContentRow(batch.shape, b) + slot, target ? sample.tokens[place] : 0,
                 target ? 1.0f : 0.0f, batch);
    }
  }
}

int32_t Corrupted(int32_t truth, const SamplingConfig& sampling, const VocabularyIds& ids,
                  RandomStream& random) {
  const double u = random.Uniform();
  if (u < sampling.mask_token_prob) return ids.mask;
  if (u < sampling.mask_token_prob + sampling.random_token_prob)
    return static_cast<int32_t>(random.Below64(static_cast<uint64_t>(ids.size)));
  return truth;
}

}  // namespace anyorder
