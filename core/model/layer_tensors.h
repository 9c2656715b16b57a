// Where each part of the network finds its parameters in the flat space, as matrices ready for GEMM.

#pragma once

#include <cstdint>
#include <vector>

#include "core/base/tensor.h"
#include "core/model/network_shape.h"
#include "core/model/parameters.h"

namespace anyorder {

// View is ConstTensorView for weights and TensorView for gradients. HD = H * D.
template <typename View>
struct LayerTensors {
  View q, k, v, o, r;                              // [d, HD]; o is applied transposed
  View content_bias;                               // [HD] r_w_bias
  View position_bias;                              // [HD] r_r_bias
  View segment_bias;                               // [HD] r_s_bias; null without a segment term
  View segment_embedding;                          // [2, HD] seg_embed; null without a segment term
  View attention_norm_gamma, attention_norm_beta;  // [d]
  View ffn_norm_gamma, ffn_norm_beta;              // [d]
  View ffn_in, ffn_in_bias;                        // [F, d], [F]; applied transposed
  View ffn_out, ffn_out_bias;                      // [d, F], [d]; applied transposed
};

template <typename View>
struct NetworkTensors {
  View mask_embedding;  // [1, d]
  View embedding;       // [V, d], tied to the softmax
  View softmax_bias;    // [V]
  // The next-sentence head; null without one.
  View summary, summary_bias;  // [d, d], [d]; applied transposed
  View classes, classes_bias;  // [2, d], [2]; applied transposed
  std::vector<LayerTensors<View>> layers;
};

using NetworkWeights = NetworkTensors<ConstTensorView>;
using NetworkGradients = NetworkTensors<TensorView>;

// Offsets into the flat space, found once by name.
class TensorBinder {
 public:
  TensorBinder(const NetworkShape& shape, const ParameterLayout& layout);

  // Points `tensors` into `flat` ([layout.num_elements()]). Allocates only the first time.
  void Bind(ConstTensorView flat, NetworkWeights* tensors) const;
  void Bind(TensorView flat, NetworkGradients* tensors) const;

 private:
  struct Slot {
    int64_t offset = -1;  // -1: the model has no such parameter
    Shape shape;
  };
  struct LayerSlots {
    Slot q, k, v, o, r;
    Slot content_bias, position_bias, segment_bias, segment_embedding;
    Slot attention_norm_gamma, attention_norm_beta, ffn_norm_gamma, ffn_norm_beta;
    Slot ffn_in, ffn_in_bias, ffn_out, ffn_out_bias;
  };
  template <typename View>
  void BindAll(View flat, NetworkTensors<View>* tensors) const;

  Slot mask_embedding_, embedding_, softmax_bias_;
  Slot summary_, summary_bias_, classes_, classes_bias_;
  std::vector<LayerSlots> layers_;
};

}  // namespace anyorder
