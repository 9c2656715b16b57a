// Hyperparameters of AdamW, its learning rate schedule and gradient clipping.
//
// The defaults are the published XLNet settings where those agree (Yang et al. 2019, appendix A.4,
// table 8, and the authors' pretraining command); learning rate and warm-up depend on the batch and
// must be chosen.

#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"

#include "core/base/fields.h"

namespace anyorder {

enum class LearningRateDecay { kLinear, kCosine, kConstant };

template <>
inline constexpr auto kEnumNames<LearningRateDecay> =
    std::to_array<std::pair<LearningRateDecay, const char*>>({
        {LearningRateDecay::kLinear, "linear"},
        {LearningRateDecay::kCosine, "cosine"},
        {LearningRateDecay::kConstant, "constant"},
    });

struct OptimizerConfig {
  double learning_rate = 1e-4;            // the peak, reached when warm-up ends
  double min_learning_rate_ratio = 1e-3;  // of the peak, reached at the last step
  int64_t warmup_steps = 0;               // linear from 0
  LearningRateDecay decay = LearningRateDecay::kLinear;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-6;  // added to sqrt(v)
  double weight_decay = 0.01;  // decoupled: w -= lr * weight_decay * w
  // false: the published optimizer, whose first update is (1 - beta1) / sqrt(1 - beta2) = 3.16
  // times the learning rate, which only a long warm-up hides. true: Adam as in Kingma & Ba 2015.
  bool bias_correction = false;
  double max_grad_norm = 1.0;  // largest global gradient norm; 0 switches clipping off

  template <typename Self, typename Visitor>
  static void VisitFields(Self& self, Visitor& visit) {
    visit("learning_rate", self.learning_rate, "peak learning rate; > 0");
    visit("min_learning_rate_ratio", self.min_learning_rate_ratio,
          "last learning rate / peak; 0 to 1");
    visit("warmup_steps", self.warmup_steps, "steps of linear warm-up from 0; >= 0");
    visit("decay", self.decay, "after warm-up: linear, cosine or constant");
    visit("adam_beta1", self.adam_beta1, "decay of the first moment; in [0, 1)");
    visit("adam_beta2", self.adam_beta2, "decay of the second moment; in [0, 1)");
    visit("adam_epsilon", self.adam_epsilon, "added to sqrt(second moment); > 0");
    visit("weight_decay", self.weight_decay, "decoupled weight decay; >= 0");
    visit("bias_correction", self.bias_correction, "false: the published AdamW, true: Adam's");
    visit("max_grad_norm", self.max_grad_norm, "largest global gradient norm; 0 = no clipping");
  }

  // InvalidArgument that names every fault, with field, value and bound.
  absl::Status Validate() const;
};

}  // namespace anyorder
