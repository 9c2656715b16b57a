// The class of each word, as named entity recognition has it (Devlin et al. 2019, section 5.3;
// Hugging Face's ...ForTokenClassification): one dense layer on the state of the word's first
// token, and a softmax over the classes. The loss is the mean over all words of a step whose class
// is known; tokens that begin no word have none.

#pragma once

#include <cstdint>

#include "core/network/heads/task_head.h"

namespace anyorder {

class TagHead final : public TaskHead {
 public:
  TagHead(const NetworkShape& shape, DeviceInputs& inputs);

  void SetInputs(const StepContext& context) override;

 private:
  void RunRows(const StepContext& context) const override;
  TaskResult ResultOf(const StepContext& context, int64_t b) const override;

  const int64_t num_classes_;
  HeadRows states_;                // [B * rows], in their order
  ComputedArray<int32_t> labels_;  // [B * rows] 0 without a tag
  ComputedArray<float> weights_;   // [B * rows] 1 with a tag, else 0
};

}  // namespace anyorder
