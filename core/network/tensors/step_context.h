// What every part of the network needs while a microbatch runs, and the numbers of its dropout
// sites.

#pragma once

#include <cstdint>
#include <vector>

#include "core/base/tensor.h"
#include "core/network/tensors/activations.h"
#include "core/network/tensors/device_inputs.h"
#include "core/network/tensors/layer_tensors.h"
#include "core/network/tensors/network_shape.h"
#include "core/network/tensors/step.h"
#include "core/objective/batch.h"
#include "kernels/backend.h"

namespace anyorder {

// Numbers of the network's dropout sites. A mask depends on (seed, step, site, row, column) alone,
// so the numbers are part of a run's identity: append, never renumber.
//
// Content and query rows share every site: their logical row ids differ.
enum class DropoutPlace : uint32_t {
  kAttentionProbabilities = 0,
  kAttentionOutput = 1,      // before the residual sum
  kFeedForwardHidden = 2,    // after the activation
  kFeedForwardOutput = 3,    // before the residual sum
  kGlobalProbabilities = 4,  // of global slots with projections of their own
};

inline constexpr uint32_t kEmbeddingSite = 0;
inline constexpr uint32_t kPositionSite = 1;  // rows: see positions.h
inline constexpr uint32_t kReadoutSite = 2;
inline constexpr uint32_t kSummarySite = 3;  // between the two layers of the next-sentence head
inline constexpr uint32_t kTaskSite = 4;     // states that the task head reads

constexpr uint32_t DropoutSite(int64_t layer, DropoutPlace place) {
  return 16 + 8 * static_cast<uint32_t>(layer) + static_cast<uint32_t>(place);
}

// Keys and values of slots that were computed before: what generation keeps instead of the text so
// far. A slot's keys are final once they are computed, if no later slot may be seen by it; so the
// order of ranks is the order of the cache.
//
// B lanes, K key slots a lane, H heads, D head size.
struct KeyCache {
  struct Layer {
    TensorView k, v;  // [B, K, H*D] T
  };
  std::vector<Layer> layers;
  // [B] the key slot where those of a lane's content rows go, one after the other; Batch's key
  // arrays describe where they stand.
  std::vector<int64_t> begin;
  // Whether the activations hold the projected position tables already; they depend on weights
  // alone.
  bool has_tables = false;
};

// Owns nothing: all that it refers to outlives the step.
struct StepContext {
  const NetworkShape& shape;
  const StepArgs& args;
  Activations& activations;
  const DeviceBatch& device;  // the batch's arrays for operations
  const NetworkWeights& weights;
  const NetworkGradients& gradients;  // bound where the step learns
  kernels::Backend& backend;
  StreamView stream;
  // Where keys and values are stored and read, if shape.batch.cached_keys is not 0; else null.
  KeyCache* cache = nullptr;

  // For the host.
  const Batch& batch() const { return *args.batch; }
  bool learns() const { return args.training && !args.gradients.is_null(); }
  int64_t model_dim() const { return shape.model.model_dim; }

  // The network's dropout, and that of attention probabilities; off in evaluation.
  kernels::Dropout Dropout(uint32_t site) const { return Make(site, shape.model.dropout); }
  kernels::Dropout AttentionDropout(uint32_t site) const {
    return Make(site, shape.model.attention_dropout);
  }
  // Dropout of what is read out.
  kernels::Dropout ReadoutDropout(uint32_t site) const {
    return Make(site, shape.model.readout_dropout ? shape.model.dropout : 0.0);
  }
  kernels::Dropout TaskDropout(uint32_t site) const { return Make(site, shape.model.task.dropout); }

 private:
  kernels::Dropout Make(uint32_t site, double rate) const {
    if (!args.training) return {};
    return kernels::MakeDropout(args.seed, static_cast<uint64_t>(batch().step), site, rate);
  }
};

// The first `rows` rows of a scratch matrix, or `rows` rows from `first` on.
inline TensorView Rows(const TensorView& matrix, int64_t first, int64_t rows) {
  const int64_t columns = matrix.dim(1);
  return matrix.Slice(first * columns, {rows, columns});
}

}  // namespace anyorder
