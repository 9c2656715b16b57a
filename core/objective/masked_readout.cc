#include "core/objective/masked_readout.h"

#include "core/base/check.h"
#include "core/objective/lane_frame.h"

namespace anyorder {

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
