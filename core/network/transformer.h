// The network: Transformer-XL backbone with XLNet's two streams (Yang et al. 2019, sections
// 2.3-2.6), written against kernels::Backend. One object serves one microbatch shape; it owns all
// activations and workspaces, allocated once. Both streams are rows of the same activations, so
// that they share every GEMM.
//
// B lanes, S content and Q query slots, M memory slots, L layers, V vocabulary, d = model_dim.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/config/model_config.h"
#include "core/config/retention.h"
#include "core/network/heads/task_result.h"
#include "core/network/tensors/parameters.h"
#include "core/network/tensors/step.h"
#include "core/objective/batch.h"
#include "kernels/backend.h"

namespace anyorder {

class Transformer {
 public:
  // ResourceExhausted if activations do not fit, InvalidArgument for shapes the backend cannot run.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const ModelConfig& config,
                                                             int64_t vocab_size,
                                                             const BatchShape& shape,
                                                             kernels::Backend& backend,
                                                             const Retention& retention = {});
  virtual ~Transformer() = default;

  virtual const ParameterLayout& layout() const = 0;
  // Where the windows begin that StepArgs speaks of: those of the layout, or one where all of the
  // backward pass is asked for at once (but with layer_begins).
  virtual std::vector<int64_t> windows() const = 0;
  // Forward, and with gradients backward. Deterministic: the same arguments give the same bits,
  // whatever the retention. Returns when all of it is done. REQUIRES: no gradients without
  // Retention::learns.
  virtual StepResult Run(const StepArgs& args, StreamView stream) = 0;
  // Makes the calls of StepArgs' functions that Run makes, in the same order, and nothing else: for
  // a rank that has no microbatch while others have, where these calls talk to other ranks.
  virtual void Skip(const StepArgs& args) const = 0;
  // What the heads report of the last Run: the same names in the same order in every one. Before
  // the first, all 0.
  virtual std::vector<NamedSum> sums() const = 0;
  // Loss of each readout entry of the last Run, [B * targets]: evaluation splits by half and
  // direction.
  virtual const std::vector<float>& readout_losses() const = 0;
  // What the task head gave in the last Run, [B]; empty without one.
  virtual const std::vector<TaskResult>& task_results() const = 0;
};

}  // namespace anyorder
