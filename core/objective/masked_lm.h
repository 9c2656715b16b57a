// BERT's masked language model (Devlin et al. 2019, section 3.1), in the two forms of dae and
// bert: one content stream, the input at targets corrupted, targets read out where they stand.

#pragma once

#include <memory>
#include <string>

#include "core/objective/objective.h"

namespace anyorder {

struct MaskedLmForm {
  std::string name;
  // Whether the first half's states are the next step's memory. Then it does not see the second
  // half, which is the next step's first: memory would tell its targets. Otherwise everybody sees
  // everybody.
  bool remembers = true;
  // [CLS] A [SEP] B [SEP] as BERT has it, in place of XLNet's A [SEP] B [SEP] [CLS].
  bool cls_first = false;
};

// REQUIRES: sampling is valid for SampleKind::kMaskedPairs; model.mem_len is 0 unless the form
// remembers.
std::unique_ptr<Objective> MakeMaskedLm(const MaskedLmForm& form, const ModelConfig& model,
                                        const SamplingConfig& sampling);

}  // namespace anyorder
