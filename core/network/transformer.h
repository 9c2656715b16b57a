// The network: Transformer-XL backbone with XLNet's two streams (Yang et al. 2019, sections
// 2.3-2.6), written against kernels::Backend. One object serves one microbatch shape; it owns all
// activations and workspaces, allocated once. Both streams are rows of the same activations, so
// that they share every GEMM.
//
// B lanes, S content and Q query slots, M memory slots, L layers, V vocabulary, d = model_dim.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/config/model_config.h"
#include "core/network/tensors/memory_ring.h"
#include "core/network/tensors/parameters.h"
#include "core/objective/batch.h"
#include "kernels/backend.h"

namespace anyorder {

// Tensors lie in the backend's memory, the batch in the host's.
struct StepArgs {
  const Batch* batch = nullptr;
  ConstTensorView weights;  // [layout.num_elements()]  activation dtype, whole flat space
  RingView memory;          // reads M states and writes the free slots; null if M = 0
  uint64_t seed = 0;        // dropout
  bool training = true;     // false: no dropout, no gradients
  TensorView gradients;     // [layout.num_elements()] fp32 (fp64): d(sum of all weighted losses),
                            // overwritten; null: forward only
  // Called while backward is under way, as soon as the operations are queued that make gradient
  // elements [begin, end of the flat space) final: whoever uses them does so in the stream, behind
  // what is queued by then. `begin` falls from call to call, down to 0; a small network may have
  // one call only. Null: nobody waits for them.
  std::function<void(int64_t begin)> gradients_ready = nullptr;
};

// One of several losses of a readout.
struct LossShare {
  double sum = 0;     // of weight * nll, nats
  double weight = 0;  // of its entries
};

struct StepResult {
  double loss_sum = 0;  // sum of weight * nll over the readout and the task head, in nats
  double divisor = 0;   // what the step divides loss_sum by: Batch::Divisor()
  // Of next-sentence entries with a weight, at most one a lane: sum of nll, not weighted and not
  // part of loss_sum (their gradient, weighted, is part of the gradient), how many labels were the
  // likelier class, and how many there are.
  double next_sentence_loss = 0;
  double next_sentence_correct = 0;
  double next_sentence_entries = 0;
  // Of the task head: lanes whose likeliest class or choice is the label. Its loss is part of
  // loss_sum, and of shares[0].
  double task_correct = 0;
  // What loss_sum is made of, by Batch::loss_ids; zeros where the batch has none.
  std::array<LossShare, kMaxLosses> shares{};
};

class Transformer {
 public:
  // ResourceExhausted if activations do not fit, InvalidArgument for shapes the backend cannot run.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const ModelConfig& config,
                                                             int64_t vocab_size,
                                                             const BatchShape& shape,
                                                             kernels::Backend& backend);
  virtual ~Transformer() = default;

  virtual const ParameterLayout& layout() const = 0;
  // Forward, and with gradients backward. Deterministic: the same arguments give the same bits.
  // Returns when all of it is done.
  virtual StepResult Run(const StepArgs& args, StreamView stream) = 0;
  // Loss of each readout entry of the last Run, [B * targets]: evaluation splits by half and
  // direction.
  virtual const std::vector<float>& readout_losses() const = 0;
  // Of the last Run's task head, [B] each, empty without one: the loss of each lane, 0 where it has
  // no label, and the likeliest class or choice.
  virtual const std::vector<float>& task_losses() const = 0;
  virtual const std::vector<int32_t>& task_predictions() const = 0;
  // Bytes of activations and workspaces.
  virtual int64_t activation_bytes() const = 0;
};

}  // namespace anyorder
