// What one microbatch takes and gives: arguments and results of Transformer::Run.

#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "core/base/tensor.h"
#include "core/network/tensors/memory_ring.h"
#include "core/objective/batch.h"

namespace anyorder {

// Tensors lie in the backend's memory, the batch in the host's. All are borrowed until Run returns.
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

}  // namespace anyorder
