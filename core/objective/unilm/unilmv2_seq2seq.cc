#include <algorithm>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"
#include "core/objective/masked_lm.h"
#include "core/objective/unilm/unilmv2.h"

namespace anyorder {
namespace {

constexpr int32_t kSourceSegment = 0;
constexpr int32_t kTargetSegment = 1;
// [SOS], the [EOS] after the source, and a token of it; the target's [EOS] is one of num_predict.
constexpr int64_t kLeastSource = 3;

class UnilmV2Seq2seq final : public Objective {
 public:
  using Objective::Objective;

  int64_t num_segments() const override { return 2; }
  std::string quantity() const override {
    return "NLL of target tokens from their source and the ones before, some of which are replaced";
  }

  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape = WindowShape({.seq_len = seq_len_,
                                    .content = seq_len_ + sampling_.num_predict,
                                    .targets = sampling_.num_predict},
                                   batch_size);
    shape.advance = 1;
    return shape;
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    ANYORDER_CHECK(sample.parts.size() == 2 && sample.tokens.empty())
        << "example " << sample.example << " has " << sample.parts.size() << " parts";
    FillLaneIdentity(sample, b, batch);
    for (int64_t slot = 0; slot < batch.shape.content_rows; ++slot)
      SetContentSlot(b, slot, PadSlot(0), batch);
    const std::vector<int32_t> target = TargetOf(sample);
    const int64_t first_target = FillSource(sample, static_cast<int64_t>(target.size()), b, batch);
    RandomStream random = LaneDraws(sample);
    for (int64_t t = 0; t < sampling_.num_predict; ++t) {
      const bool is_used = t < static_cast<int64_t>(target.size());
      if (is_used) FillTarget(sample.vocabulary, target[t], t, first_target, random, b, batch);
      SetReadout(b, t, ContentRow(batch.shape, b) + seq_len_ + t, is_used ? target[t] : 0,
                 is_used ? 1.0f : 0.0f, batch);
    }
  }

  FormOrStatus Generation(const GenerationTokens& tokens) const override {
    return MakePseudoMaskGeneration({.tokens = tokens,
                                     .read_token = tokens.mask,
                                     .source_segment = kSourceSegment,
                                     .target_segment = kTargetSegment});
  }

 private:
  // With [EOS].
  std::vector<int32_t> TargetOf(const TextSample& sample) const {
    std::vector<int32_t> target = sample.parts[1];
    target.resize(std::min(target.size(), static_cast<size_t>(sampling_.num_predict - 1)));
    target.push_back(sample.vocabulary.separator);
    return target;
  }

  // [SOS] source [EOS]; where the target begins.
  int64_t FillSource(const TextSample& sample, int64_t target_len, int64_t b, Batch& batch) const {
    const std::vector<int32_t>& source = sample.parts[0];
    const int64_t room = seq_len_ - target_len - 2;
    const auto kept = std::min(static_cast<int64_t>(source.size()), room);
    int64_t slot = 0;
    const auto add = [&](int32_t token) {
      SetContentSlot(b, slot, RankedSlot(token, slot, 0, kSourceSegment), batch);
      ++slot;
    };
    add(sample.vocabulary.classifier);
    for (int64_t i = 0; i < kept; ++i) add(source[i]);
    add(sample.vocabulary.separator);
    return slot;
  }

  // The target token `t` and its [P].
  void FillTarget(const VocabularyIds& ids, int32_t token, int64_t t, int64_t first_target,
                  RandomStream& random, int64_t b, Batch& batch) const {
    const int64_t place = first_target + t;
    const bool is_replaced = random.Uniform() < sampling_.target_replace_prob;
    const int32_t read = is_replaced ? Corrupted(token, sampling_, ids, random) : token;
    SetContentSlot(b, place, RankedSlot(read, place, t + 1, kTargetSegment), batch);
    SetContentSlot(b, seq_len_ + t, GroupSlot(ids.mask, place, t, t + 1, kTargetSegment), batch);
  }
};

}  // namespace

ObjectiveOrStatus MakeUnilmV2Seq2seq(const ObjectiveSettings& settings) {
  const int64_t num_predict = settings.sampling.num_predict;
  const int64_t most = settings.sampling.seq_len - kLeastSource;
  if (num_predict < 2 || num_predict > most) {
    return InvalidArgument("sampling.num_predict (the longest target, its end included) is ",
                           num_predict, " but must be in [2, sampling.seq_len - ", kLeastSource,
                           " = ", most, "]");
  }
  return std::make_unique<UnilmV2Seq2seq>(settings);
}

}  // namespace anyorder
