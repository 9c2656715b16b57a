// Hyperparameters of AdamW, its learning rate schedule and gradient clipping.
//
// The defaults are the published XLNet settings where those agree (Yang et al. 2019, appendix A.4,
// table 8, and the authors' pretraining command); learning rate and warm-up depend on the batch and
// must be chosen.

#pragma once

#include <cstdint>

#include "absl/strings/str_cat.h"

#include "core/base/fields.h"
#include "core/base/memory_place.h"

namespace anyorder {

enum class LearningRateDecay { kLinear, kCosine, kConstant, kPolynomial, kWarmupStableDecay };
constexpr auto SpellingsOf(LearningRateDecay) {
  return std::array{"linear", "cosine", "constant", "polynomial", "warmup_stable_decay"};
}

// Where bias correction leaves epsilon (kernels/adamw.h). TensorFlow's Adam, and so XLNet's and
// BERT's released code where it corrects, adds it to the root of the uncorrected second moment,
// which is up to 1 / sqrt(1 - beta2) = 31.6 times epsilon in the first steps; torch.optim.AdamW, to
// the root of the corrected one. Without bias correction both are the same.
enum class AdamForm { kTensorflow, kTorch };
constexpr auto SpellingsOf(AdamForm) { return std::array{"tensorflow", "torch"}; }

struct OptimizerConfig {
  double learning_rate = 1e-4;
  // XLNet's released code decays to this fraction in pretraining; in fine-tuning, to 0.
  double min_learning_rate_ratio = 1e-3;
  int64_t warmup_steps = 0;
  LearningRateDecay decay = LearningRateDecay::kLinear;
  double decay_power = 1.0;
  // These belong to kWarmupStableDecay (schedule.h).
  int64_t drop_step = 0;
  double drop_ratio = 1.0;
  int64_t decay_steps = 0;
  // LayerRate (schedule.h).
  double layer_decay = 1.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-6;
  double weight_decay = 0.01;
  // Without it the first update is (1 - beta1) / sqrt(1 - beta2) = 3.16 times the learning rate,
  // which only a long warm-up hides.
  bool bias_correction = false;
  AdamForm adam_form = AdamForm::kTensorflow;
  double max_grad_norm = 1.0;
  // AverageDecay (schedule.h).
  double ema_decay = 0.0;
  MemoryPlace state = MemoryPlace::kDevice;

  bool keeps_average() const { return ema_decay > 0; }

  static void VisitFields(auto& self, auto& visit) {
    visit("learning_rate", self.learning_rate, "Peak learning rate, reached when warm-up ends.",
          Above(0));
    visit("min_learning_rate_ratio", self.min_learning_rate_ratio,
          "Learning rate of the last step, as a fraction of the peak.", Between(0, 1));
    visit("warmup_steps", self.warmup_steps, "Steps of linear warm-up from 0.",
          AtLeast(0, "steps"));
    visit("decay", self.decay, "Shape of the learning rate schedule after warm-up.");
    visit("decay_power", self.decay_power,
          "Power of decay = \"polynomial\": the rate falls from its peak to its end as (1 - "
          "progress)^decay_power, progress going from 0 to 1 after warm-up; 1 is \"linear\".",
          Above(0));
    visit("drop_step", self.drop_step,
          "With decay = \"warmup_stable_decay\": the first step whose rate is drop_ratio times the "
          "peak, which it stays at until the last decay_steps; 0: there is no drop.",
          AtLeast(0, "steps"));
    visit("drop_ratio", self.drop_ratio,
          "Learning rate from drop_step on, as a fraction of the peak.", PositiveFraction());
    visit("decay_steps", self.decay_steps,
          "With decay = \"warmup_stable_decay\": the last steps of the run, over which the rate "
          "falls linearly to min_learning_rate_ratio; 0: it stays constant to the end.",
          AtLeast(0, "steps"));
    visit(
        "layer_decay", self.layer_decay,
        "Layer-wise decay of the learning rate: heads and the last layer have the schedule's rate, "
        "and each layer has layer_decay times the rate of the layer above it; the embeddings count "
        "as the lowest layer. 1 turns it off.",
        PositiveFraction());
    visit("adam_beta1", self.adam_beta1, "Exponential decay of the first moment.", Rate());
    visit("adam_beta2", self.adam_beta2, "Exponential decay of the second moment.", Rate());
    visit("adam_epsilon", self.adam_epsilon,
          "Added to the square root of the second moment in the denominator; adam_form says which.",
          Above(0));
    visit("weight_decay", self.weight_decay,
          "Decoupled weight decay: w -= learning rate * weight_decay * w; of all parameters but "
          "LayerNorms and biases, in heads too. XLNet's r_w_bias, r_r_bias and r_s_bias decay.",
          AtLeast(0));
    visit("bias_correction", self.bias_correction,
          "Adam's bias correction (Kingma & Ba 2015); false is the published XLNet optimizer.");
    visit("adam_form", self.adam_form,
          "With bias_correction, adam_epsilon is added to the root of the second moment as it is "
          "(\"tensorflow\": Kingma & Ba's epsilon hat) or of the corrected one (\"torch\": their "
          "algorithm 1, torch.optim.AdamW).");
    visit("max_grad_norm", self.max_grad_norm,
          "Clip the global gradient norm to this value; 0 turns clipping off.", AtLeast(0));
    visit("ema_decay", self.ema_decay,
          "Keep an exponential moving average of the weights, ema = d ema + (1 - d) weights after "
          "each update, with d = min(ema_decay, (1 + k) / (10 + k)) after k updates; it is what "
          "evaluations, exports and other commands use. MDLM: 0.9999. 0: none.",
          Rate());
    visit(
        "state", self.state,
        "Where a GPU's master weights, moments and average lie: in the \"device\"'s memory or the "
        "\"host\"'s, which each update reads and writes over the bus.",
        Decides::kNothing);
  }

  // Every fault, with field, value and bound; those that need the length of the run are
  // RunConfig's.
  FaultList Validate() const {
    FaultList faults;
    CheckBounds("optimizer", *this, faults);
    faults.Require(bias_correction || adam_form != AdamForm::kTorch,
                   "optimizer.adam_form is \"torch\" but optimizer.bias_correction is false: "
                   "torch.optim.AdamW always corrects; set bias_correction = true, or leave "
                   "adam_form out");
    faults.Require(
        decay == LearningRateDecay::kPolynomial || decay_power == 1,
        absl::StrCat("optimizer.decay_power is ", decay_power, " but optimizer.decay is \"",
                     EnumName(decay), "\"; set decay = \"polynomial\", or leave decay_power out"));
    CheckStages(faults);
    return faults;
  }

 private:
  // The stages of kWarmupStableDecay, in their order.
  void CheckStages(FaultList& faults) const {
    const bool has_drop = drop_step > 0 || drop_ratio != 1;
    if (decay != LearningRateDecay::kWarmupStableDecay) {
      faults.Require(
          !has_drop && decay_steps == 0,
          absl::StrCat("optimizer.", has_drop ? "drop_step and drop_ratio" : "decay_steps",
                       " set stages of a schedule that optimizer.decay = \"", EnumName(decay),
                       "\" does not have; set decay = "
                       "\"warmup_stable_decay\", or leave them out"));
      return;
    }
    faults.Require(has_drop || decay_steps > 0,
                   "optimizer.decay is \"warmup_stable_decay\" but the rate never falls; set "
                   "optimizer.decay_steps, or decay = \"constant\"");
    faults.Require(
        (drop_step > 0) == (drop_ratio != 1),
        absl::StrCat("optimizer.drop_step is ", drop_step, " and drop_ratio ", drop_ratio,
                     "; a drop needs both, drop_step above 0 and drop_ratio below 1"));
    faults.Require(drop_step == 0 || drop_step >= warmup_steps,
                   absl::StrCat("optimizer.drop_step is ", drop_step,
                                " but must be at least optimizer.warmup_steps, ", warmup_steps,
                                ": the rate drops from its peak"));
    faults.Require(decay_steps == 0 || min_learning_rate_ratio <= drop_ratio,
                   absl::StrCat("optimizer.min_learning_rate_ratio is ", min_learning_rate_ratio,
                                " but must be at most optimizer.drop_ratio, ", drop_ratio,
                                ": the last decay_steps lower the rate"));
  }
};

}  // namespace anyorder
