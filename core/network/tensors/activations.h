// Everything a microbatch's forward leaves for its backward, and the scratch that layers share: one
// allocation for the life of the network. What layers do not keep (NetworkShape::retention) lies
// over the same of other layers. Letters as in network_shape.h; n is the number of rows
// that the layer computes.

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"

#include "core/base/tensor.h"
#include "core/network/tensors/network_shape.h"
#include "kernels/backend.h"

namespace anyorder {

// What a normalisation of [rows, d] keeps.
struct NormActivations {
  TensorView sum;         // [rows, d] T, what is normalised
  TensorView mean, rstd;  // [rows] G; the mean is null with RMSNorm
};

struct LayerActivations {
  TensorView input;  // [N, d] T
  TensorView q;      // [n, HD] T
  TensorView k;      // [B * K, KD] T; with a KeyCache, here and below, own keys only
  TensorView v;      // [B * K, KD] T
  // Queries and keys before their RMSNorm, and 1 / root mean square of each head; null without.
  TensorView raw_q;           // [n, HD] T
  TensorView raw_k;           // [B * K, KD] T
  TensorView q_rstd, k_rstd;  // [n, H], [B * K, KD / D] G
  TensorView relative;  // [2, R, HD] T, the position table projected; mixed batches have the second
  TensorView attended;  // [n, HD] T
  TensorView lse;       // [n, H] G
  // The second call of global slots; null without.
  TensorView global_q;            // [B * G, HD] T
  TensorView global_k, global_v;  // [B * K, HD] T
  TensorView global_attended;     // [B * G, HD] T
  TensorView global_lse;          // [B * G, H] G
  // Residual sums, and what LayerNorm made of them.
  NormActivations attention_norm;  // n rows; pre-LN N without the sum, which is `input`
  TensorView attention_normed;     // [N, d] T; pre-LN: the layer's input, normalised
  TensorView attention_output;     // [n, d] T
  TensorView ffn_inner;            // [n, F] T, before the activation
  TensorView ffn_factor;           // [n, F] T, what a gate multiplies; null without
  TensorView ffn_hidden;           // [n, F] T, after activation and dropout
  NormActivations ffn_norm;        // n rows; pre-LN without the sum: attention_output
  TensorView ffn_normed;           // [n, d] T; pre-LN: attention_output, normalised
};

// The task's head (heads/); null without one. n: rows that its last layer reads, B or B * R of
// choices or tokens, with R task rows a lane.
struct TaskActivations {
  TensorView states;           // [B * R, d] T; of classes the first B are the sums
  TensorView inner, hidden;    // [n, d] T, before and after tanh; with a pooler
  TensorView logits, dlogits;  // [n, outputs] T
  TensorView losses;           // [B] G
  TensorView dstates;          // [B * R, d] T
  TensorView dhidden;          // [n, d] T; with a pooler
  // Spans: logits are those of starts, [B * R, 1], like those of ends.
  TensorView end_logits, dend_logits, end_losses;
  // Spans, conditional.
  TensorView starts, dstarts;                // [B, d] T, states of starts
  TensorView start_part;                     // [B, d] T, what starts give to the next
  TensorView token_part;                     // [B * R, d] T, what tokens give to it
  TensorView end_inner;                      // [B * R, d] T, their sum
  NormActivations end_norm;                  // B * R rows: tanh of it
  TensorView end_normed;                     // [B * R, d] T
  TensorView dend;                           // [B * R, d] T
  TensorView lane_sums;                      // [B, d] G
  TensorView searched;                       // [kSearchedStarts * B * R, 1] T, ends' logits
  TensorView classifiers;                    // [B, d] T, states of CLS
  TensorView answer_inner, answer_hidden;    // [B, d] T, before and after tanh
  TensorView danswer;                        // [B, d] T
  TensorView answer_logits, danswer_logits;  // [B, 1] T
  TensorView answer_losses;                  // [B] G
};
// Starts a lane whose ends are looked for: the likeliest, and CLS.
inline constexpr int64_t kSearchedStarts = 6;

struct Activations {
  std::vector<LayerActivations> layers;
  TensorView output;  // [n of the last layer, d] T
  // LayerNorm of embeddings and, in a pre-LN network, after the last layer; null without.
  NormActivations embedding_norm;  // N rows
  NormActivations final_norm;      // n rows of the last layer
  TensorView readout;              // [targets, d] T, readout rows after dropout
  TensorView losses;               // [targets] G

  // The prediction head before the softmax; null without one.
  TensorView head_inner;      // [targets, d] T, before the activation
  NormActivations head_norm;  // targets rows, after it
  TensorView head_output;     // [targets, d] T, later a gradient

  // Rows of one cluster at a time of an adaptive softmax, or of its input; null without one.
  TensorView cluster_rows, dcluster_rows;  // [c, d] T
  TensorView cluster_narrow,
      dcluster_narrow;        // [c, d] T, in the cluster's own size; with projections
  TensorView cluster_losses;  // [c] G

  // The next-sentence head; null without one.
  TensorView summary_input;  // [B, d] T, its rows of the output after dropout; later their gradient
  TensorView summary_inner;  // [B, d] T, before tanh
  TensorView summary_hidden;  // [B, d] T, after tanh and dropout
  TensorView summary_losses;  // [B] G
  TensorView dsummary;        // [B, d] T

  TaskActivations task;

  // Scratch of one layer at a time.
  TensorView keys_input;  // [B * K, d] T, memory and content of each lane side by side
  TensorView branch;      // [N, d] T, a residual branch before its sum, or a gradient
  // A layer's memory in a pre-LN network, raw and normalised.
  NormActivations memory_norm;  // B * M rows
  TensorView memory_normed;     // [B * M, d] T
  TensorView global_input;  // [B * G, d] T, global slots of a layer's input, later their gradient
  // Scratch of backward; here and below null in a network that has none.
  TensorView dinput;     // [N, d] T, gradient of a layer's output, then of its input
  TensorView dmiddle;    // [N, d] T, gradient between attention and feed-forward
  TensorView dffn;       // [N, F] T
  TensorView dfactor;    // [N, F] T; null without a gate
  TensorView dattended;  // [N, HD] T
  TensorView dq;         // [N, HD] T
  TensorView dk, dv;     // [B * K, KD] T
  TensorView drelative;  // [2, R, HD] T
  TensorView dmemory;    // [B * M, d] T, of normalised memory
  TensorView dnorm;      // [2, d] G, what memory adds to a LayerNorm's gradients
  TensorView dglobal_attended, dglobal_q;  // [B * G, HD] T
  TensorView dglobal_k, dglobal_v;         // [B * K, HD] T
  // Scratch of adapters: x a^T, or its gradient, and those of keys and values; null without.
  TensorView low_rank;                // [most rows that a projection has, rank] T
  TensorView low_rank_k, low_rank_v;  // [B * K, rank] T
  TensorView dbiases;    // [3, HD] G, one layer's share of biases that all layers share
  TensorView dreadout;   // [targets, d] T
  TensorView workspace;  // bytes, the largest that any operation asks for

  // Sizes every tensor and allocates them together. ResourceExhausted if they do not fit.
  absl::Status Allocate(const NetworkShape& shape, kernels::Backend& backend);
  // The bytes that Allocate takes without the operations' workspaces, which the backend knows;
  // allocates nothing.
  static int64_t LeastBytes(const NetworkShape& shape);
  int64_t bytes() const { return storage == nullptr ? 0 : storage->size_bytes(); }

  std::unique_ptr<kernels::Buffer> storage;
};

}  // namespace anyorder
