#include "core/model/objectives/dae.h"

#include <algorithm>
#include <string>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/model/objectives/lane_frame.h"

namespace anyorder {
namespace {

class Dae final : public Objective {
 public:
  Dae(const ModelConfig& model, const SamplingConfig& sampling)
      : initial_memory_(model.initial_memory),
        memory_rows_(model.mem_len),
        seq_len_(sampling.seq_len),
        half_len_(sampling.reuse_len),
        targets_(sampling.NumTargets(SampleKind::kMaskedPairs)),
        next_sentence_(model.next_sentence_head) {}

  std::string name() const override { return "dae"; }
  SampleKind sample_kind() const override { return SampleKind::kMaskedPairs; }
  int64_t num_segments() const override { return 3; }  // CLS

  BatchShape Shape(int64_t batch_size) const override {
    BatchShape shape;
    shape.batch_size = batch_size;
    shape.content_rows = seq_len_;
    shape.memory_rows = memory_rows_;
    shape.targets = targets_;
    shape.advance = half_len_;
    // From a half's first slot looking at its last one, to the last slot looking at the oldest memory.
    shape.min_distance = -(half_len_ - 1);
    shape.num_distances = seq_len_ + memory_rows_ - shape.min_distance;
    shape.content_readout = true;
    shape.next_sentence = next_sentence_;
    return shape;
  }

  void BuildLane(const TextSample& sample, int64_t b, Batch& batch) const override {
    const auto slots = static_cast<size_t>(seq_len_);
    ANYORDER_CHECK(sample.is_masked.size() == slots && sample.input_tokens.size() == slots &&
                   sample.is_functional.size() == slots && sample.segment.size() == slots)
        << "sample of " << sample.is_masked.size() << " slots, " << sample.input_tokens.size()
        << " of them to read, expected " << seq_len_;
    FillLaneIdentity(sample, b, batch);
    FillMemoryKeys(sample, initial_memory_, b, batch);
    std::copy(sample.input_tokens.begin(),
              sample.input_tokens.end(),
              batch.tokens.begin() + ContentRow(batch.shape, b));
    for (int64_t slot = 0; slot < seq_len_; ++slot) {
      const int64_t row = ContentRow(batch.shape, b) + slot;
      const int64_t key = ContentKey(batch.shape, b) + slot;
      const int32_t half = slot < half_len_ ? 0 : 1;
      batch.row_pos[row] = batch.key_pos[key] = static_cast<int32_t>(slot);
      batch.row_seg[row] = batch.key_seg[key] = sample.segment[slot];
      batch.row_lim[row] = batch.key_key[key] = half;
      batch.row_doc[row] = batch.key_doc[key] = 0;
    }
    FillReadout(sample, b, batch);
    if (next_sentence_) FillNextSentence(sample, targets_, b, batch);
  }

 private:
  // Targets in increasing position. Whole words may leave entries over: they read slots that are no target, each another
  // one, because gradients are scattered back row by row.
  void FillReadout(const TextSample& sample, int64_t b, Batch& batch) const {
    int64_t entry = 0;
    for (const bool target : {true, false}) {
      for (int64_t slot = 0; slot < seq_len_; ++slot) {
        if ((sample.is_masked[slot] != 0) != target) continue;
        if (!target && entry == targets_) return;
        ANYORDER_CHECK(entry < targets_) << "lane " << sample.lane << " step " << sample.step
                                         << " has more than " << targets_ << " targets";
        const int64_t place = b * targets_ + entry++;
        batch.readout_rows[place] = static_cast<int32_t>(ContentRow(batch.shape, b) + slot);
        batch.labels[place] = target ? sample.tokens[slot] : 0;
        batch.weights[place] = target ? 1.0f : 0.0f;
      }
    }
  }

  InitialMemory initial_memory_;
  int64_t memory_rows_;
  int64_t seq_len_;
  int64_t half_len_;
  int64_t targets_;
  bool next_sentence_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Objective>> MakeDae(const ModelConfig& model,
                                                   const SamplingConfig& sampling) {
  ANYORDER_RETURN_IF_ERROR(sampling.Validate(SampleKind::kMaskedPairs));
  std::unique_ptr<Objective> objective = std::make_unique<Dae>(model, sampling);
  return objective;
}

}  // namespace anyorder
