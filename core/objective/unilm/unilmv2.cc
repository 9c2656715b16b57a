#include "core/objective/unilm/unilmv2.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"
#include "core/objective/masked_lm.h"

namespace anyorder {
namespace {

constexpr int64_t kNumFunctional = 3;  // [SOS], [EOS], [EOS]
enum LossId : int32_t { kAutoencoding, kPartiallyAutoregressive, kNumLosses };

// One masked token: where, and in which step of the factorisation it is predicted, from 1 on.
struct MaskedToken {
  int64_t slot = 0;
  int32_t step = 0;
};

class UnilmV2 final : public Objective {
 public:
  using Objective::Objective;

  int64_t num_segments() const override { return 2; }
  std::string quantity() const override {
    return "NLL of masked tokens, once each alone plus once block after block (no perplexity)";
  }

  std::string evaluation_note() const override {
    return absl::StrCat(
        "the loss is the sum of two means over the same masked tokens: ae, each read at its [M], "
        "and par, read at its [P] after the blocks drawn before; kept_originals = \"",
        EnumName(sampling_.kept_originals), "\"; ");
  }

  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape = WindowShape({.seq_len = seq_len_,
                                    .content = seq_len_ + 2 * masks_,
                                    .targets = kNumLosses * masks_,
                                    .own_divisor = true},
                                   batch_size);
    shape.advance = sampling_.reuse_len;
    shape.loss_names = {"ae", "par"};
    return shape;
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    const auto slots = static_cast<size_t>(seq_len_);
    ANYORDER_CHECK(sample.tokens.size() == slots && sample.is_functional.size() == slots &&
                   sample.segment.size() == slots && sample.vocabulary.size > 0)
        << "sample of " << sample.tokens.size() << " tokens, expected " << seq_len_;
    FillLaneIdentity(sample, b, batch);
    RandomStream random = LaneDraws(sample);
    const std::vector<MaskedToken> masked = DrawMasked(sample, random);
    FillText(sample, masked, b, batch);
    batch.divisors[b] = static_cast<double>(masked.size());
    for (int64_t i = 0; i < masks_; ++i) {
      if (i < static_cast<int64_t>(masked.size())) {
        FillMasks(sample, masked[i], i, random, b, batch);
      } else {
        FillPadding(i, b, batch);
      }
    }
  }

 private:
  // The sample ends with CLS, which comes first here: [SOS] S1 [EOS] S2 [EOS].
  int64_t PlaceOf(int64_t slot) const { return (slot + seq_len_ - 1) % seq_len_; }
  int32_t SegmentAt(const TextSample& sample, int64_t slot) const {
    return slot == 0 ? 0 : sample.segment[PlaceOf(slot)];
  }

  std::vector<MaskedToken> DrawMasked(const TextSample& sample, RandomStream& random) const {
    std::vector<uint8_t> is_special(static_cast<size_t>(seq_len_));
    for (int64_t slot = 0; slot < seq_len_; ++slot)
      is_special[slot] = sample.is_functional[PlaceOf(slot)];
    std::vector<MaskedToken> masked;
    int32_t step = 0;
    for (const TokenBlock& block : DrawBlocks(sampling_, is_special, random)) {
      ++step;
      for (int64_t slot = block.begin; slot < block.end; ++slot) masked.push_back({slot, step});
    }
    return masked;
  }

  void FillText(const TextSample& sample, const std::vector<MaskedToken>& masked, int64_t b,
                Batch& batch) const {
    std::vector<int32_t> rank(static_cast<size_t>(seq_len_), 0);
    for (const MaskedToken& token : masked) rank[token.slot] = token.step;
    for (int64_t slot = 0; slot < seq_len_; ++slot) {
      SetContentSlot(
          b, slot,
          RankedSlot(sample.tokens[PlaceOf(slot)], slot, rank[slot], SegmentAt(sample, slot)),
          batch);
    }
  }

  // The i-th [M] and [P] of lane b.
  void FillMasks(const TextSample& sample, const MaskedToken& token, int64_t i,
                 RandomStream& random, int64_t b, Batch& batch) const {
    const int32_t truth = sample.tokens[PlaceOf(token.slot)];
    int32_t input = Corrupted(truth, sampling_, sample.vocabulary, random);
    if (sampling_.kept_originals == KeptOriginals::kMask && input == truth)
      input = sample.vocabulary.mask;
    const int32_t segment = SegmentAt(sample, token.slot);
    SetContentSlot(b, SlotOf(kAutoencoding, i), RankedSlot(input, token.slot, 0, segment), batch);
    SetContentSlot(
        b, SlotOf(kPartiallyAutoregressive, i),
        GroupSlot(sample.vocabulary.mask, token.slot, token.step - 1, token.step, segment), batch);
    const bool tells = sampling_.kept_originals == KeptOriginals::kDropPar && input == truth;
    Read(b, i, kAutoencoding, truth, 1.0f, batch);
    Read(b, i, kPartiallyAutoregressive, truth, tells ? 0.0f : 1.0f, batch);
  }

  // Nobody sees these slots, they see nothing, and nothing is read from them.
  void FillPadding(int64_t i, int64_t b, Batch& batch) const {
    for (const int32_t loss : {kAutoencoding, kPartiallyAutoregressive}) {
      SetContentSlot(b, SlotOf(loss, i), PadSlot(0), batch);
      Read(b, i, loss, 0, 0.0f, batch);
    }
  }

  void Read(int64_t b, int64_t i, int32_t loss, int32_t label, float weight, Batch& batch) const {
    const int64_t entry = loss * masks_ + i;
    SetReadout(b, entry, ContentRow(batch.shape, b) + SlotOf(loss, i), label, weight, batch);
    batch.loss_ids[b * batch.shape.targets + entry] = loss;
  }

  // Of the i-th [M] (autoencoding) or [P].
  int64_t SlotOf(int32_t loss, int64_t i) const { return seq_len_ + loss * masks_ + i; }

  const int64_t masks_ = MostInBlocks(sampling_, seq_len_);
};

absl::Status CheckBlocks(const SamplingConfig& sampling) {
  FaultList faults;
  faults.Require(sampling.short_sequence_prob == 0,
                 absl::StrCat("sampling.short_sequence_prob is ", sampling.short_sequence_prob,
                              " but must be 0: blocks are drawn from whole windows"));
  faults.Require(sampling.block_max_span >= sampling.block_min_span &&
                     sampling.block_max_span <= sampling.seq_len,
                 absl::StrCat("sampling.block_min_span is ", sampling.block_min_span,
                              " and sampling.block_max_span ", sampling.block_max_span,
                              " but must satisfy block_min_span <= block_max_span <= seq_len"));
  const int64_t goal = BlockGoal(sampling, sampling.seq_len);
  const int64_t ordinary = sampling.seq_len - kNumFunctional;
  faults.Require(
      goal <= ordinary,
      absl::StrCat("sampling.mask_fraction is ", sampling.mask_fraction, ", which asks for ", goal,
                   " masked tokens of ", ordinary, " that are not special; mask fewer"));
  faults.Require(
      goal <= sampling.num_predict,
      absl::StrCat("sampling.num_predict is ", sampling.num_predict,
                   " but sampling.mask_fraction asks for ", goal,
                   " masked tokens; give at least as many slots, or ",
                   goal - 1 + sampling.block_max_span, " for the last block to be of any length"));
  return faults.ToStatus();
}

}  // namespace

int64_t BlockGoal(const SamplingConfig& sampling, int64_t size) {
  // 0.15 * 20 is 3 and must not become 4 by its last bit.
  const double exact = sampling.mask_fraction * static_cast<double>(size);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(exact * (1 - 1e-12))));
}

int64_t MostInBlocks(const SamplingConfig& sampling, int64_t size) {
  return std::min(sampling.num_predict,
                  BlockGoal(sampling, size) - 1 + std::max<int64_t>(1, sampling.block_max_span));
}

std::vector<TokenBlock> DrawBlocks(const SamplingConfig& sampling,
                                   absl::Span<const uint8_t> is_special, RandomStream& random) {
  const auto size = static_cast<int64_t>(is_special.size());
  const int64_t goal = BlockGoal(sampling, size);
  std::vector<uint8_t> taken(is_special.begin(), is_special.end());
  ANYORDER_CHECK(std::count(taken.begin(), taken.end(), 0) >= goal &&
                 goal <= sampling.num_predict && sampling.block_span_prob < 1 &&
                 sampling.block_min_span >= 1 && sampling.block_max_span >= sampling.block_min_span)
      << "no " << goal << " tokens of " << size << " can be masked";
  std::vector<TokenBlock> blocks;
  for (int64_t masked = 0; masked < goal;) {
    const auto begin = static_cast<int64_t>(random.Below64(static_cast<uint64_t>(size)));
    int64_t length = 1;
    if (random.Uniform() < sampling.block_span_prob) {
      const auto lengths =
          static_cast<uint32_t>(sampling.block_max_span - sampling.block_min_span + 1);
      length = sampling.block_min_span + random.Below(lengths);
    }
    const int64_t end = begin + length;
    if (end > size || masked + length > sampling.num_predict) continue;
    if (std::any_of(taken.begin() + begin, taken.begin() + end, [](uint8_t t) { return t != 0; }))
      continue;
    std::fill(taken.begin() + begin, taken.begin() + end, 1);
    blocks.push_back({begin, end});
    masked += length;
  }
  return blocks;
}

ObjectiveOrStatus MakeUnilmV2(const ObjectiveSettings& settings) {
  RETURN_IF_ERROR(CheckBlocks(settings.sampling));
  return std::make_unique<UnilmV2>(settings);
}

}  // namespace anyorder
