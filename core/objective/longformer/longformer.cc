#include "core/objective/longformer/longformer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"

namespace anyorder {
namespace {

class Longformer final : public Objective {
 public:
  explicit Longformer(const SamplingConfig& sampling)
      : sampling_(sampling), targets_(sampling.NumTargets(SampleKind::kMaskedPairs)) {}

  std::string name() const override { return "longformer"; }
  SampleKind sample_kind() const override { return SampleKind::kContiguous; }

  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape = WindowShape(
        {.seq_len = num_slots(), .content = num_slots(), .targets = targets_}, batch_size);
    shape.advance = sampling_.seq_len;
    shape.global_rows = num_classifiers();
    if (sampling_.global_stride > 0) {
      shape.global_rows +=
          (sampling_.seq_len + sampling_.global_stride - 1) / sampling_.global_stride;
    }
    return shape;
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    ANYORDER_CHECK(static_cast<int64_t>(sample.tokens.size()) == sampling_.seq_len)
        << sample.tokens.size() << " tokens, expected " << sampling_.seq_len;
    FillLaneIdentity(sample, b, batch);
    const int64_t first_row = ContentRow(batch.shape, b);
    int64_t global = b * batch.shape.global_rows;
    for (int64_t slot = 0; slot < num_slots(); ++slot) {
      const int64_t row = first_row + slot;
      const int32_t token = slot < num_classifiers() ? sample.vocabulary.classifier
                                                     : sample.tokens[slot - num_classifiers()];
      SetContentSlot(b, slot, RankedSlot(token, slot, 0), batch);
      batch.row_glob[row] = batch.key_glob[ContentKey(batch.shape, b) + slot] =
          IsGlobal(slot) ? 1 : 0;
      if (IsGlobal(slot)) batch.global_slots[global++] = static_cast<int32_t>(row);
    }
    MaskTargets(sample, b, batch);
  }

 private:
  int64_t num_classifiers() const { return sampling_.global_classifiers; }
  int64_t num_slots() const { return num_classifiers() + sampling_.seq_len; }
  bool IsGlobal(int64_t slot) const {
    const int64_t place = slot - num_classifiers();
    return place < 0 || (sampling_.global_stride > 0 && place % sampling_.global_stride == 0);
  }

  // The targets' places in the text, increasing: as likely one set as any other.
  std::vector<int64_t> DrawTargets(RandomStream& random) const {
    std::vector<int64_t> places(static_cast<size_t>(sampling_.seq_len));
    for (int64_t i = 0; i < sampling_.seq_len; ++i) places[i] = i;
    for (int64_t i = 0; i < targets_; ++i) {
      const auto left = static_cast<uint32_t>(sampling_.seq_len - i);
      std::swap(places[i], places[i + random.Below(left)]);
    }
    places.resize(static_cast<size_t>(targets_));
    std::sort(places.begin(), places.end());
    return places;
  }

  void MaskTargets(const TextSample& sample, int64_t b, Batch& batch) const {
    RandomStream random = LaneDraws(sample);
    int64_t entry = 0;
    for (const int64_t place : DrawTargets(random)) {
      const int64_t row = ContentRow(batch.shape, b) + num_classifiers() + place;
      const double kind = random.Uniform();
      if (kind < sampling_.mask_token_prob) {
        batch.tokens[row] = sample.vocabulary.mask;
      } else if (kind < sampling_.mask_token_prob + sampling_.random_token_prob) {
        // Any id, special pieces included, as BERT draws it.
        batch.tokens[row] =
            static_cast<int32_t>(random.Below(static_cast<uint32_t>(sample.vocabulary.size)));
      }
      SetReadout(b, entry++, row, sample.tokens[place], 1.0f, batch);
    }
  }

  SamplingConfig sampling_;
  int64_t targets_;
};

absl::Status CheckMasking(const SamplingConfig& sampling) {
  FaultList faults;
  faults.Require(sampling.spans == SpanKind::kSingle,
                 "spans must be \"single\": longformer masks tokens one by one");
  faults.Require(sampling.global_classifiers <= sampling.seq_len,
                 absl::StrCat("global_classifiers=", sampling.global_classifiers,
                              " must be at most seq_len = ", sampling.seq_len));
  if (faults.empty()) return absl::OkStatus();
  return InvalidArgument("[sampling] ", faults.Joined());
}

absl::Status CheckModel(const ModelConfig& model, const SamplingConfig& sampling) {
  FaultList faults;
  const int64_t slots = sampling.seq_len + sampling.global_classifiers;
  faults.Require(
      model.positions != Positions::kLearned || slots <= model.max_positions,
      absl::StrCat("sampling.seq_len + sampling.global_classifiers is ", slots,
                   " but model.max_positions is ", model.max_positions,
                   "; learned positions need one for each slot (`anyorder import --format "
                   "run` copies a shorter model's)"));
  faults.Require(!model.next_sentence_head,
                 "objective.next_sentence is true, but longformer reads no sentence pairs; use "
                 "permutation_lm, dae or bert");
  faults.Require(
      !model.global_projections || sampling.global_classifiers > 0 || sampling.global_stride > 0,
      "model.global_projections is true but no slot is global; set "
      "sampling.global_classifiers or sampling.global_stride");
  return faults.ToStatus();
}

}  // namespace

ObjectiveOrStatus MakeLongformer(const ModelConfig& model, const SamplingConfig& sampling) {
  ANYORDER_RETURN_IF_ERROR(sampling.Validate(SampleKind::kContiguous));
  ANYORDER_RETURN_IF_ERROR(CheckMasking(sampling));
  ANYORDER_RETURN_IF_ERROR(CheckReadsWindows("longformer", model, sampling));
  ANYORDER_RETURN_IF_ERROR(CheckModel(model, sampling));
  return std::make_unique<Longformer>(sampling);
}

}  // namespace anyorder
