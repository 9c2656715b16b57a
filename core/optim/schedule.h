// The learning rate as a pure function of the step, so that nothing about it is saved or restored.

#pragma once

#include <cstdint>

#include "core/optim/optimizer_config.h"

namespace anyorder {

// The rate of 0-based `step` in a run of `train_steps`, taken before the update. With a warm-up of
// w > 0 steps: 0 at step 0 (the first update changes nothing but the moments, as in the published
// code), the peak at step w, peak * min_learning_rate_ratio at step train_steps and for ever after.
// `constant` stays at the peak. Of the way down, `polynomial` has (1 - progress)^decay_power left
// (tf.train.polynomial_decay, which XLNet's, BERT's and fairseq's RoBERTa's released code use),
// from the end of warm-up on as all shapes do here, XLNet's and fairseq's; BERT's begins at step 0.
// `warmup_stable_decay` is constant in two stages and falls in a third: the peak before drop_step,
// peak * drop_ratio from it on, and in the last decay_steps, with p the fraction of them that is
// over, peak * (drop_ratio + p (min_learning_rate_ratio - drop_ratio)). LLaDA (Nie et al. 2025,
// section 2.2) was pretrained with both stages (4e-4, 1e-4 from 1.2T of 2.3T tokens on, the last
// 0.3T down to 1e-5) and fine-tuned without a drop (2.5e-5, the last tenth down to 2.5e-6).
// REQUIRES: config is valid, step >= 0.
double LearningRate(const OptimizerConfig& config, int64_t train_steps, int64_t step);

// What layer-wise decay multiplies that rate with, of parameters with so many layers above them
// (ParameterInfo::layers_above): layer_decay^layers_above. Layer m of M, 1 the lowest, has
// layer_decay^(M - m) (Yang et al. 2019, appendix A.5) and the embeddings, as layer 0,
// layer_decay^M. Weight decay shrinks along with the rate. XLNet's released code multiplies the
// clipped gradients of layers instead, which Adam divides out but for epsilon, and leaves the
// embeddings' alone. Equal on all machines.
double LayerRate(const OptimizerConfig& config, int64_t layers_above);

// d of the weights' average, ema = d ema + (1 - d) weights, in update number k of the run, from 1
// on: min(ema_decay, (1 + k) / (10 + k)), so that the first weights are soon forgotten
// (tf.train.ExponentialMovingAverage with num_updates; MDLM, Sahoo et al. 2024, and BD3-LM train so
// with ema_decay 0.9999). REQUIRES: k >= 1.
double AverageDecay(const OptimizerConfig& config, int64_t k);

}  // namespace anyorder
