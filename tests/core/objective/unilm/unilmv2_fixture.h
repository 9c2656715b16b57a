// Samples of the pseudo-masked language model, and its mask as the paper states it, by slot names
// and not by ranks.

#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/objective/unilm/unilmv2.h"
#include "tests/core/objective/batch_checks.h"

namespace anyorder::testing {

enum class PmlmKind { kToken, kM, kP };

struct PmlmSlot {
  PmlmKind kind = PmlmKind::kToken;
  int64_t pos = 0;
  int step = 0;      // 1-based, in which the token there is predicted; 0: given
  int64_t row = -1;  // in a batch of one lane
  int64_t key = -1;
};

// Bao et al. 2020, section 3.3: "the given tokens and [M] are visible to all; tokens of a step see
// what came before it and one another; [P] see what came before their step and the [P] of their
// step"; given tokens and [M] see nobody else.
inline bool PmlmSees(const PmlmSlot& row, const PmlmSlot& key) {
  const auto is_given = [](const PmlmSlot& slot) {
    return slot.kind == PmlmKind::kM || (slot.kind == PmlmKind::kToken && slot.step == 0);
  };
  if (is_given(key)) return true;
  if (is_given(row)) return false;
  if (key.kind == PmlmKind::kP) return row.kind == PmlmKind::kP && row.step == key.step;
  return key.step < row.step || (row.kind == PmlmKind::kToken && key.step == row.step);
}

class UnilmV2Test : public LanesTest {
 protected:
  static constexpr int64_t kSlots = 16;

  UnilmV2Test() : LanesTest("unilmv2", SmallLearnedModel(kSlots, 2), OneWaySampling()) {
    sampling_.mask_fraction = 0.3;  // five of 16, and up to three more by the last block
    sampling_.num_predict = 8;
    sampling_.block_max_span = 4;
  }

  // The token at a position: the sample is A [SEP] B [SEP] [CLS], the text [CLS] A [SEP] B [SEP].
  static int32_t Truth(const TextSample& sample, int64_t pos) {
    return sample.tokens[(pos + kSlots - 1) % kSlots];
  }
  // The blocks that the objective has to draw for this sample.
  std::vector<TokenBlock> Blocks(const TextSample& sample) const {
    std::vector<uint8_t> is_special(kSlots);
    for (int64_t pos = 0; pos < kSlots; ++pos)
      is_special[pos] = sample.is_functional[(pos + kSlots - 1) % kSlots];
    RandomStream random(sample.seed, RandomPurpose::kObjective, static_cast<uint64_t>(sample.step),
                        static_cast<uint64_t>(sample.lane));
    return DrawBlocks(sampling_, is_special, random);
  }
  // All slots that are no padding, where the layout of unilmv2.h has them.
  std::vector<PmlmSlot> Slots(const TextSample& sample) const {
    std::vector<PmlmSlot> slots(kSlots);
    for (int64_t pos = 0; pos < kSlots; ++pos) slots[pos] = {PmlmKind::kToken, pos, 0, pos, pos};
    const int64_t masks = Make()->Shape(1).targets / 2;
    int64_t i = 0;
    int step = 0;
    for (const TokenBlock& block : Blocks(sample)) {
      ++step;
      for (int64_t pos = block.begin; pos < block.end; ++pos, ++i) {
        slots[pos].step = step;
        slots.push_back({PmlmKind::kM, pos, step, kSlots + i, kSlots + i});
        slots.push_back({PmlmKind::kP, pos, step, kSlots + masks + i, kSlots + masks + i});
      }
    }
    return slots;
  }
};

}  // namespace anyorder::testing
