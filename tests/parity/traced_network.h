// The network, and everything that another implementation can be asked for: hidden states of both
// streams, logits, losses, memory and gradients. The product keeps none of the first two; they are
// read off the calls that it makes to its backend.
//
// B lanes, S content and Q query slots, M memory slots, L layers, d = model_dim, V vocabulary.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/dtype.h"
#include "core/config/model_config.h"
#include "core/network/transformer.h"
#include "core/objective/batch.h"
#include "kernels/backend.h"

namespace anyorder {

// What one step of all lanes computes: in the network's dtype, as fp32.
struct StepTrace {
  // Of networks like XLNet's, whose input is the tokens' embeddings alone and whose layers end in a
  // LayerNorm; else none. Level 0 is what layer 0 reads, level l what layer l - 1 gives. The last
  // layer computes content rows only where something reads them: without a query stream, or for a
  // next-sentence head.
  std::vector<std::vector<float>> content;  // L or L + 1 times [B, S, d]
  std::vector<std::vector<float>> query;    // L + 1 times [B, Q, d]
  std::vector<float> logits;                // [B, targets, V]; none with an adaptive softmax
  std::vector<float> losses;                // [B, targets]
  std::vector<float> summary_logits;        // [B, 2], of a batch with next sentences; else empty
  double next_sentence_loss = 0;            // sum of the lanes
  std::vector<float> task_losses;           // [B], of the task head; else empty
  // What each loss of the task head is of, in the order of heads/*.cc: [B, classes or choices]; of
  // words [B, S, classes]; or of spans [B, S] of starts and of ends, given the true start; of an
  // answer class, after starts once more, [B].
  std::vector<std::vector<float>> task_logits;
  std::vector<float> memory;     // [B, L, M, d], after the step
  std::vector<float> gradients;  // of the sum of weighted losses, flat; empty unless asked for
};

class TracingBackend;  // recognises what to keep among the calls that it passes on

class TracedNetwork {
 public:
  // The CPU backend with one thread count for all. `config` is without dropout, and fp32 where
  // there is memory. Errors: InvalidArgument; those of Transformer::Create.
  static absl::StatusOr<std::unique_ptr<TracedNetwork>> Create(const ModelConfig& config,
                                                               int64_t vocab_size,
                                                               const BatchShape& shape,
                                                               int num_threads);
  ~TracedNetwork();

  const ParameterLayout& layout() const { return transformer_->layout(); }
  // `weights` are rounded to the network's dtype. `memory`: what the step before left, or zeros,
  // [B, L, M, d].
  StepTrace Run(const Batch& batch, const std::vector<float>& weights,
                const std::vector<float>& memory, bool with_gradients);

 private:
  TracedNetwork(const ModelConfig& config, const BatchShape& shape);
  bool has_levels() const;
  std::vector<BFloat16> Rounded(const std::vector<float>& weights) const;  // empty in fp32
  void SplitLevels(StepTrace& trace) const;

  ModelConfig config_;
  BatchShape shape_;
  std::unique_ptr<TracingBackend> backend_;
  std::unique_ptr<Transformer> transformer_;
};

}  // namespace anyorder
