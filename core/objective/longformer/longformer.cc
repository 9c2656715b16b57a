#include "core/objective/longformer/longformer.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/objective/lane_frame.h"
#include "core/objective/masked_lm.h"

namespace anyorder {
namespace {

class Longformer final : public Objective {
 public:
  using Objective::Objective;

  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape = WindowShape(
        {.seq_len = num_slots(), .content = num_slots(), .targets = targets_}, batch_size);
    shape.advance = seq_len_;
    shape.global_rows = num_classifiers();
    if (sampling_.global_stride > 0) {
      shape.global_rows += (seq_len_ + sampling_.global_stride - 1) / sampling_.global_stride;
    }
    return shape;
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    ANYORDER_CHECK(static_cast<int64_t>(sample.tokens.size()) == seq_len_)
        << sample.tokens.size() << " tokens, expected " << seq_len_;
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
  int64_t num_slots() const { return num_classifiers() + seq_len_; }
  bool IsGlobal(int64_t slot) const {
    const int64_t place = slot - num_classifiers();
    return place < 0 || (sampling_.global_stride > 0 && place % sampling_.global_stride == 0);
  }

  // The targets' places in the text, increasing: as likely one set as any other.
  std::vector<int64_t> DrawTargets(RandomStream& random) const {
    std::vector<int64_t> places(static_cast<size_t>(seq_len_));
    std::iota(places.begin(), places.end(), 0);
    DrawFirst(targets_, random, places.begin(), places.end());
    places.resize(static_cast<size_t>(targets_));
    std::sort(places.begin(), places.end());
    return places;
  }

  void MaskTargets(const TextSample& sample, int64_t b, Batch& batch) const {
    RandomStream random = LaneDraws(sample);
    int64_t entry = 0;
    for (const int64_t place : DrawTargets(random)) {
      const int64_t row = ContentRow(batch.shape, b) + num_classifiers() + place;
      batch.tokens[row] = Corrupted(sample.tokens[place], sampling_, sample.vocabulary, random);
      SetReadout(b, entry++, row, sample.tokens[place], 1.0f, batch);
    }
  }

  const int64_t targets_ = sampling_.NumTargets(SampleKind::kMaskedPairs);
};

}  // namespace

ObjectiveOrStatus MakeLongformer(const ObjectiveSettings& settings) {
  const SamplingConfig& sampling = settings.sampling;
  const ModelConfig& model = settings.model;
  FaultList faults;
  faults.Require(sampling.spans == SpanKind::kSingle,
                 "[sampling] spans must be \"single\": longformer masks tokens one by one");
  faults.Require(sampling.global_classifiers <= sampling.seq_len,
                 absl::StrCat("[sampling] global_classifiers=", sampling.global_classifiers,
                              " must be at most seq_len = ", sampling.seq_len));
  const int64_t slots = sampling.seq_len + sampling.global_classifiers;
  faults.Require(
      model.positions != Positions::kLearned || slots <= model.max_positions,
      absl::StrCat("sampling.seq_len + sampling.global_classifiers is ", slots,
                   " but model.max_positions is ", model.max_positions,
                   "; learned positions need one for each slot (`anyorder import --format "
                   "run` copies a shorter model's)"));
  faults.Require(
      !model.global_projections || sampling.global_classifiers > 0 || sampling.global_stride > 0,
      "model.global_projections is true but no slot is global; set "
      "sampling.global_classifiers or sampling.global_stride");
  RETURN_IF_ERROR(faults.ToStatus());
  return std::make_unique<Longformer>(settings);
}

}  // namespace anyorder
