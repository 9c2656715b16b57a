// Fused two-stream relative attention: both streams of XLNet are rows of one call, keys are shared.
//
// B lanes (batch rows), H heads, KV heads of keys and values, D head size, C content rows and Q
// query rows a lane, K key slots a lane, R relative distances, R' distances with a bias of their
// own, N = B*C + B*Q rows in all.
// Rows are ordered [content of lane 0, ..., content of lane B-1, query rows of lane 0, ..., query
// rows of lane B-1]; C or Q may be 0.
//
// For row i of lane b, head h and key slot j visible to it (kernels/visibility.h):
//   s[j]  = scale * ( (q[i] + content_bias) . k[j]
//                   + (q[i] + position_bias) . relative[table(b)][pos_i - pos_j - min_distance]
//                   + (q[i] + segment_bias) . segment_embedding[seg_i == seg_j ? 0 : 1] )
//           + distance_bias[table(b)][clamp(pos_i - pos_j - min_bias_distance, 0, R' - 1)][head]
//   lse   = log(sum_j exp(s[j]))
//   out   = sum_j dropout(exp(s[j] - lse)) * v[j]
// (XLNet, Yang et al. 2019, section 2.5 and Transformer-XL, Dai et al. 2019, section 3.3; the
// unscaled bias by distance is T5's, Raffel et al. 2020, section 2.1, whose buckets the caller
// spreads over distances.) A row that sees nothing gets out = 0, lse = -inf and zero gradients.
// Null tensors drop their term.
//
// k[j] and v[j] are those of key/value head `head / (H / KV)`: H / KV neighbouring heads share one
// (grouped-query attention, Ainslie et al. 2023, section 2.2; KV = 1 is multi-query attention,
// Shazeer 2019), whose gradient is the sum over them. Everything else is each head's own.

#pragma once

#include "core/base/tensor.h"
#include "kernels/dropout.h"
#include "kernels/visibility.h"

namespace anyorder::kernels {

struct AttentionShape {
  int64_t batch_size = 0;    // B
  int64_t content_rows = 0;  // C, a lane
  int64_t query_rows = 0;    // Q, a lane
  int64_t num_keys = 0;      // K, a lane
  int64_t num_heads = 0;     // H
  int64_t num_kv_heads = 0;  // KV, a divisor of H; 0: as many as num_heads
  int64_t head_dim = 0;      // D
  int64_t num_tables = 0;  // tables by distance (one per reading direction); 0: none of either kind
  int64_t num_distances = 0;       // R; 0: no position term
  int64_t num_bias_distances = 0;  // R'; 0: no bias by distance

  int64_t num_rows() const { return batch_size * (content_rows + query_rows); }
  int64_t model_dim() const { return num_heads * head_dim; }
  int64_t kv_heads() const { return num_kv_heads == 0 ? num_heads : num_kv_heads; }
  int64_t keys_dim() const { return kv_heads() * head_dim; }
  // Heads that read the same keys and values.
  int64_t heads_per_kv() const { return num_heads / kv_heads(); }
  // The lane that row `row` belongs to.
  int64_t LaneOfRow(int64_t row) const {
    const int64_t content = batch_size * content_rows;
    return row < content ? row / content_rows : (row - content) / query_rows;
  }
  bool operator==(const AttentionShape&) const = default;
};

// What a backend works out ahead about positions and who sees whom, for all calls that share them
// (Backend::PlanAttention): where layers have the same rows and keys, once a microbatch and not in
// each of them, forward and backward. Bands, biases, dropout and the values of all tensors may
// differ from call to call.
struct AttentionPlan {
  AttentionShape shape;
  DType dtype = DType::kFloat32;  // T
  int64_t min_distance = 0;
  RowVisibility rows;
  KeyVisibility keys;
  bool is_for_backward = false;  // or for forward alone
  TensorView memory;             // uint8, AttentionPlanBytes(shape, dtype) or more, aligned to 64
};

// What forward and backward share. T is the activation dtype (fp32 or bf16; the reference also
// fp64).
struct AttentionInputs {
  AttentionShape shape;
  ConstTensorView q;  // [N, H*D]      T, without biases
  ConstTensorView k;  // [B, K, KV*D]  T
  ConstTensorView v;  // [B, K, KV*D]  T
  ConstTensorView
      relative;  // [num_tables, R, H*D] T or null; row r holds distance min_distance + r
  int64_t min_distance =
      0;  // every visible pair has min_distance <= pos_i - pos_j < min_distance + R
  const int32_t* table_of_lane = nullptr;  // [B], which table; null if num_tables == 0
  ConstTensorView content_bias;            // [H*D]    T or null (XLNet r_w_bias, Transformer-XL u)
  ConstTensorView position_bias;           // [H*D]    T or null (r_r_bias, v)
  ConstTensorView segment_bias;            // [H*D]    T or null (r_s_bias)
  ConstTensorView
      segment_embedding;  // [2, H*D] T or null: no segment term; row 0 same, row 1 different
  // [num_tables, R', H] T or null; row r is for distance min_bias_distance + r, the first also for
  // every distance below, the last for every one above.
  ConstTensorView distance_bias;
  int64_t min_bias_distance = 0;
  float scale = 0.0f;                // usually 1 / sqrt(D); > 0
  RowVisibility rows;                // arrays [N], in row order
  KeyVisibility keys;                // arrays [B, K]
  const Band* bands = nullptr;       // [H]; null: unlimited
  double seen_share = 1;             // of a row's keys that its windows hold, for operation_cost.h
  Dropout dropout;                   // of the probabilities
  const int32_t* row_ids = nullptr;  // [N] logical row ids for dropout; may be null without dropout
  // Made by PlanAttention for this shape and these arrays, whose values have not changed since;
  // null: the call makes its own.
  const AttentionPlan* plan = nullptr;
};

struct AttentionForwardArgs {
  AttentionInputs in;
  TensorView out;  // [N, H*D]  T
  TensorView lse;  // [N, H]    fp32 (fp64 for fp64 inputs), natural log
};

struct AttentionBackwardArgs {
  AttentionInputs in;
  ConstTensorView out;   // [N, H*D] T, from forward
  ConstTensorView lse;   // [N, H], from forward
  ConstTensorView dout;  // [N, H*D] T
  // Gradients, all overwritten. Parameter gradients are fp32 (fp64 for fp64 inputs); null if the
  // input is.
  TensorView dq;                  // [N, H*D]     T
  TensorView dk;                  // [B, K, KV*D] T
  TensorView dv;                  // [B, K, KV*D] T
  TensorView drelative;           // [num_tables, R, H*D] T
  TensorView dcontent_bias;       // [H*D]
  TensorView dposition_bias;      // [H*D]
  TensorView dsegment_bias;       // [H*D]
  TensorView dsegment_embedding;  // [2, H*D]
  TensorView ddistance_bias;      // [num_tables, R', H]
  TensorView workspace;           // uint8, AttentionBackwardWorkspaceBytes(shape) or more
};

}  // namespace anyorder::kernels
