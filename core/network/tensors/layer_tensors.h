// Where each part of the network finds its parameters in the flat space, as matrices ready for
// GEMM.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "core/base/tensor.h"
#include "core/network/tensors/network_shape.h"

namespace anyorder {

// The parameters of a LayerNorm, or of an RMSNorm, whose beta is null.
template <typename View>
struct NormParameters {
  View gamma, beta;
};

// What is added to a projection of x: (alpha / rank) (x a^T) b^T (core/config/lora_config.h). Null
// where it has no adapter.
template <typename View>
struct AdapterTensors {
  View a;  // [rank, in]
  View b;  // [out, rank]

  bool is_null() const { return a.is_null(); }
};

// View is ConstTensorView for weights and TensorView for gradients. HD = H * D, KD = (heads of keys
// and values) * D. What the model does not have is null; an RMSNorm has no beta.
template <typename View>
struct LayerTensors {
  View q, k, v, o, r;                                // [d, HD], k's and v's [d, KD]; o is applied
                                                     // transposed
  View q_bias, k_bias, v_bias, o_bias;               // [HD], k's and v's [KD], o's [d]
  View q_norm, k_norm;                               // [D] gains, one for all heads
  View global_q, global_k, global_v;                 // [d, HD]
  View global_q_bias, global_k_bias, global_v_bias;  // [HD]
  View content_bias;                                 // [HD] r_w_bias
  View position_bias;                                // [HD] r_r_bias
  View segment_bias;                                 // [HD] r_s_bias
  View segment_embedding;                            // [2, HD] seg_embed
  View distance_bias;                                // [buckets, H], the same for all layers
  NormParameters<View> attention_norm, ffn_norm;     // [d]
  View ffn_gate, ffn_gate_bias;                      // [F, d], [F]; applied transposed
  View ffn_in, ffn_in_bias;                          // [F, d], [F]; applied transposed
  View ffn_out, ffn_out_bias;                        // [d, F], [d]; applied transposed
  AdapterTensors<View> q_adapter, k_adapter, v_adapter, o_adapter, r_adapter;
  AdapterTensors<View> gate_adapter, up_adapter, down_adapter;  // of ffn_gate, ffn_in, ffn_out
};

using LayerWeights = LayerTensors<ConstTensorView>;
using LayerGradients = LayerTensors<TensorView>;

// One cluster of an adaptive softmax (adaptive_clusters.h), c words of e dimensions. The head's
// words are followed by the n clusters that compete with them, so its c is that of words + n.
template <typename View>
struct ClusterTensors {
  View table;              // [c, e], of input and softmax
  View input_projection;   // [d, e], applied transposed; with those of the softmax null where e = d
                           // for all
  View output_projection;  // [d, e]
  View bias;               // [c]
};

// The task's head (heads/); of each only what the task has. Weights are applied transposed.
template <typename View>
struct TaskTensors {
  View pooler, pooler_bias;  // [d, d], [d]
  View out, out_bias;        // [outputs, d], [outputs]
  // Spans, conditional. A pair's two matrices stand below each other.
  View start, start_bias;                // [1, d], [1]
  View end_inner, end_inner_bias;        // [2 d, d], [d]: of the token, then of the start
  NormParameters<View> end_norm;         // [d]
  View end, end_bias;                    // [1, d], [1]
  View answer_inner, answer_inner_bias;  // [2 d, d], [d]: of the start, then of CLS
  View answer;                           // [1, d]
  // Spans, simple: rows of the start and of the end.
  View span, span_bias;  // [2, d], [2]
};

template <typename View>
struct NetworkTensors {
  View mask_embedding;  // [1, d]
  // [V, d], the softmax's too where it is tied. Adaptive softmax: null with projections, else [V +
  // n, d], all the clusters' tables.
  View embedding;
  std::vector<ClusterTensors<View>> clusters;       // of an adaptive softmax, head first
  View position_table;                              // [max_positions, d or, in pairs, d / 2]
  View segment_table;                               // [num_segments, d], learned segments
  NormParameters<View> embedding_norm, final_norm;  // [d]; the second of a pre-LN network
  // Between the readout and the softmax.
  View head, head_bias;            // [d, d], [d]; applied transposed
  NormParameters<View> head_norm;  // [d]
  View classifier;                 // [V, d], the softmax's own; null where it is tied
  View softmax_bias;               // [V]; null with an adaptive softmax
  TaskTensors<View> task;
  // The next-sentence head.
  View summary, summary_bias;  // [d, d], [d]; applied transposed
  View classes, classes_bias;  // [2, d], [2]; applied transposed
  std::vector<LayerTensors<View>> layers;

  // What the softmax multiplies by, [V, d].
  const View& softmax(const ModelConfig& model) const {
    return model.tie_embeddings ? embedding : classifier;
  }
};

using NetworkWeights = NetworkTensors<ConstTensorView>;
using NetworkGradients = NetworkTensors<TensorView>;

// A flat space in pieces, each of which holds whole parameters; weights are one piece, gradients
// may be several.
template <typename View>
class FlatSpace {
 public:
  FlatSpace() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a view of all of it is a space.
  FlatSpace(View whole) { Add(0, whole); }
  FlatSpace(TensorView whole) requires(!std::is_same_v<View, TensorView>) { Add(0, whole); }
  // The piece that begins at element `begin`. Pieces come from left to right, without gaps.
  void Add(int64_t begin, View piece) {
    if (!piece.is_null()) pieces_.push_back({begin, piece});
  }

  bool is_null() const { return pieces_.empty(); }
  DType dtype() const { return pieces_.front().view.dtype(); }
  int64_t num_elements() const {
    return is_null() ? 0 : pieces_.back().begin + pieces_.back().view.num_elements();
  }
  // The elements from `offset` on, as a matrix. REQUIRES: it lies in one piece.
  View Slice(int64_t offset, const Shape& shape) const {
    auto piece =
        std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                         [](int64_t element, const Piece& right) { return element < right.begin; });
    --piece;
    return piece->view.Slice(offset - piece->begin, shape);
  }

 private:
  struct Piece {
    int64_t begin;
    View view;
  };
  std::vector<Piece> pieces_;
};

// Where parameters lie: what is trained ([ParameterLayout::num_elements()]) and, with adapters,
// what is not ([FrozenLayout::num_elements()]).
template <typename View>
struct FlatSpaces {
  FlatSpace<View> trained;
  FlatSpace<View> frozen;
};

// Points `tensors` into the flat spaces. Allocates only the first time. Gradients of frozen
// parameters are null, and not computed; those that their operations always write
// (WalkedParameter::always_written) go, one behind the other, to `frozen`, which nobody reads.
template <typename View>
void BindTensors(const NetworkShape& shape, const FlatSpaces<View>& flat,
                 NetworkTensors<View>* tensors);

}  // namespace anyorder
