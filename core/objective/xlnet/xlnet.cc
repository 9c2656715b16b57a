#include "core/objective/xlnet/xlnet.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

class PermutationLm final : public Objective {
 public:
  using Objective::Objective;

  std::string quantity() const override {
    return "conditional NLL of partially predicted targets (no perplexity)";
  }
  int64_t num_segments() const override { return 3; }  // CLS

  BatchShape Shape(int64_t batch_size) const override {
    // Distances are from the first slot looking at the last one, to the last slot looking at the
    // oldest memory. CLS is a content row: the last layer then computes them all, 3 (Large) to 6 %
    // (Base) of a step's arithmetic.
    return {.batch_size = batch_size,
            .content_rows = seq_len_,
            .query_rows = num_predict_,
            .memory_rows = memory_rows_,
            .targets = num_predict_,
            .advance = half_len_,
            .min_distance = -(seq_len_ - 1),
            .num_distances = 2 * seq_len_ - 1 + memory_rows_,
            .content_readout = next_sentence_,
            .next_sentence = next_sentence_};
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    const auto slots = static_cast<size_t>(seq_len_);
    ANYORDER_CHECK(sample.is_masked.size() == slots && sample.is_functional.size() == slots &&
                   sample.order.size() == slots && sample.segment.size() == slots)
        << "sample of " << sample.is_masked.size() << " slots, expected " << seq_len_;
    FillLaneIdentity(sample, b, batch);
    FillMemoryKeys(sample, model_.initial_memory, b, batch);
    FillContent(sample, b, batch);
    FillQueries(sample, b, batch);
    if (next_sentence_) FillNextSentence(sample, num_predict_, seq_len_ - 1, b, batch);
  }

  std::string evaluation_note() const override {
    return absl::StrCat(num_predict_, " of ", seq_len_,
                        " tokens of a sequence are masked and predicted in a random order, the "
                        "others are context, SEP and CLS are never targets; ");
  }
  FormOrStatus Generation(const GenerationTokens& tokens) const override {
    return MakeQueryGeneration(tokens, seq_len_ + memory_rows_);
  }

  absl::StatusOr<CanvasForm> Canvas(const GenerationTokens& tokens) const override {
    return MakeCanvas(CanvasFamily::kTwoStream, seq_len_ + memory_rows_, tokens);
  }

 private:
  // The place of slot `slot` in the factorisation order. First half: 0 for context, 1 + order
  // otherwise; the second half goes on above the first half's largest rank.
  int32_t Rank(const TextSample& sample, int64_t slot) const {
    const bool second_half = slot >= half_len_;
    const bool is_context = sample.is_masked[slot] == 0 && sample.is_functional[slot] == 0;
    int32_t in_half = is_context ? 0 : 1 + sample.order[slot];
    // CLS sums up the whole pair for the next-sentence head: it comes after all others, so that
    // nobody else sees it, or through it a target's true token.
    if (next_sentence_ && slot == seq_len_ - 1) in_half = static_cast<int32_t>(half_len_) + 1;
    return in_half + (second_half ? static_cast<int32_t>(half_len_) + 1 : 0);
  }

  void FillContent(const TextSample& sample, int64_t b, Batch& batch) const {
    for (int64_t slot = 0; slot < seq_len_; ++slot) {
      SetContentSlot(
          b, slot, RankedSlot(sample.tokens[slot], slot, Rank(sample, slot), sample.segment[slot]),
          batch);
    }
  }

  // Targets in increasing position. A masked SEP or CLS is no target, so that slots may be left
  // over.
  void FillQueries(const TextSample& sample, int64_t b, Batch& batch) const {
    int64_t query = 0;
    for (int64_t slot = 0; slot < seq_len_; ++slot) {
      if (sample.is_masked[slot] == 0 || sample.is_functional[slot] != 0) continue;
      ANYORDER_CHECK(query < num_predict_) << "lane " << sample.lane << " step " << sample.step
                                           << " has more than " << num_predict_ << " targets";
      SetQuery(b, query++,
               {.pos = static_cast<int32_t>(slot),
                .lim = Rank(sample, slot) - 1,
                .seg = sample.segment[slot]},
               sample.tokens[slot], 1.0f, batch);
    }
    for (; query < num_predict_; ++query) SetQuery(b, query, {.lim = kSeesNothing}, 0, 0.0f, batch);
  }

  const int64_t memory_rows_ = model_.mem_len;
  const int64_t half_len_ = sampling_.reuse_len;
  const int64_t num_predict_ = sampling_.num_predict;
  const bool next_sentence_ = model_.next_sentence_head;
};

}  // namespace

ObjectiveOrStatus MakePermutationLm(const ObjectiveSettings& settings) {
  return std::make_unique<PermutationLm>(settings);
}

}  // namespace anyorder
