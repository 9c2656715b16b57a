// The arithmetic of training, for the share of a device's peak that a run reaches (MFU).

#pragma once

#include <cstdint>

#include "core/config/model_config.h"
#include "core/objective/batch.h"

namespace anyorder {

// Floating-point operations that a forward and backward pass of one microbatch needs: those of its
// matrix products, two a multiply-add, and twice as many backward as forward. By layer and lane,
// with R rows (content and query) and K keys (memory included):
//   R * (2 M HD + 2 M F) + K * 2 M HD     projections and feed-forward
//   2 * D * (keys in the head's window, at most K) for each row and head: masks are not counted off
// and M * V for each target, of an adaptive softmax M * (classes of its head). Frozen weights, in a
// run with adapters (ModelConfig::lora), need as many backward as forward: their own gradient is
// not computed. Left out are what is small (LayerNorm, softmax, position terms, task heads,
// adapters) and what is computed twice.
double TrainingFlops(const ModelConfig& model, const BatchShape& shape, int64_t vocab_size);

}  // namespace anyorder
